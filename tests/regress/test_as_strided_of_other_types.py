"""`as_strided` and `unfold` of memory seen as another element type are read and written."""

from __future__ import annotations

import pytest
import torch

import lampwork


def read(x):
    seen = x.view(torch.int16)
    return (seen.as_strided((2, 2), (1, 1), seen.storage_offset()),)


def write(x):
    seen = x.view(torch.int16)
    part = seen.as_strided((3,), (1,), 1)
    part.add_(1)
    return part, x + 0


def write_to_own(x):
    y = x * 1
    part = y.view(torch.uint8).as_strided((3, 2), (2, 1), 2)
    part.mul_(3)
    return y, part


def fill_with_gaps(x):
    y = (x * 1).reshape(-1)[1:]
    part = y.view(torch.int16).as_strided((2,), (2,), 3)
    part.fill_(3)
    return y, part


def write_unfolded(x):
    y = (x * 1).reshape(-1)
    y.view(torch.int16).unfold(0, 2, 2).add_(1)
    return (y,)


INPUTS = {
    "float32": torch.randn(2, 3),
    "complex64": torch.randn(3, dtype=torch.complex64),
    "float64": torch.randn(2, 2, dtype=torch.float64),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", INPUTS)
@pytest.mark.parametrize("function", [read, write, write_to_own, fill_with_gaps, write_unfolded])
def test_other_types(function, dtype, dynamic):
    x, y = INPUTS[dtype].clone(), INPUTS[dtype].clone()
    expected = function(x)
    found = lampwork.compile(function, dynamic=dynamic)(y)
    bits = lambda value: value.contiguous().view(torch.uint8)
    assert torch.equal(bits(x), bits(y))
    for ours, theirs in zip(found, expected):
        assert (ours.dtype, ours.stride(), ours.storage_offset()) == (theirs.dtype, theirs.stride(), theirs.storage_offset())  # fmt: skip
        assert torch.equal(bits(ours), bits(theirs))


@pytest.mark.parametrize("dynamic", [None, True])
def test_complex_numbers_seen_as_one_integer(dynamic):
    x = torch.randn(3, 4, dtype=torch.complex64)
    for function in (lambda x: x.view(torch.int64) // 3.0, lambda x: (x * 1).view(torch.float64) + 1, lambda x: x.view(torch.int64).remainder(3)):  # fmt: skip
        torch.testing.assert_close(lampwork.compile(function, dynamic=dynamic)(x), function(x), equal_nan=True)
    y = torch.randint(9, (3,))
    back = lambda y: (y + 1).view(torch.complex64) * 2
    torch.testing.assert_close(lampwork.compile(back, dynamic=dynamic)(y), back(y))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", INPUTS)
def test_an_input_that_begins_inside_its_storage(dtype, dynamic):
    """Of complex numbers the view is made by copying: its offsets still count from the beginning of the storage."""

    def program(x):
        seen = x.view(torch.int32)
        return seen.as_strided((2, 2), (0, 1), seen.storage_offset()) + 0

    x = INPUTS[dtype].flatten()[1:]
    assert torch.equal(lampwork.compile(program, dynamic=dynamic)(x), program(x))
