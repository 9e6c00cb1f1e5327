"""CUDA graphs of modules that are trained: nothing that a caller can do with results, gradients and weights shows them.

Every test makes more calls than the graphs of both halves need to be captured and replayed. Eager trains a copy of the
module beside, on the same inputs.
"""

from __future__ import annotations

import copy
import gc
import threading

import pytest
import torch

import lampwork
from lampwork import _torch
from lampwork.benchmark.device import unused_in_graphs_bytes
from lampwork.runtime.launch.cuda import new_stream
from tests.gpu.support import Block, compiled_of

CALLS = 10


@pytest.fixture(autouse=True)
def exact():
    with _torch.exact_products():
        yield


def pair(device, width=64, mode="reduce-overhead", **options):
    """A module, an equal one, and the first compiled."""
    torch.manual_seed(0)
    ours = Block(width).to(device)
    theirs = copy.deepcopy(ours)
    return ours, theirs, compiled_of(ours, mode, **options)


def rows(device, count=CALLS, width=64, size=16):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(size, width, generator=generator).to(device) for _ in range(count)]


def close(ours, theirs, what=""):
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5, msg=lambda text: f"{what}: {text}")


def close_gradients(ours, theirs, what=""):
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters()):
        assert (one.grad is None) == (other.grad is None), f"{what}: {name}"
        if other.grad is not None:
            close(one.grad, other.grad, f"{what}: {name}")


def double_gradient(leaf):
    leaf.grad.mul_(2)


def account(compiled, refused=None):
    (found,) = lampwork.stats(compiled)["cuda_graphs"]
    assert (found["refused"] is None) == (refused is None), found["refused"]
    assert refused is None or found["refused"].id == refused
    return found


def test_both_halves_are_replayed(device):
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)
    found = account(compiled)
    assert found["replays"] - found["backward_replays"] == CALLS - 2 and found["backward_replays"] == CALLS - 2, found
    assert found["in_use"] == 0 and found["backward_captures"] == 1


def test_training_with_an_optimizer(device):
    ours, theirs, compiled = pair(device)
    optimizers = [torch.optim.AdamW(module.parameters(), lr=1e-2, fused=True) for module in (ours, theirs)]
    for number, x in enumerate(rows(device, 3 * CALLS)):
        losses = []
        for optimizer, call in zip(optimizers, (compiled, theirs)):
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        close(*losses, number)
    account(compiled)


def test_results_and_gradients_that_the_caller_keeps(device):
    ours, theirs, compiled = pair(device)
    kept = []
    inputs = rows(device, 30)
    for x in inputs:
        ours.zero_grad()
        out = compiled(x)
        out.square().mean().backward()
        kept.append((out, [each.grad for each in ours.parameters()]))
    copies = [(out.detach().clone(), [each.clone() for each in grads]) for out, grads in kept]
    for _ in range(4):
        ours.zero_grad()
        compiled(inputs[0]).sum().backward()
    for x, (out, grads), (copied, copied_grads) in zip(inputs, kept, copies):
        assert torch.equal(out, copied) and all(map(torch.equal, grads, copied_grads))
        theirs.zero_grad()
        expected = theirs(x)
        expected.square().mean().backward()
        close(out, expected)
        for one, other in zip(grads, theirs.parameters()):
            close(one, other.grad)


def test_gradients_are_accumulated(device):
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device, 3 * CALLS)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            if number % 3 == 0:
                module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)
    assert account(compiled)["backward_captures"] == 2


def test_the_graph_is_kept_for_several_backward_passes(device):
    """What was saved is whole behind all of them, in graphs that are made before or behind one that may spend it."""
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device, 3 * CALLS)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            loss = call(x).square().mean()
            for _ in range(number % 4):
                loss.backward(retain_graph=True)
                if number % 3 == 0:
                    module.zero_grad()
            loss.backward()
        close_gradients(ours, theirs, number)
    assert account(compiled)["backward_captures"] == 2


def test_gradients_that_are_held_while_forward_passes_run(device):
    """A forward pass writes to all memory that is its own, and none of it is a gradient's."""
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device, 3 * CALLS)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            if number % 3 == 0:
                module.zero_grad()
            loss = call(x).square().mean()
            if number % 3 == 2:
                call(x + 1)
            loss.backward()
            call(x - 1)
        close_gradients(ours, theirs, number)
    account(compiled)


