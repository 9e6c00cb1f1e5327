"""Static guards whose stamps never hold, as in a training step: tensors that stay are compared by identity and words."""

from __future__ import annotations

import pytest
import torch

import lampwork

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
def steady():
    step = Step()
    compiled = lampwork.compile(step, dynamic=False, options={"cache": False})
    run(step, compiled, 12)
    (entry,) = compiled.__lampwork__.entries
    inner = next(cell.cell_contents for cell in entry.holds.__closure__ if callable(cell.cell_contents))
    static = inner.__globals__["static"]
    assert static._steady is not None
    return step, compiled


def captures(compiled) -> int:
    return lampwork.stats(compiled)["captures"]


def test_a_tensor_that_is_replaced(steady):
    step, compiled = steady
    step.tensors[3] = torch.full((4,), 30.0)
    run(step, compiled, 4)
    assert captures(compiled) == 1
    step.tensors[5] = torch.zeros(4, dtype=torch.float64)
    run(step, compiled, 2)
    assert captures(compiled) == 2


def test_metadata_that_changes_in_place(steady):
    step, compiled = steady
    step.tensors[3].resize_(1)
    run(step, compiled, 2)
    assert captures(compiled) == 2


def test_memory_that_is_shared_from_now_on(steady):
    """The tensor that is new on each call, and written, lies in the memory of one that stays."""
    step, compiled = steady
    for _ in range(2):
        expected = sum(step.tensors) - step.tensors[4] + 4 * step.tensors[4]
        step.fresh = step.tensors[4]
        step.number["calls"] = 0.0
        torch.testing.assert_close(compiled(), expected)
    assert captures(compiled) == 2
    step.fresh = step.tensors[4][:]  # another object over the same memory
    expected = sum(step.tensors) - step.tensors[4] + 4 * step.tensors[4]
    torch.testing.assert_close(compiled(), expected)
