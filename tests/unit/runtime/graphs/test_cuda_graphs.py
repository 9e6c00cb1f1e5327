"""The rules of `GraphRunner`, on the CPU: on a stand-in for a device (see `tests/graph_device.py`)."""

from __future__ import annotations

import threading

import pytest
import torch

from lampwork.config import make_settings
from lampwork.pipeline import compile_call
from lampwork.runtime.graphs import cuda_graphs, result_pool
from lampwork.runtime.graphs.cuda_capture import SharedWorkspace
from lampwork.runtime.graphs.cuda_graphs import HANDED_OUT, PLAIN_CALLS, GraphRunner
from lampwork.runtime.launch.host import Host
from tests.graph_device import StandIn


def runner_for(function, *args, when="always"):
    with torch.no_grad():
        artifact = compile_call(function, args, {}, make_settings())
    device = StandIn()
    return GraphRunner(artifact, lambda: Host(artifact).call, when, device), device


def call(runner, *values):
    with torch.no_grad():
        return runner.call(list(values), None)


def affine(x):
    return x * 2 + 1


def products(x):
    return (x @ x @ x @ x @ x).relu()


def test_replays_after_the_plain_calls():
    runner, device = runner_for(affine, torch.randn(8))
    for count in range(6):
        x = torch.randn(8)
        (result,) = call(runner, x)
        assert torch.equal(result, affine(x))
        assert device.recorded == (0 if count < PLAIN_CALLS else 1)
        del result
    assert runner.replays == 6 - PLAIN_CALLS


def test_results_that_aten_makes_are_copied_if_they_are_small():
    """Such a graph's memory may be other graphs' as well; large ones, and views of one tensor, keep theirs apart."""
    square, weight = torch.randn(64, 64), torch.randn(64, 512 * 64)
    for function, args, shared in (
        (lambda x: (x.sort().values, x + 1), (square,), True),
        (lambda x, w: (x @ w).sort().values, (square, weight), False),
        (lambda x: torch.linalg.qr(x), (square,), True),
        (lambda x: (lambda made: (made, made[1:]))(x.sort().values), (square,), False),
    ):
        runner, device = runner_for(function, *args)
        assert result_pool.shares_what_passes(runner.artifact.program) == shared
        for _ in range(6):
            values = [torch.randn_like(each) for each in args]
            for one, other in zip(call(runner, *values), function(*values), strict=True) if shared else ():
                torch.testing.assert_close(one, other)


def test_every_kept_output_stays_right():
    runner, device = runner_for(affine, torch.randn(8))
    inputs = [torch.randn(8) for _ in range(12)]
    kept = [call(runner, x)[0] for x in inputs]
    for x, result in zip(inputs, kept):
        assert torch.equal(result, affine(x))
    assert device.recorded == HANDED_OUT + 1
    assert len({result.data_ptr() for result in kept}) == len(kept)


def test_views_of_an_output_keep_its_memory():
    runner, _ = runner_for(affine, torch.randn(8))
    for _ in range(PLAIN_CALLS):
        call(runner, torch.randn(8))
    x = torch.randn(8)
    part = call(runner, x)[0][2:5]
    for _ in range(5):
        call(runner, torch.randn(8))
    assert torch.equal(part, affine(x)[2:5])


def test_outputs_fed_back():
    runner, _ = runner_for(affine, torch.randn(8))
    x = wanted = torch.randn(8)
    for _ in range(10):
        (x,) = call(runner, x)
        wanted = affine(wanted)
        assert torch.equal(x, wanted)


def test_two_outputs_of_one_storage():
    def pair(x):
        y = x + 1
        return y, y[::2]

    runner, _ = runner_for(pair, torch.randn(8))
    kept = []
    for _ in range(9):
        x = torch.randn(8)
        kept.append((x, *call(runner, x)))
    for x, whole, half in kept:
        assert torch.equal(whole, x + 1) and torch.equal(half, whole[::2])
        half.fill_(7)
        assert torch.equal(whole[::2], half)


def test_inputs_returned_and_viewed_are_the_callers():
    def same(x):
        return x[1:], x + 1

    runner, _ = runner_for(same, torch.randn(8))
    for _ in range(6):
        x = torch.randn(8)
        view, _ = call(runner, x)
        assert view.data_ptr() == x[1:].data_ptr()