def test_a_hook_that_raises_between_two_modules(device):
    """The second module's backward pass has spent what it saved; the next step begins anew."""
    first, second = pair(device), pair(device)
    for number, x in enumerate(rows(device, 2 * CALLS)):
        for one, other in ((first[2], second[2]), (first[1], second[1])):
            middle = one(x)
            if number % 4 == 3:
                middle.register_hook(raising)
                with pytest.raises(ArithmeticError):
                    other(middle).square().mean().backward()
            else:
                other(middle).square().mean().backward()
        for ours, theirs, _ in (first, second):
            close_gradients(ours, theirs, number)
            ours.zero_grad()
            theirs.zero_grad()
    account(first[2])


def raising(gradient):
    raise ArithmeticError


@pytest.mark.parametrize("together", [2, 3, 6])
def test_several_forward_passes_before_a_backward_one(together, device):
    """Micro-batches whose losses are added: what the first one saved is not written to by the next."""
    ours, theirs, compiled = pair(device)
    inputs = rows(device, 6)
    for number in range(CALLS):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            sum(call(x).square().mean() for x in inputs[:together]).backward()
        close_gradients(ours, theirs, number)
    assert account(compiled)["in_use"] > 0


def test_backward_passes_in_any_order(device):
    ours, theirs, compiled = pair(device)
    for number in range(CALLS):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            losses = [call(x).square().mean() for x in rows(device, 3)]
            for which in (1, 0, 2) if number % 2 else (2, 1, 0):
                losses[which].backward()
        close_gradients(ours, theirs, number)
    account(compiled)


def test_retain_graph(device):
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            loss = call(x).square().mean()
            loss.backward(retain_graph=True)
            call(x * 2).sum().backward()
            loss.backward()
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
        close_gradients(ours, theirs, number)
    account(compiled)


def test_forward_passes_without_a_backward_one(device):
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device, 3 * CALLS)):
        out, expected = compiled(x), theirs(x)
        close(out, expected)
        if number % 3 == 1:
            with torch.no_grad():
                close(compiled(x), theirs(x))
        if number % 3 == 2:
            for module, result in ((ours, out), (theirs, expected)):
                module.zero_grad()
                result.square().mean().backward()
            close_gradients(ours, theirs, number)
    for found in lampwork.stats(compiled)["cuda_graphs"]:
        assert found["refused"] is None and found["replays"]


def test_a_generator_and_its_critic(device):
    """Two modules in turn, the critic called twice before one backward pass, gradients through it into the other."""
    sides = []
    for make in (lambda module: compiled_of(module, "reduce-overhead"), lambda module: module):
        torch.manual_seed(1)
        maker, critic = Block().to(device), Block().to(device)
        optimizers = [torch.optim.SGD(each.parameters(), lr=1e-2) for each in (maker, critic)]
        sides.append(((maker, critic), (make(maker), make(critic)), optimizers))
    for number, x in enumerate(rows(device, 2 * CALLS)):
        for _, (make, judge), optimizers in sides:
            made = make(x)
            optimizers[1].zero_grad()
            (judge(x.flip(0)).square().mean() - judge(made.detach()).square().mean()).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            judge(made).square().mean().backward()
            optimizers[0].step()
        for one, other in zip(sides[0][0], sides[1][0]):
            close_gradients(one, other, number)
            for ours, theirs in zip(one.parameters(), other.parameters()):
                close(ours, theirs, number)


def test_gradients_of_inputs_through_two_modules(device):
    first, second = pair(device), pair(device)
    for number, x in enumerate(rows(device)):
        found = []
        for one, other in ((first[2], second[2]), (first[1], second[1])):
            leaf = x.clone().requires_grad_()
            other(one(leaf)).square().sum().backward()
            found.append(leaf.grad)
        close(*found, number)


def test_hooks_see_gradients(device):
    ours, theirs, compiled = pair(device)
    seen = ([], [])
    for module, into in zip((ours, theirs), seen):
        module.inner.weight.register_hook(lambda gradient, into=into: into.append(gradient))
        module.outer.weight.register_post_accumulate_grad_hook(double_gradient)
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)
    for one, other in zip(*seen):
        close(one, other)


def test_hooks_on_saved_tensors(device):
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            if number % 2:
                with torch.autograd.graph.save_on_cpu():
                    loss = call(x).square().mean()
            else:
                loss = call(x).square().mean()
            loss.backward()
        close_gradients(ours, theirs, number)
    account(compiled)


