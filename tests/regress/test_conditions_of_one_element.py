"""`x[condition] = value` where the condition is a tensor of one boolean: torch looked at it, which broke the graph."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("value", [1.5, -1, float("inf"), float("nan"), torch.tensor(2.0)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_filled_where_a_condition_holds(shape, value):
    def program(x, y):
        x = x.clone()
        x[y.sum() > 0] = value
        x[(y == 0).all()] = 7
        return x

    compiled = lampwork.compile(program, options={"cache": False})
    for sign in (1.0, -1.0, 0.0):
        arguments = torch.randn(shape), torch.full((2,), sign)
        torch.testing.assert_close(compiled(*arguments), program(*arguments), equal_nan=True, rtol=0, atol=0)
    assert not lampwork.stats(compiled)["breaks"] and lampwork.stats(compiled)["captures"] == 1


def test_booleans():
    def program(x, y):
        x = x.clone()
        x[y] = True
        return x

    compiled = lampwork.compile(program, options={"cache": False})
    for y in (torch.tensor(True), torch.tensor(False)):
        assert torch.equal(compiled(torch.zeros(3, dtype=torch.bool), y), program(torch.zeros(3, dtype=torch.bool), y))


def test_integers_are_left_to_torch():
    """Which converts 1.7 to the tensor's type where `masked_fill_` refuses it."""

    def program(x, y):
        x = x.clone()
        x[y] = 1.7
        return x

    compiled = lampwork.compile(program, options={"cache": False})
    x, y = torch.zeros(3, dtype=torch.int64), torch.tensor(True)
    assert torch.equal(compiled(x, y), program(x, y))


@pytest.mark.parametrize("limit", [0.5, 2.0])
def test_extremes_of_numbers_out_of_tensors(limit):
    """They are computed in the graph, as Python compares: a NaN stays where it comes first."""

    def program(x):
        first = max(limit, x.norm().item() / 3.0)
        second = min(x.sum().item(), limit, x.prod().item())
        return x.add_(x.sin(), alpha=-second / first), first, second, max(x.sum().item(), limit)

    compiled = lampwork.compile(program, options={"cache": False})
    for values in ([0.1, 0.2], [3.0, 4.0], [-1.0, float("inf")], [float("nan"), 1.0]):
        for actual, expected in zip(compiled(torch.tensor(values)), program(torch.tensor(values))):
            torch.testing.assert_close(actual, expected, equal_nan=True)
    assert not lampwork.stats(compiled)["breaks"]


def test_step_of_a_wider_type():
    """A parameter moved by a direction in half precision, by a number that varies."""

    class Plain(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for each in group["params"]:
                    each.add_(each.grad.bfloat16(), alpha=-group["lr"])

    runs = []
    for compiled in (False, True):
        torch.manual_seed(0)
        parameter = torch.nn.Parameter(torch.randn(5))
        parameter.grad = torch.randn(5)
        optimizer = Plain([parameter])
        step = lampwork.compile(optimizer.step, options={"cache": False}) if compiled else optimizer.step
        for number in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            step()
        if compiled:
            assert lampwork.stats(step)["captures"] == 1 and not lampwork.stats(step)["breaks"]
        runs.append(parameter.detach())
    torch.testing.assert_close(*runs, rtol=1e-6, atol=1e-7)
