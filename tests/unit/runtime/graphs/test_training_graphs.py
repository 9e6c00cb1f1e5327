"""The rules of `TrainingGraphs`, on the CPU: on a stand-in for a device (see `tests/graph_device.py`)."""

from __future__ import annotations

import gc

import pytest
import torch

import lampwork
from lampwork.runtime.graphs import cuda_graphs, training_graphs
from lampwork.runtime.graphs.cuda_graphs import MEASURED_CALLS, PLAIN_CALLS
from tests.graph_device import on_stand_in


@pytest.fixture
def device():
    with on_stand_in() as stand_in:
        yield stand_in


def layers(count=6):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(count)])


def compiled_of(module, mode="reduce-overhead", **options):
    return lampwork.compile(module, mode=mode, options={"cache": False}, **options)


def step(module, call, x):
    """One pass forward and backward; it is eager's."""
    module.zero_grad()
    result = call(x)
    result.square().sum().backward()
    parameters = list(module.parameters())
    expected = torch.autograd.grad(module(x).square().sum(), parameters)
    torch.testing.assert_close(result, module(x))
    for parameter, gradient in zip(parameters, expected):
        torch.testing.assert_close(parameter.grad, gradient)


def account(compiled):
    (found,) = lampwork.stats(compiled)["cuda_graphs"]
    return found


def test_one_memory_serves_a_loop(device):
    module = layers()
    compiled = compiled_of(module)
    for _ in range(PLAIN_CALLS + 6):
        step(module, compiled, torch.randn(4, 16))
    assert account(compiled) == {
        "captures": 2, "replays": 12, "backward_captures": 1, "backward_replays": 6, "in_use": 0, "refused": None,
    }  # fmt: skip


def test_memory_in_use_is_left_alone_and_more_is_made_when_it_is_wanted_again(device):
    module = layers()
    compiled = compiled_of(module)
    for _ in range(PLAIN_CALLS + 1):
        step(module, compiled, torch.randn(4, 16))
    kept = []
    for _ in range(training_graphs.MEMORIES + training_graphs.WANTED + 3):
        x = torch.randn(4, 16)
        kept.append((x, compiled(x)))
    found = account(compiled)
    assert found["captures"] - found["backward_captures"] == training_graphs.MEMORIES and found["in_use"] == 8
    for x, result in kept:
        module.zero_grad()
        result.square().sum().backward()
        expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
        for parameter, gradient in zip(module.parameters(), expected):
            torch.testing.assert_close(parameter.grad, gradient)


def test_memory_for_more_passes_is_limited(device):
    device.bytes = 1 << 10
    module = layers()
    compiled = compiled_of(module)
    kept = [compiled(torch.randn(4, 16)) for _ in range(20)]
    for result in kept:
        result.sum().backward()
    assert account(compiled)["captures"] - account(compiled)["backward_captures"] == 1


def test_dropped_results_free_memory(device):
    module = layers()
    compiled = compiled_of(module)
    for _ in range(PLAIN_CALLS + 8):
        compiled(torch.randn(4, 16))
    assert account(compiled)["captures"] == 1 and account(compiled)["in_use"] == 0


def test_gradients_that_are_held_are_left_alone(device):
    module = layers()
    compiled = compiled_of(module)
    parameters = list(module.parameters())
    kept = []
    for _ in range(PLAIN_CALLS + 8):
        x = torch.randn(4, 16)
        kept.append((x, torch.autograd.grad(compiled(x).square().sum(), parameters)))
    assert account(compiled)["backward_captures"] == 2
    for x, gradients in kept:
        for one, other in zip(gradients, torch.autograd.grad(module(x).square().sum(), parameters)):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("halves", ["both", "backward"])
def test_what_cannot_be_captured_runs_plainly(device, halves):
    module = layers()
    compiled = compiled_of(module)
    if halves == "both":
        device.fails = "capture failed: no"
    for _ in range(PLAIN_CALLS):
        step(module, compiled, torch.randn(4, 16))
    compiled(torch.randn(4, 16))
    device.fails = "capture failed: no"
    for _ in range(4):
        step(module, compiled, torch.randn(4, 16))
    found = account(compiled)
    assert found["backward_captures"] == 0 and found["refused"].id == "graph-failed"
    assert ("the backward pass alone" in found["refused"].reason) == (halves == "backward")
    assert (found["replays"] > 0) == (halves == "backward")


