"""Operators that write a tensor into a part of another raise what eager raises where the two have other sizes, for sizes
that vary and sizes that do not, instead of reading past the end."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 1), (7,)),
    "select_scatter, inner": (lambda x, y: torch.select_scatter(x, y, 1, 1), (5,)),
    "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 0, 1, 4), (3, 7)),
    "slice_scatter, inner": (lambda x, y: torch.slice_scatter(x, y, 1, 1, 6, 2), (5, 3)),
    "diagonal_scatter": (lambda x, y: torch.diagonal_scatter(x, y, 1), (5,)),
    "as_strided_scatter": (lambda x, y: torch.as_strided_scatter(x, y, (3, 2), (7, 2), 1), (3, 2)),
    "copy": (lambda x, y: torch.ops.aten.copy(x, y), (5, 7)),
    "copy of a row": (lambda x, y: torch.ops.aten.copy(x, y), (7,)),
    "an assignment": (lambda x, y: x.clone().__setitem__((slice(None), 2), y), (5,)),
}


def other_sizes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    found = [
        (*shape[:dim], size, *shape[dim + 1 :])
        for dim, each in enumerate(shape)
        for size in (each + 1, each - 1, 2 * each, 1, 0)
    ]
    return [*dict.fromkeys(found), (1, *shape), (2, *shape), shape[1:]]


def answer(program, x, y):
    try:
        return program(x, y)
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_has_the_last_word(name, dynamic):
    program, shape = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False, "recompile_limit": 64})
    x = torch.randn(5, 7)
    compiled(x, torch.randn(shape))
    for sizes in other_sizes(shape):
        y = torch.randn(sizes)
        expected, actual = answer(program, x, y), answer(compiled, x, y)
        if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
            assert torch.equal(actual, expected)
        else:
            assert actual is expected, (sizes, actual, expected)
