"""Gradients that a whole step replaces go before it runs: those of two steps together would take twice the memory."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch

import lampwork
from lampwork.runtime.graphs.cuda_graphs import MEASURED_CALLS, PLAIN_CALLS
from lampwork.runtime.launch.host import Rerun
from tests.graph_device import on_stand_in


def pair(step, compile=lampwork.compile, width=512):
    """A layer whose gradients are large, and an optimizer, eager and compiled."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(width, width)
    layers = [layer, copy.deepcopy(layer)]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in layers]
    return layers, [step(layers[0], optimizers[0]), compile(step(layers[1], optimizers[1]))]


def ordinary(layer, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def equal(layers):
    for eager, compiled in zip(*(each.parameters() for each in layers)):
        torch.testing.assert_close(compiled, eager)
        torch.testing.assert_close(compiled.grad, eager.grad)


def test_new_gradients_lie_where_the_old_ones_did():
    layers, steps = pair(ordinary)
    places = []
    for _ in range(6):
        x = torch.randn(8, 512)
        for step in steps:
            step(x)
        equal(layers)
        places.append(layers[1].weight.grad.data_ptr())
    assert len(set(places[3:])) == 1, places


def test_gradients_that_somebody_holds_stay():
    layers, steps = pair(ordinary)
    held = []
    for _ in range(5):
        x = torch.randn(8, 512)
        for step in steps:
            step(x)
        held.append((layers[0].weight.grad, layers[1].weight.grad, layers[1].weight.grad.clone()))
    for eager, compiled, then in held:
        assert torch.equal(compiled, then)
        torch.testing.assert_close(compiled, eager)


def test_old_gradients_that_the_step_reads():
    def step_of(layer, optimizer):
        def step(x):
            before = [p.grad.norm() for p in layer.parameters() if p.grad is not None]
            old = layer.weight.grad
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()
            return before, old

        return step

    layers, steps = pair(step_of)
    for _ in range(5):
        x = torch.randn(8, 512)
        before = layers[1].weight.grad
        (norms, old), (found_norms, found_old) = [step(x) for step in steps]
        torch.testing.assert_close(found_norms, norms)
        assert found_old is before
        torch.testing.assert_close(found_old, old)
        equal(layers)


def test_a_step_that_fails_in_a_check_leaves_gradients_as_eager_does():
    def step_of(layer, optimizer):
        def step(x):
            loss = layer(x).square().mean()
            torch._assert_async(loss < 1e3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    layers, steps = pair(step_of)
    for number in range(4):
        x = torch.randn(8, 512) * (1e3 if number == 3 else 1)
        for step in steps:
            try:
                step(x)
            except RuntimeError:
                assert number == 3
    equal(layers)


def test_nothing_keeps_the_old_gradients_while_the_step_runs():
    seen = []

    @torch.library.custom_op("lampwork_tests::old_gradients", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(old[0]() is None if old else None)
        return x.clone()

    look.register_fake(lambda x: torch.empty_like(x))
    look.register_autograd(lambda context, gradient: gradient)
    old: list[weakref.ref] = []

    def step_of(layer, optimizer):
        def step(x):
            optimizer.zero_grad()
            look(layer(x)).square().mean().backward()
            optimizer.step()

        return step

    (_, layer), (_, step) = pair(step_of)
    for _ in range(6):
        step(torch.randn(8, 512))
        old[:] = [weakref.ref(layer.weight.grad)]
    assert seen[-2:] == [True, True], seen
    assert not lampwork.stats(step)["breaks"]


def account(step):
    return lampwork.stats(step)["cuda_graphs"][-1]


def test_one_graph_serves_a_loop_that_holds_the_last_loss():
    with on_stand_in() as device:
        layers, steps = pair(ordinary, lambda step: lampwork.compile(step, mode="reduce-overhead"), 256)
        losses = []
        for _ in range(PLAIN_CALLS + MEASURED_CALLS + 6):
            x = torch.randn(8, 256)
            losses.append([step(x) for step in steps])
            equal(layers)
        for eager, compiled in losses:
            torch.testing.assert_close(compiled, eager)
        assert device.recorded == 1 and account(steps[1])["refused"] is None
        held = layers[1].weight.grad, layers[1].weight.grad.clone()
        for step in steps:
            step(x)
        assert torch.equal(*held) and device.recorded == 2  # the gradients that are held keep their memory
        equal(layers)


def test_gradients_of_the_first_step_lie_in_the_pool_that_others_share():
    """The stand-in's replays leave garbage wherever others may write."""
    with on_stand_in() as device:
        pairs = [pair(ordinary, lambda step: lampwork.compile(step, mode="reduce-overhead"), 256) for _ in range(3)]
        for _ in range(PLAIN_CALLS + 6):
            for _, steps in pairs:
                x = torch.randn(8, 256)
                for step in steps:
                    step(x)
            for layers, _ in pairs:
                equal(layers)
                torch.testing.assert_close(layers[1].weight.grad, layers[0].weight.grad)
        first, *others = vars(device.shared)["captures"]
        assert first and len(others) == 2 and not any(others)


def test_large_results_beside_gradients_are_handed_out():
    def step_of(layer, optimizer):
        def step(x):
            optimizer.zero_grad()
            out = layer(x)
            out.square().mean().backward()
            optimizer.step()
            return out.detach()

        return step

    with on_stand_in():
        layers, steps = pair(step_of, lambda step: lampwork.compile(step, mode="reduce-overhead"), 256)
        held = []
        for _ in range(PLAIN_CALLS + 6):
            x = torch.randn(2048, 256)
            held.append([step(x) for step in steps])
            equal(layers)
        for eager, compiled in held:
            torch.testing.assert_close(compiled, eager)


def test_a_model_that_is_passed():
    torch.manual_seed(0)
    layer = torch.nn.Linear(512, 512)
    layers = [layer, copy.deepcopy(layer)]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in layers]

    def step(x, layer, optimizer):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lampwork.compile(step)
    places = []
    for _ in range(5):
        x = torch.randn(8, 512)
        step(x, layers[0], optimizers[0])
        compiled(x, layers[1], optimizers[1])
        equal(layers)
        places.append(layers[1].weight.grad.data_ptr())
    assert len(set(places[2:])) == 1, places


def test_batches_of_several_sizes():
    layers, steps = pair(ordinary)
    places = []
    for rows in (8, 8, 6, 5, 7, 9, 8, 12):
        x = torch.randn(rows, 512)
        for step in steps:
            step(x)
        equal(layers)
        places.append(layers[1].weight.grad.data_ptr())
    assert len(set(places[5:])) == 1, places


def asking(layer, optimizer):
    """Whether there are gradients is guarded, unlike in `zero_grad`."""

    def step(x):
        for each in layer.parameters():
            if each.grad is not None:
                each.grad = None
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("kind", [ordinary, asking])
def test_a_call_that_runs_eagerly_after_all_finds_what_it_asks_for(kind):
    layers, steps = pair(kind)
    for _ in range(3):
        x = torch.randn(8, 512)
        for step in steps:
            step(x)
    seen = []

    def fails(values, generation=None):
        seen.append(layers[1].weight.grad)
        raise Rerun from RuntimeError("no memory")

    function = steps[1].__lampwork__.function
    (entry,) = [each for each in steps[1].__lampwork__.entries if each.holds(function, (x,), {})]
    before = layers[1].weight.grad.stride()
    entry.serve.__globals__["run"] = fails
    try:
        entry.serve(function, (x,), {})
    except Rerun:
        pass
    assert seen == [None]
    if kind is ordinary:
        assert layers[1].weight.grad is None
    else:
        assert layers[1].weight.grad.count_nonzero() == 0 and layers[1].weight.grad.stride() == before


def test_gradients_of_a_step_that_may_refuse_stay_until_it_has_run():
    def step_of(layer, optimizer):
        def step(x):
            if (x > 1e3).any():
                raise ValueError("too large")
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()

        return step

    layers, steps = pair(step_of)
    for number in range(5):
        x = torch.randn(8, 512) * (1e5 if number == 3 else 1)
        before = layers[1].weight.grad
        for step in steps:
            try:
                step(x)
            except ValueError:
                assert number == 3
        assert (layers[1].weight.grad is before) == (number == 3)
        equal(layers)