def test_written_inputs_are_written():
    def bump(x):
        x.add_(1)
        return x * 2

    runner, _ = runner_for(bump, torch.randn(8))
    for _ in range(6):
        x = torch.randn(8)
        wanted = x + 1
        version = x._version
        (result,) = call(runner, x)
        assert torch.equal(x, wanted) and torch.equal(result, wanted * 2) and x._version > version


def test_state_is_written_in_place():
    """An optimizer's step: what a function holds is updated where it is, in every replay, and says so."""
    parameters = [torch.randn(16 + 16 * n) for n in range(9)]
    averages = [torch.randn(16 + 16 * n, 1) for n in range(9)]
    eager = [[each.clone() for each in values] for values in (parameters, averages)]
    state = [parameters, averages]

    def step(gradient):
        for parameter, average in zip(*state):
            average.mul_(0.9).add_(gradient)
            parameter.sub_(average[:, 0], alpha=0.1)
        return gradient * 2

    runner, device = runner_for(step, torch.ones(1))
    by_shape = {tuple(each.shape): each for each in (*parameters, *averages)}
    static = [cuda_graphs.is_static(source) for source in runner.artifact.inputs]
    assert static.count(True) == 18
    versions = {id(each): each._version for each in by_shape.values()}
    for number in range(PLAIN_CALLS + 4):
        gradient = torch.full((1,), 0.5 + number)
        values = [
            by_shape[tuple(runner.artifact.program.buffers[name].shape)] if kept else gradient
            for name, kept in zip(runner.artifact.program.inputs, static)
        ]
        call(runner, *values)
        for parameter, average in zip(*eager):
            average.mul_(0.9).add_(gradient)
            parameter.sub_(average[:, 0], alpha=0.1)
        for ours, theirs in zip((*parameters, *averages), (*eager[0], *eager[1])):
            torch.testing.assert_close(ours, theirs)
            assert ours._version > versions[id(ours)]
            versions[id(ours)] = ours._version
    assert runner.captures == 1 and device.replayed == 4


def test_changed_weights_are_captured_again():
    module = torch.nn.Linear(4, 4)
    with torch.no_grad():
        artifact = compile_call(module.forward, (torch.randn(2, 4),), {}, make_settings())
    device = StandIn()
    runner = GraphRunner(artifact, lambda: Host(artifact).call, "always", device)
    static = [cuda_graphs.is_static(source) for source in artifact.inputs]
    assert static.count(True) == 2

    def values(x, other):
        weights = iter(sorted(other.parameters(), key=lambda p: -p.dim()))
        by_shape = {tuple(p.shape): p.detach() for p in weights}
        return [by_shape[tuple(artifact.program.buffers[name].shape)] if is_weight else x
                for name, is_weight in zip(artifact.program.inputs, static)]  # fmt: skip

    for other in (module, torch.nn.Linear(4, 4)):
        for _ in range(4):
            x = torch.randn(2, 4)
            with torch.no_grad():
                (result,) = runner.call(values(x, other), None)
                torch.testing.assert_close(result, other(x))
            del result
    assert runner.captures == 2


def test_streams_have_captures_of_their_own():
    runner, device = runner_for(affine, torch.randn(8))
    for count in range(8):
        device.current = count % 2
        x = torch.randn(8)
        assert torch.equal(call(runner, x)[0], affine(x))
    assert device.recorded == 2


