"""`torch.Tensor(n, 2)` and `torch.FloatTensor(n)` with a size of the program's were compiled again for each size."""

from __future__ import annotations

import pytest
import torch

import lampwork


def of_the_default_type(x):
    return torch.Tensor(x.shape[0], 2).fill_(1) + x[:, :1]


def of_a_type_of_its_own(x):
    return torch.FloatTensor(x.size(0)).zero_() + x[:, 0], torch.LongTensor(len(x), 3).fill_(2)


@pytest.mark.parametrize("program", [of_the_default_type, of_a_type_of_its_own])
def test_one_entry_for_all_sizes(program):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for size in (5, 6, 7, 9):
        x = torch.rand(size, 3)
        found, expected = compiled(x), program(x)
        both = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for one, other in both:
            assert torch.equal(one, other)
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
    assert lampwork.stats(compiled)["captures"] == 2
