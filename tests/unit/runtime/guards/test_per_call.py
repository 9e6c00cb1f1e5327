"""Static guards where some things change on each call, as in a training step: the rest stays in a snapshot."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import lampwork
from lampwork.runtime.guards import memory_words

pytestmark = pytest.mark.skipif(not memory_words.supported(), reason="version snapshots are for CPython 3.11 and 3.12")

COUNT = 12


class Step:
    """Reads tensors that stay, one that is new on each call, and a number of a dict that is written on each call."""

    def __init__(self) -> None:
        self.tensors = [torch.full((4,), float(number)) for number in range(COUNT)]
        self.number = {"calls": 0.0}
        self.fresh = torch.ones(4)

    def __call__(self) -> torch.Tensor:
        self.fresh.mul_(2)
        self.number["calls"] = 1.0 - self.number["calls"]
        return sum(self.tensors) + self.fresh


def run(step: Step, compiled, calls: int) -> None:
    """Calls it, compared with what it computes."""
    for _ in range(calls):
        step.fresh = torch.ones(4)
        step.number["calls"] = 0.0
        torch.testing.assert_close(compiled(), sum(step.tensors) + 2 * torch.ones(4))
        assert step.fresh.tolist() == [2.0] * 4


@pytest.fixture
def settled():
    step = Step()
    compiled = lampwork.compile(step, dynamic=False, options={"cache": False})
    run(step, compiled, 12)
    (entry,) = compiled.__lampwork__.entries
    inner = next(cell.cell_contents for cell in entry.holds.__closure__ if callable(cell.cell_contents))
    static = inner.__globals__["static"]
    state = static.state
    assert state.left is not None and state.generation is None  # one of the tensors is new on each call
    run(step, compiled, 3)
    assert static.state is state, "what changes was found out"
    return step, compiled


def captures(compiled) -> int:
    return lampwork.stats(compiled)["captures"]


def test_a_tensor_that_is_replaced(settled):
    step, compiled = settled
    step.tensors[3] = torch.full((4,), 30.0)
    run(step, compiled, 4)
    assert captures(compiled) == 1
    step.tensors[5] = torch.zeros(4, dtype=torch.float64)
    run(step, compiled, 2)
    assert captures(compiled) == 2


def test_metadata_that_changes_in_place(settled):
    step, compiled = settled
    step.tensors[3].resize_(1)
    run(step, compiled, 2)
    assert captures(compiled) == 2


def test_memory_that_is_shared_from_now_on(settled):
    """The tensor that is new on each call, and written, lies in the memory of one that stays."""
    step, compiled = settled
    for _ in range(2):
        expected = sum(step.tensors) - step.tensors[4] + 4 * step.tensors[4]
        step.fresh = step.tensors[4]
        step.number["calls"] = 0.0
        torch.testing.assert_close(compiled(), expected)
    assert captures(compiled) == 2
    step.fresh = step.tensors[4][:]  # another object over the same memory
    expected = sum(step.tensors) - step.tensors[4] + 4 * step.tensors[4]
    torch.testing.assert_close(compiled(), expected)


# An optimizer's step -------------------------------------------------------------------------------------------------


class Training:
    """An optimizer whose step is compiled, and one that steps eagerly, with the same gradients."""

    def __init__(self, shapes, schedule=False, **options) -> None:
        torch.manual_seed(0)
        self.mine = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        self.eager = [torch.nn.Parameter(each.detach().clone()) for each in self.mine]
        self.optimizers = [torch.optim.AdamW(each, **options) for each in (self.mine, self.eager)]
        self.schedules = (
            [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in self.optimizers] if schedule else []
        )
        self.compiled = lampwork.compile(self.optimizers[0].step, options={"cache": False})

    def step(self, change=lambda gradient: gradient) -> None:
        for mine, eager in zip(self.mine, self.eager):
            gradient = torch.randn(mine.shape)
            mine.grad, eager.grad = change(gradient.clone()), gradient
        self.compiled()
        self.optimizers[1].step()
        for each in self.schedules:
            each.step()
        for mine, eager in zip(self.mine, self.eager):
            torch.testing.assert_close(mine, eager)

    @property
    def static(self):
        (entry,) = self.compiled.__lampwork__.entries
        inner = next(cell.cell_contents for cell in entry.holds.__closure__ if callable(cell.cell_contents))
        return inner.__globals__["static"]


SHAPES = [(3, 4), (5,), (3, 4), (2, 3, 4), (7, 1), (4, 4)]


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}], ids=str)
def test_gradients_are_new_and_all_else_stays(options):
    training = Training(SHAPES, **options)
    for _ in range(3):  # the first steps may load modules, which changes what is taken
        training.step()
    state = training.static.state
    assert state.left is not None and state.generation is not None
    for _ in range(4):
        training.step()
    assert training.static.state is state


def test_a_learning_rate_that_changes_is_found_out():
    training = Training(SHAPES, schedule=True)
    for _ in range(4):
        training.step()
    state = training.static.state
    for _ in range(4):
        training.step()
    assert training.static.state is state
    assert training.compiled.__lampwork__.counters.captures == 1


def test_a_state_that_was_loaded():
    training = Training(SHAPES)
    for _ in range(3):
        training.step()
    for mine in training.optimizers:
        mine.load_state_dict(mine.state_dict())
    for _ in range(3):
        training.step()
    assert training.compiled.__lampwork__.counters.captures == 1
    state = training.static.state
    training.step()
    assert training.static.state is state


def test_counters_that_part_are_noticed():
    training = Training(SHAPES)
    for _ in range(3):
        training.step()
    for optimizer, parameters in zip(training.optimizers, (training.mine, training.eager)):
        optimizer.state[parameters[2]]["step"].add_(5)
    training.step()
    training.step()


@pytest.mark.parametrize(
    "change",
    [
        lambda gradient: gradient.t().contiguous().t() if gradient.dim() == 2 else gradient,
        lambda gradient: torch.stack([gradient, gradient])[1],
        lambda gradient: gradient.clone().requires_grad_().detach(),
        lambda gradient: gradient.expand_as(gradient)[:],
    ],
    ids=["other strides", "a view", "detached", "a view of a view"],
)
def test_gradients_made_in_other_ways(change):
    training = Training(SHAPES)
    for _ in range(3):
        training.step()
    for _ in range(3):
        training.step(change)
    training.step()


def test_gradients_that_share_memory():
    """Two parameters with one gradient are another program: it was compiled for gradients apart."""
    training = Training([(4, 4), (4, 4), (4, 4), (4, 4)])
    for _ in range(3):
        training.step()
    shared = torch.randn(4, 4)
    for parameters in (training.mine, training.eager):
        for parameter in parameters:
            parameter.grad = torch.ones(4, 4)
        parameters[1].grad, parameters[3].grad = shared, shared[:]
    state = training.static.state
    assert state.now(training.compiled.__lampwork__.function, ()) is None
    training.compiled()
    training.optimizers[1].step()
    for mine, eager in zip(training.mine, training.eager):
        torch.testing.assert_close(mine, eager)


def test_a_gradient_over_the_memory_of_a_parameter():
    training = Training([(4, 4), (4, 4), (4, 4), (4, 4)])
    for _ in range(3):
        training.step()
    for parameters, optimizer in zip((training.mine, training.eager), (training.compiled, training.optimizers[1].step)):
        parameters[0].grad = parameters[2].detach()[:]
        optimizer()
    for mine, eager in zip(training.mine, training.eager):
        torch.testing.assert_close(mine, eager)


def test_an_optimizer_behind_a_weak_reference_is_not_kept_alive():
    training = Training(SHAPES, schedule=True)
    for _ in range(4):
        training.step()
    optimizer = weakref.ref(training.optimizers[0])
    assert training.static.state.left is not None
    training.optimizers = training.schedules = []
    gc.collect()
    kept = optimizer()
    assert kept is None, [(type(each), str(each)[:200]) for each in gc.get_referrers(kept)]