@pytest.mark.parametrize("host, device_seconds, graphs", [(1.0, 1.0, True), (1.0, 2.5, False), (1e-6, 1e-6, False)])
def test_default_mode_weighs_both_halves(device, host, device_seconds, graphs):
    module = layers(12)
    compiled = compiled_of(module, "default")
    device.times = (host, device_seconds)
    for _ in range(PLAIN_CALLS + MEASURED_CALLS + 4):
        step(module, compiled, torch.randn(4, 16))
    found = account(compiled)
    assert (found["backward_replays"] > 0) == graphs
    assert (found["refused"] is None) == graphs and (graphs or found["refused"].id == "graph-no-gain")


def test_default_mode_keeps_much_memory_only_for_a_device_that_waits(device, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "LITTLE_BYTES", 100)
    module = layers(12)
    compiled = compiled_of(module, "default")
    device.times = (1.0, 1.5)
    for _ in range(PLAIN_CALLS + MEASURED_CALLS + 4):
        step(module, compiled, torch.randn(4, 16))
    assert account(compiled)["refused"].id == "graph-no-gain"


def test_results_that_are_not_used_and_then_are(device):
    """Their tangents are zeros, and gradients that depend on nothing else are undefined."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layers(2), layers(2)

        def forward(self, x):
            return self.first(x), self.second(x), self.first(x) * self.second(x)

    module = Two()
    compiled = compiled_of(module)
    for number in range(PLAIN_CALLS + 12):
        x, used = torch.randn(4, 16), ((0,), (1, 2), (2,), (0,), (0,), (1,))[number % 6]
        found = []
        for call in (compiled, module):
            module.zero_grad()
            results = call(x)
            sum(results[index].square().sum() for index in used).backward()
            found.append([None if each.grad is None else each.grad.clone() for each in module.parameters()])
        for one, other in zip(*found):
            assert (one is None) == (other is None)
            if other is not None:
                torch.testing.assert_close(one, other)
    assert account(compiled)["backward_replays"] == 12


def test_default_mode_waits_for_backward_passes(device):
    module = layers(12)
    compiled = compiled_of(module, "default")
    for _ in range(PLAIN_CALLS + MEASURED_CALLS + 4):
        compiled(torch.randn(4, 16))
    assert device.recorded == 0
    for _ in range(PLAIN_CALLS + MEASURED_CALLS):
        step(module, compiled, torch.randn(4, 16))
    assert device.recorded == 0
    step(module, compiled, torch.randn(4, 16))
    assert device.recorded == 2


def test_a_pass_too_small_for_a_replay_is_never_measured(device):
    module = torch.nn.LayerNorm(16)
    compiled = compiled_of(module, "default")
    device.measure = None
    for _ in range(PLAIN_CALLS + MEASURED_CALLS + 2):
        step(module, compiled, torch.randn(4, 16))
    assert account(compiled)["refused"].id == "graph-no-gain"


def test_a_backward_pass_on_another_stream_runs_plainly(device):
    module = layers()
    compiled = compiled_of(module)
    for _ in range(PLAIN_CALLS + 2):
        step(module, compiled, torch.randn(4, 16))
    before = account(compiled)["backward_replays"]
    x = torch.randn(4, 16)
    module.zero_grad()
    result = compiled(x)
    device.current = 7
    result.square().sum().backward()
    assert account(compiled)["backward_replays"] == before
    expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    for parameter, gradient in zip(module.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient)


def test_weights_that_are_replaced_again_and_again(device):
    module = layers(2)
    compiled = compiled_of(module)
    for _ in range(20):
        step(module, compiled, torch.randn(4, 16))
        module[0].weight.data = module[0].weight.data * 0.9
    assert account(compiled)["refused"].id == "graph-weights"


def test_second_derivatives_and_batched_ones(device):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    compiled = compiled_of(module)
    for _ in range(PLAIN_CALLS + 4):
        x = torch.randn(3, 4, requires_grad=True)
        found = []
        for call in (compiled, module):
            (first,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
            found.append(
                (first, *torch.autograd.grad(first.square().sum(), [x, *module.parameters()], allow_unused=True))
            )
        for one, other in zip(*found):
            if other is not None:
                torch.testing.assert_close(one, other)


def test_release_gives_memory_back_once_no_backward_pass_needs_it(device):
    module = layers()
    compiled = compiled_of(module)
    for _ in range(PLAIN_CALLS + 2):
        step(module, compiled, torch.randn(4, 16))
    x = torch.randn(4, 16)
    result = compiled(x)
    gc.collect()
    before = len(training_graphs._memories)
    module.zero_grad()
    compiled.__lampwork__.entries[0].release()
    result.square().sum().backward()
    expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    for parameter, gradient in zip(module.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient)
    del result
    assert len(training_graphs._memories) == before - 1