@pytest.mark.parametrize("how", ["in place", "replaced", "data"])
def test_changed_weights_are_seen(how, device):
    ours, theirs, compiled = pair(device)
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)
        for module in (ours, theirs):
            with torch.no_grad():
                if how == "in place":
                    module.inner.weight.mul_(0.9)
                elif number % 4 == 3 and how == "replaced":
                    module.inner.weight = torch.nn.Parameter(module.inner.weight * 0.9)
                elif number % 4 == 3:
                    module.outer.weight.data = module.outer.weight.data * 0.9


def test_a_weight_written_between_the_passes_is_an_error(device):
    ours, _, compiled = pair(device)
    for x in rows(device):
        loss = compiled(x).square().mean()
        with torch.no_grad():
            ours.inner.weight.mul_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            loss.backward()


def test_batch_norm_writes_its_statistics(device):
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.GELU()).to(device)
    theirs, compiled = copy.deepcopy(ours), compiled_of(ours, "reduce-overhead")
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)
        for one, other in zip(ours.buffers(), theirs.buffers()):
            close(one, other, number)
    account(compiled)


def test_dropout_draws_anew_and_backward_draws_it_again(device):
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.25)).to(device)
    x = torch.randn(128, 64, device=device, requires_grad=True)
    compiled = compiled_of(module, "reduce-overhead")
    masks = []
    for _ in range(CALLS):
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        kept = result != 0
        again = torch.nn.functional.gelu(module[0](x)) * kept / 0.75
        close(result, again)
        close(gradient, torch.autograd.grad(again.sum(), x)[0])
        assert not any(torch.equal(kept, other) for other in masks)
        masks.append(kept)
    assert account(compiled)["backward_replays"] > 0


def test_sizes_that_vary(device):
    ours, theirs, _ = pair(device)
    compiled = lampwork.compile(ours, mode="reduce-overhead", dynamic=True, options={"cache": False})
    for number in range(3 * CALLS):
        x = torch.randn(8 + 4 * (number % 3), 64, device=device)
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)
    assert account(compiled)["backward_replays"] > 0


def test_autocast_with_a_scaler(device):
    ours, theirs, compiled = pair(device)
    optimizers = [torch.optim.SGD(module.parameters(), lr=1e-2) for module in (ours, theirs)]
    scalers = [torch.amp.GradScaler(device, init_scale=256.0) for _ in range(2)]
    for number, x in enumerate(rows(device)):
        losses = []
        for call, optimizer, scaler in zip((compiled, theirs), optimizers, scalers):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = call(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss)
        torch.testing.assert_close(*losses, rtol=1e-2, atol=1e-3)
    account(compiled)


def test_two_streams(device):
    ours, theirs, compiled = pair(device, 256)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    inputs = rows(device, 16, 256, 512)
    torch.cuda.synchronize()
    found = []
    for number, x in enumerate(inputs):
        with torch.cuda.stream(streams[number % 2]):
            found.append((x, torch.autograd.grad(compiled(x).square().mean(), list(ours.parameters()))))
    torch.cuda.synchronize()
    for x, gradients in found:
        for one, other in zip(gradients, torch.autograd.grad(theirs(x).square().mean(), list(theirs.parameters()))):
            close(one, other)


def test_two_threads(device):
    ours, theirs, compiled = pair(device)
    inputs = rows(device, 40)
    found, errors = {}, []

    def work(part):
        try:
            for number in range(part, len(inputs), 2):
                loss = compiled(inputs[number]).square().mean()
                found[number] = torch.autograd.grad(loss, list(ours.parameters()))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors
    for number, gradients in found.items():
        expected = torch.autograd.grad(theirs(inputs[number]).square().mean(), list(theirs.parameters()))
        for one, other in zip(gradients, expected):
            close(one, other, number)


def test_default_mode_decides_by_measuring(device):
    """A chain of small layers waits for the host; a wide one does not."""
    torch.manual_seed(0)
    deep = torch.nn.Sequential(*[Block(64) for _ in range(8)]).to(device)
    wide = Block(4096).to(device)
    for module, x, refused in (
        (deep, torch.randn(4, 64, device=device), None),
        (wide, torch.randn(16384, 4096, device=device), "graph-no-gain"),
    ):
        compiled = compiled_of(module)
        for _ in range(CALLS):
            module.zero_grad()
            compiled(x).square().mean().backward()
        found = account(compiled, refused)
        assert (found["backward_replays"] > 0) == (refused is None)


