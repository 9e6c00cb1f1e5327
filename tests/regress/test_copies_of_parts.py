"""Operators that count from the beginning of a storage, on what lies somewhere in one: `as_strided_scatter` wrote elsewhere
where its tensor had been written to before, strided parts of copies that eager makes with all of their source's memory
read what nothing wrote, and a view as a wider type was made of an input that had been written whole."""

from __future__ import annotations

import pytest
import torch

import lampwork


def _select(x):
    return torch.select_scatter(x[:, None], torch.ones(1), 0, 0)


def _diagonal(x):
    x = x[None, None, :, None]
    return torch.diagonal_scatter(x, x.diagonal() * 2)


def _square(x):
    return x.as_strided((2, 2), (1, 1), x.storage_offset())


PROGRAMS = {
    "scattered after a write": lambda x, y: (
        x.lerp_(y, 0.25),
        torch.as_strided_scatter(x, torch.ones(1), (1,), (1,), storage_offset=0),
    ),
    "the same, in order": lambda x, y: (x.mul_(2), torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), 1)),
    "copied after a write": lambda x, y: (x.mul_(2), torch.as_strided_copy(x, (3,), (1,), 0)),
    "copied": lambda x, y: torch.as_strided_copy(x, (3,), (1,), 0) + 1,
    "into repeated elements": lambda x, y: torch.as_strided_scatter(
        x[:2].expand(2, 2), torch.ones(2, 2), (2, 2), (1, 2)
    ),
    "around a selected part": lambda x, y: _square(_select(x)),
    "around a diagonal": lambda x, y: _square(_diagonal(x)),
    "copied, and as a wider type": lambda x, y: x.clone().view(torch.float64) * 2,
    "written whole, and a strided part": lambda x, y: (y[...].copy_(x), y.as_strided((2,), (1,), 0) * 1),
    "written whole, and its end": lambda x, y: (y[...].copy_(x), y.as_strided((1,), (1,), 1) * 1),
    "written whole, and as a wider type": lambda x, y: (y[...].copy_(x), y.view(torch.float64) * 1),
}
PLACES = ((0, 1, 2), (3, 1, 2), (2, 1, 2), (1, 2, 2), (0, 2, 4), (3, 1, 4))


def outcome(function, offset, stride, count):
    memory = torch.arange(1.0, 13.0)
    try:
        results = function(memory.as_strided((count,), (stride,), offset), torch.full((count,), 9.0))
    except RuntimeError as error:
        return str(error)
    return [each.tolist() for each in torch.utils._pytree.tree_leaves(results)], memory.tolist()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_tensors_anywhere_in_a_storage(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for place in PLACES:
        assert outcome(compiled, *place) == outcome(program, *place), place
    assert not lampwork.stats(compiled)["fallbacks"]


def test_a_view_that_is_written_from_the_middle_of_a_storage():
    def program(x, y):
        x.view(torch.int32)[...] = y
        return x

    memory = torch.arange(7, dtype=torch.int32)
    compiled = lampwork.compile(program)
    for offset in (3, 4, 1):
        results = [
            each(torch.tensor([[2]]), memory.as_strided((1, 1, 2), (4, 4, 1), offset)) for each in (compiled, program)
        ]
        assert torch.equal(*results)
