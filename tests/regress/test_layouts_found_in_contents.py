"""What contents decide the size of has eager's type, sizes, strides and numbers. `unique` along a dimension lays that one
outermost; a view of places keeps the strides that dimensions of size 1 have; of no number with weights, `bincount` makes
whole numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from tests.layouts import agree


def column(view):
    """`view` of the places in one dimension, [n, 1] with strides (1, n); of all dimensions where there are others."""
    return lambda x: view(torch.nonzero(x)) if x.dim() == 1 else torch.nonzero(x)


PROGRAMS = {
    "nonzero": lambda x: (torch.nonzero(x), torch.argwhere(x), torch.nonzero(x).t(), torch.nonzero(x) + 1),
    "nonzero as a tuple": lambda x: torch.nonzero(x, as_tuple=True),
    "places copied": lambda x: (torch.nonzero(x).clone(), torch.nonzero(x).contiguous(), torch.nonzero(x).float()),
    "places alike": lambda x: (torch.zeros_like(torch.nonzero(x)), torch.nonzero(x).to(torch.int32)),
    "a column as a row": column(lambda places: places.view(1, -1)),
    "a column between ones": column(lambda places: places.view(1, -1, 1)),
    "a column above ones": column(lambda places: places.view(-1, 1, 1)),
    "a column and ones": column(lambda places: (places.unsqueeze(1), places.reshape(1, -1), places.squeeze(1))),
    "places flat": lambda x: torch.nonzero(x).flatten(),
    "masked_select": lambda x: (torch.masked_select(x, x > 1), x[x > 1], x[None, x > 1]),
    "where": lambda x: torch.where(x > 1),
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique, unsorted": lambda x: torch.unique(x, sorted=False, return_inverse=True),
    "unique of others": lambda x: (torch.unique(x > 1), torch.unique(x.long())),
    "unique_consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "bincount": lambda x: (torch.bincount(x.long()), torch.bincount(x.long(), minlength=9)),
    "bincount of weights": lambda x: torch.bincount(x.long(), x),
    "bincount of whole weights": lambda x: torch.bincount(x.long(), x.int(), minlength=2),
    "histc": lambda x: (torch.histc(x, bins=4), torch.histc(x, bins=4, min=0, max=3)),
    "repeat_interleave": lambda x: torch.repeat_interleave(x.long()),
    "repeat_interleave of rows": lambda x: (
        torch.repeat_interleave(x, torch.arange(x.shape[0]), dim=0), torch.repeat_interleave(x, torch.tensor(2), dim=0),
    ),
    "repeat_interleave of columns": lambda x: torch.repeat_interleave(x, torch.arange(x.shape[-1]), dim=-1),
    "combinations": lambda x: (torch.combinations(x), torch.combinations(x, 3, with_replacement=True)),
    "one_hot": lambda x: F.one_hot(x.long()),
    "sorted": lambda x: (*torch.sort(x, 0), *torch.mode(x, 0), *torch.topk(x, 1, 0)),
    "nonzero_static": lambda x: torch.nonzero_static(x, size=5),
}  # fmt: skip
PROGRAMS.update({f"unique along {dim}": lambda x, dim=dim: torch.unique(x, dim=dim) for dim in (-1, 0, 1, 2, 3)})
PROGRAMS["unique with all results"] = lambda x: torch.unique(x, return_inverse=True, return_counts=True, dim=-1)
PROGRAMS["unique_consecutive along"] = lambda x: torch.unique_consecutive(x, dim=1, return_inverse=True)

OPERANDS = {
    "number": torch.tensor(2.0),
    "one": torch.ones(2)[::2],
    "none": torch.ones(0),
    "five": torch.arange(5.0),
    "rows": torch.arange(12.0).reshape(3, 4) % 5,
    "columns": torch.arange(12.0).reshape(4, 3).t() % 5,
    "nothing": torch.ones(3, 0).t(),
    "repeated": torch.arange(4.0)[:, None].expand(4, 3),
    "every other": (torch.arange(24.0).reshape(4, 6) % 5)[::2, ::2],
    "reversed": torch.arange(6.0).reshape(3, 1, 2).permute(2, 1, 0) % 5,
    "channels last": (torch.arange(120.0).reshape(2, 3, 4, 5) % 5).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("operand", OPERANDS)
def test_found(operand, name):
    agree(PROGRAMS[name], OPERANDS[operand], dynamic=None, rtol=0, atol=0)


@pytest.mark.parametrize("operand", ["one", "five", "columns", "reversed"])
@pytest.mark.parametrize("name", [
    "a column between ones", "a column above ones", "unique along 1", "unique along -1", "bincount of weights",
])  # fmt: skip
def test_sizes_that_vary(operand, name):
    agree(PROGRAMS[name], OPERANDS[operand], dynamic=True, rtol=0, atol=0)


@pytest.mark.parametrize("program", [PROGRAMS["a column between ones"], PROGRAMS["a column above ones"]], ids=range(2))
def test_one_entry_for_each_number_of_places(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for count in (3, 2, 1, 0, 4):
        x = (torch.arange(4) < count).float()
        assert compiled(x).stride() == program(x).stride() and torch.equal(compiled(x), program(x))
    assert lampwork.stats(compiled)["entries"] == 1


def test_weights_of_what_a_mask_picks():
    program = lambda x: torch.bincount(x[x > 0].long(), x[x > 0])
    compiled = lampwork.compile(program, options={"cache": False})
    for x in (torch.arange(4.0), torch.zeros(4), torch.ones(4)):
        found, expected = compiled(x), program(x)
        assert found.dtype is expected.dtype and torch.equal(found, expected)
