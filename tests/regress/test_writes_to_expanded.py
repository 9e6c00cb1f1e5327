"""Arguments several elements of which are one memory location, and parts of them that a program writes to.

A write to a part without repeated elements failed within the compiler; the others are eager's to refuse or to let through.
"""

from __future__ import annotations

import pytest
import torch

import lampwork


def outcome(function, make):
    arguments = make()
    try:
        result = function(*arguments)
    except RuntimeError as error:
        return str(error), [each.clone() for each in arguments]
    return [each.clone() for each in result], [each.clone() for each in arguments]


def row(x, y):
    x[0, ...] = y
    return (x * 2,)


def number(x, y):
    x[..., 0] = 3
    return (x + y,)


def filled(x, y):
    x.fill_(4)
    return (x + y,)


def computed(x, y):
    x[0].add_(1)
    x[1].mul_(y)
    return x * 2, x.sum()


def within(x, y):
    x.unsqueeze(1).expand(-1, 3, *x.shape[1:])[:, 1] = 5
    return (x + y,)


def window(x, y):
    x[1] = y
    x[0, 1] += 2
    return (x - 1,)


def beside(x, y):
    x[1].sub_(y)
    y.add_(x[0])
    return (x + y,)


SHAPES = {
    "rows": lambda: (torch.arange(3.0)[None].expand(2, 3), torch.full((3,), 7.0)),
    "columns": lambda: (torch.arange(3.0)[:, None].expand(3, 3), torch.full((3,), 7.0)),
    "middle": lambda: (torch.arange(12.0).view(2, 1, 6)[..., ::2].expand(2, 3, 3), torch.full((3, 3), 7.0)),
    "windows": lambda: (torch.arange(6.0).unfold(0, 3, 1), torch.full((3,), 7.0)),
    "shared": lambda: (lambda memory: (memory[1:4][None].expand(2, 3), memory[2:5]))(torch.arange(6.0)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("program", [row, number, filled, computed, within, window, beside])
@pytest.mark.parametrize("dynamic", [None, True])
def test_as_eager(program, make, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for _ in range(2):
        expected, found = outcome(program, make), outcome(compiled, make)
        assert type(expected[0]) is type(found[0])
        if isinstance(expected[0], str):
            assert expected[0] == found[0]
        else:
            assert all(map(torch.equal, expected[0], found[0]))
        assert all(map(torch.equal, expected[1], found[1]))
