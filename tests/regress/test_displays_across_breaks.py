"""A tuple whose parts a graph break divides: the list that it is built from comes from outside then, and what it holds has to
be loaded."""

from __future__ import annotations

import torch

import lampwork


@lampwork.disable
def opaque(value):
    return value


def returned(x):
    return (x + 1, *(2, 3), opaque(4), x.sum())


def long(x):
    return (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, x * 2, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
            30, opaque(31), x + 32)  # fmt: skip


def passed(x):
    def product(*factors):
        result = 1
        for each in factors:
            result = result * each
        return result

    return product(x, *[x + 1, 2], opaque(3), x)


def _flat(value):
    return [each.tolist() if isinstance(each, torch.Tensor) else each for each in value]


def test_programs():
    for program in (returned, long, passed):
        compiled = lampwork.compile(program, options={"cache": False})
        for factor in (1, 2, 3):
            x = torch.arange(3.0) * factor
            assert _flat(compiled(x)) == _flat(program(x)), program.__name__