def test_what_a_graph_cannot_hold_still_trains(device):
    class Reads(Block):
        def forward(self, x):
            return super().forward(x) * (x.sum().cpu() * 0 + 1).to(x.device)

    torch.manual_seed(0)
    ours = Reads().to(device)
    theirs, compiled = copy.deepcopy(ours), compiled_of(ours, "reduce-overhead")
    for number, x in enumerate(rows(device)):
        for module, call in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            call(x).square().mean().backward()
        close_gradients(ours, theirs, number)


def peaks_of_calls(module, compiled, x):
    """MiB at the worst time of each call and its backward pass, above what is there before. The second one is plain.

    On a stream where nothing was called yet, without libraries' workspaces: what ran earlier in the process is no part
    of it.
    """
    gc.collect()
    torch.cuda.synchronize()
    _torch.clear_library_workspaces()
    torch.cuda.empty_cache()
    before, peaks = torch.cuda.memory_allocated() + unused_in_graphs_bytes(), []
    with torch.cuda.stream(torch.cuda.ExternalStream(new_stream(x.device.index))):
        for _ in range(CALLS):
            module.zero_grad()
            unused = unused_in_graphs_bytes()
            torch.cuda.reset_peak_memory_stats()
            compiled(x).square().mean().backward()
            torch.cuda.synchronize()
            peaks.append((torch.cuda.max_memory_allocated() + unused - before) >> 20)
    assert account(compiled)["backward_replays"] > 0
    return peaks


def test_memory_stays_near_what_plain_training_takes(device):
    """Peak memory of a loop of steps; and all of it comes back."""
    peaks = {}
    for mode in ("max-autotune-no-cudagraphs", "reduce-overhead"):
        gc.collect()
        torch.cuda.empty_cache()
        module = torch.nn.Sequential(*[Block(512) for _ in range(4)]).to(device)
        compiled = compiled_of(module, mode)
        x = torch.randn(16384, 512, device=device)
        before = torch.cuda.memory_allocated()
        for number in range(CALLS):
            if number == CALLS - 3:
                torch.cuda.reset_peak_memory_stats()
            module.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
        torch.cuda.synchronize()
        peaks[mode] = torch.cuda.max_memory_allocated() + unused_in_graphs_bytes() - before
        del module, compiled, x, loss
        lampwork.reset()
    assert peaks["reduce-overhead"] < 1.25 * peaks["max-autotune-no-cudagraphs"], peaks
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + 128 * 2**20  # the libraries' workspaces stay


def test_a_pool_is_little_larger_than_what_is_in_it_at_once(device):
    """Of buffers of many sizes, made and given back in turns, in convolutions whose results ATen makes."""
    widths = [8, 16, 24, 32, 48, 64, 96, 128]
    layers = []
    for inner, outer in zip(widths, widths[1:]):
        layers += [torch.nn.Conv2d(inner, outer, 3, padding=1), torch.nn.BatchNorm2d(outer), torch.nn.GELU()]
        layers += [torch.nn.AvgPool2d(2)] if outer in (24, 48, 96) else []
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), *layers).to(device)
    compiled = compiled_of(module, "reduce-overhead")
    peaks = peaks_of_calls(module, compiled, torch.randn(64, 3, 160, 160, device=device))
    # Beside it: inputs, tangents and results (5%), what the backward pass needs beyond it, and a library's workspace. In
    # pieces the pool alone is half as large again.
    assert max(peaks[-3:]) < 1.25 * peaks[1] + 34, peaks


def test_what_lies_behind_an_unused_result_adds_nothing(device):
    class Steep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([0.0, 1.0, 2.0]))

        def forward(self, x):
            y = self.scale * x
            return y.abs().sqrt(), y.cos()

    module = Steep().to(device)
    compiled = compiled_of(module, "reduce-overhead")
    x = torch.tensor([1.0, 2.0, 3.0], device=device)
    for number in range(CALLS):
        gradients = []
        for call in (module, compiled):
            first, second = (each.sum() for each in call(x))
            loss = first + second if number % 3 == 2 else second
            gradients.append(torch.autograd.grad(loss, module.scale)[0])
        torch.testing.assert_close(*gradients, equal_nan=True)