def test_many_threads():
    runner, _ = runner_for(affine, torch.randn(8))
    wrong = []

    def work():
        kept = [(x, call(runner, x)[0]) for x in (torch.randn(8) for _ in range(20))]
        wrong.extend(x for x, result in kept if not torch.equal(result, affine(x)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_auto_leaves_a_busy_device_alone():
    runner, device = runner_for(products, torch.randn(3, 3), when="auto")
    device.times = (0.1, 1.0)
    for _ in range(6):
        x = torch.randn(3, 3)
        assert torch.equal(call(runner, x)[0], products(x))
    assert device.recorded == 0 and runner.refused.id == "graph-no-gain"


def test_auto_never_captures_what_is_as_small_as_a_replay():
    runner, device = runner_for(affine, torch.randn(8), when="auto")
    assert runner.refused.id == "graph-no-gain"
    for _ in range(8):
        x = torch.randn(8)
        assert torch.equal(call(runner, x)[0], affine(x))
    assert device.recorded == 0


@pytest.mark.parametrize("kind", ["fails", "expanded", "overlapping"])
def test_what_cannot_be_captured_runs_plainly(kind):
    def bump(x, y):
        x.add_(1)
        return x + y

    memory = torch.randn(16)
    like = torch.randn(1).expand(8) if kind == "expanded" else torch.randn(8)
    runner, device = runner_for(bump, torch.randn(8), like)
    for _ in range(5):
        x, y = torch.randn(8), torch.randn(8)
        if kind == "fails":
            device.fails = "capture failed: no"
        elif kind == "expanded":
            y = torch.randn(1).expand(8)
        else:
            x, y = memory[:8], memory[4:12]
        if kind == "overlapping":
            # The guards of an entry keep such calls apart; the runner must not trust that.
            call(runner, x, y)
            continue
        wanted = x + 1 + y
        assert torch.equal(call(runner, x, y)[0], wanted)
    assert device.recorded == 0 and runner.refused


def test_a_value_read_on_the_host_is_refused():
    def pick(x, index):
        return x[index]

    runner, _ = runner_for(pick, torch.randn(8), torch.tensor([1, 2]))
    assert runner.refused.id == "graph-host-check"


def test_auto_keeps_large_results_only_for_a_device_that_waits(monkeypatch):
    """They stay between calls: the gradients that a whole step leaves, say."""
    for little, captured in ((1 << 20, True), (10, False)):
        monkeypatch.setattr(cuda_graphs, "LITTLE_BYTES", little)
        runner, device = runner_for(products, torch.randn(3, 3), when="auto")
        device.times = (1.0, 1.5)
        for _ in range(8):
            call(runner, torch.randn(3, 3))
        assert (device.recorded > 0) == captured


@pytest.mark.parametrize("host", [1.0, 1e-6])
def test_auto_weighs_what_a_replay_costs(host):
    runner, device = runner_for(products, torch.randn(3, 3), when="auto")
    device.times = (host, host)
    for _ in range(8):
        x = torch.randn(3, 3)
        assert torch.equal(call(runner, x)[0], products(x))
    assert device.recorded == (1 if host == 1.0 else 0)


def test_auto_ignores_one_slow_call():
    runner, device = runner_for(products, torch.randn(3, 3), when="auto")
    times = iter([(3.0, 1.0), (0.1, 1.0)])
    device.measure = lambda run: (*next(times), run())
    for _ in range(8):
        call(runner, torch.randn(3, 3))
    assert device.recorded == 0


def test_captures_of_a_stream_share_a_workspace_while_one_of_them_lives():
    shared = SharedWorkspace()
    first = shared.at_least(1000, "cpu")
    assert shared.at_least(1000, "cpu") is first is shared.at_least(8, "cpu")
    larger = shared.at_least(5000, "cpu")
    assert larger is not first and larger.numel() >= 5000 and shared.at_least(1000, "cpu") is larger
    del first, larger
    assert shared._memory() is None


def test_a_leaf_that_requires_grad_is_written():
    """A step behind a break gets its parameters as arguments: they are updated in place and stay leaves."""

    def bump(weight, x):
        with torch.no_grad():
            weight.mul_(0.5)
        return (x * 2).detach()

    weight = torch.nn.Parameter(torch.ones(8))
    artifact = compile_call(bump, (weight, torch.randn(8)), {}, make_settings())
    runner = GraphRunner(artifact, lambda: Host(artifact).call, "always", StandIn())
    for number in range(PLAIN_CALLS + 3):
        version = weight._version
        runner.call([weight, torch.randn(8)] if len(artifact.inputs) == 2 else [weight], None)
        assert weight.is_leaf and weight._version > version
        torch.testing.assert_close(weight.detach(), torch.full((8,), 0.5 ** (number + 1)))
    assert runner.replays == 3
