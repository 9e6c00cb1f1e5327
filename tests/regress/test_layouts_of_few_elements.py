"""Results whose sizes contents decide have eager's strides, also where such a size is 0 or 1: some step over nothing,
and the caller sees them."""

from __future__ import annotations

import pytest
import torch

import lampwork


def _halves(x):
    one, other = torch.argwhere(x).tensor_split(2, 0)
    return torch.add(one, other)


def _rows_of_both(x, y):
    a, b = x[x > 0], y[y > 0]
    return torch.stack([a[:, None] + b, a[:, None] - b], 1), (a[:, None] + b).t()


def _reshaped(x):
    v = x[x > 0]
    return v.view(-1, 1).expand(-1, 3) + 1, v[:, None, None] * torch.ones(1, 2, 3), torch.outer(v, v), v.repeat(2, 1)


PROGRAMS = {
    "stack": (lambda x: torch.stack([x[x > 0]] * 2, 0), 1),
    "select": (lambda x: torch.masked_select(x, x > 0) * torch.ones(1, 1), 1),
    "column": (lambda x: x[x > 0].unsqueeze(-1) * 2, 1),
    "rows": (lambda x: x.expand(3, -1).t()[x > 0][:, None] * x, 1),
    "copy": (lambda x: x.expand(3, -1).t()[x > 0].t().clone(), 1),
    "reshaped": (_reshaped, 1),
    "two": (_rows_of_both, 2),
}


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_few_are_picked(name, dynamic):
    program, count = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    inputs = [torch.tensor(each) for each in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [-1.0, 2.0, -3.0])]
    for x in inputs:
        for y in inputs if count > 1 else inputs[:1]:
            _compare(compiled, program, (x, y)[:count])
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_turn_out_equal(dynamic):
    """What is known of a size only after an operator was recorded decides on that one's layout, too."""
    beside = torch.ones(2, 1)
    for program, x in ((_halves, torch.ones(4)), (lambda x: torch.nonzero(x) > beside, torch.ones(2))):
        _compare(lampwork.compile(program, dynamic=dynamic, options={"cache": False}), program, (x,))


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_are_left_over(dynamic):
    """A difference of sizes may be 0: layouts of nothing are others than those of something."""
    beside = torch.ones(1, 1)
    program = lambda x: torch.diff(x, 3, 0) + beside
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for rows in (5, 2, 3, 4, 6):
        _compare(compiled, program, (torch.rand(rows, 1),))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: 3 % x,
        lambda x: torch.special.zeta(2, x),
        lambda x: torch.special.hermite_polynomial_h(x, 2),
        lambda x: torch.special.airy_ai(x),
        lambda x: torch.bitwise_and(1, (x > 0)),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_beside_sizes_that_vary(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for shape in ((0, 1, 3, 3), (2, 1, 3, 3), (0, 1, 4, 4)):
        _compare(compiled, program, (torch.ones(shape),))


def test_gradients_go_through():
    program = lambda x, y: y[x > 0][:, None] * y[None]
    compiled = lampwork.compile(program, options={"cache": False})
    for x in (torch.tensor([-1.0]), torch.tensor([1.0])):
        mine, theirs = (torch.ones(1, 3, requires_grad=True) for _ in range(2))
        ours, expected = compiled(x, mine), program(x, theirs)
        assert ours.stride() == expected.stride()
        ours.sum().backward()
        expected.sum().backward()
        assert torch.equal(mine.grad, theirs.grad)


def _compare(compiled, program, arguments):
    ours, expected = compiled(*arguments), program(*arguments)
    pairs = zip(ours, expected, strict=True) if isinstance(expected, tuple) else [(ours, expected)]
    for one, other in pairs:
        assert torch.equal(one, other) and one.stride() == other.stride() and one._base is None
