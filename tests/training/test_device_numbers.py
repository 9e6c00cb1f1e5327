"""Numbers that vary in a program for a GPU: one vector on the device; counters on the CPU are left to the host."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.capture.capture import capture
from lampwork.capture.record.recorder import Recorder
from lampwork.config import Settings
from lampwork.graph.prepare import prepare
from lampwork.ir.source import Numbers
from lampwork.ir.template import Call
from tests.cuda_stand_in import cuda_stand_in
from tests.training.test_optimizers import OPTIMIZERS, state_of_optimizer


def made(name: str = "adamw", count: int = 3) -> tuple[list, torch.optim.Optimizer]:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(4, 4)) for _ in range(count)]
    for each in parameters:
        each.grad = torch.randn(4, 4)
    return parameters, OPTIMIZERS[name](parameters)


def on_device(function, optimizer):
    """The region and the prepared graph of a call whose tensors are on a GPU, but for the optimizer's counters."""
    counters = [state["step"] for state in optimizer.state.values()]
    with cuda_stand_in(on_cpu=counters):
        region = capture(function, (), {}, Settings())
        return region, prepare(region, Settings())


def test_a_step_has_nothing_on_the_cpu():
    _, optimizer = made()
    optimizer.step()
    region, functional = on_device(optimizer.step, optimizer)
    for node in functional.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor):
            assert node.meta["val"].is_cuda, node
    (numbers,) = [each for each in region.inputs if isinstance(each, Numbers)]
    assert numbers.device == "cuda:0"
    (store,) = [each for each in region.effects if isinstance(each, Call)]
    assert store.function.qualname == "store" and len(store.args) == 4  # one number, three counters


def test_a_counter_that_the_graph_returns_stays_in_it():
    _, optimizer = made()
    optimizer.step()
    first = next(iter(optimizer.state.values()))["step"]

    def step():
        optimizer.step()
        return first + 1

    region, functional = on_device(step, optimizer)
    (store,) = [each for each in region.effects if isinstance(each, Call)]
    assert len(store.args) == 3
    assert any(node.op == "placeholder" and node.meta["val"].is_cpu for node in functional.graph.nodes)


@pytest.fixture
def said_to_use_cuda(monkeypatch):
    """Captures behave as those of programs for a GPU do at their end."""
    monkeypatch.setattr(Recorder, "uses_cuda", property(lambda self: True, lambda self, value: None), raising=False)


@pytest.mark.parametrize("name", ["adam", "adamw amsgrad", "adagrad", "rmsprop", "nadam"])
def test_the_host_counts_as_eager_does(name, said_to_use_cuda):
    runs = []
    for compiled in (False, True):
        parameters, optimizer = made(name)
        step = lampwork.compile(optimizer.step) if compiled else optimizer.step
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        versions = []
        for _ in range(5):
            step()
            schedule.step()
            versions.append([state["step"]._version for state in optimizer.state.values()])
        counted = [last - first for first, last in zip(versions[0], versions[-1])]
        runs.append((parameters, state_of_optimizer(optimizer), counted))
        if compiled:
            assert lampwork.stats(step)["captures"] <= 2 and not lampwork.stats(step)["fallbacks"]
            effects = step.__lampwork__.entries[0].artifact.effects
            assert any(isinstance(each, Call) and each.function.qualname == "store" for each in effects)
    torch.testing.assert_close(runs[0], runs[1])


def test_what_the_program_returns_of_counters_is_as_it_was(said_to_use_cuda):
    """The number read before the step, and the one after it."""
    counter = torch.tensor(3.0)

    @lampwork.compile
    def step(x):
        before = counter.item()
        counter.add_(1)
        return x * before, x * counter.item()

    for number in range(3, 6):
        before, after = step(torch.ones(2))
        assert before.tolist() == [number] * 2 and after.tolist() == [number + 1] * 2
        assert counter.item() == number + 1
