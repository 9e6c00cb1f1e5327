"""Where eager takes the number out of a tensor, it refuses one that does not fit into the element type of the result,
whether the result is read or not."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.dtype import INTEGRAL, is_in_range

VALUES = {
    torch.float64: [1e300, -1e300, 1e39, 7e4, 300.0, -1.0, 2.5, float("inf"), float("nan")],
    torch.float32: [3e38, 7e4, 300.0, 2.5],
    torch.float16: [6e4, 2.5],
    torch.bfloat16: [3e38, 2.5],
    torch.int64: [2**40, 70000, 300, -1, 2],
    torch.int32: [2**30, 300, -1],
    torch.int8: [-1, 5],
    torch.uint8: [200],
    torch.bool: [1, 0],
}
MASK = torch.tensor([True, False, True])
PROGRAMS = {
    "masked": lambda x, value: x.masked_fill(MASK, value),
    "masked in place": lambda x, value: (x + 0).masked_fill_(MASK, value),
    "nowhere": lambda x, value: x.masked_fill(torch.zeros(3, dtype=torch.bool), value),
    "unread": lambda x, value: (x.masked_fill(MASK, value), x + 1)[1],
    "at indices": lambda x, value: x.index_fill(0, torch.tensor([0, 2]), value),
    "assigned": lambda x, value: x.index_put((MASK,), value.to(x.dtype)),
}


def of(program, x, value):
    try:
        return program(x, value)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("dtype", VALUES, ids=str)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_number_out_of_a_tensor(program, dtype):
    x = torch.ones(3, dtype=dtype)
    compiled = lampwork.compile(program, options={"cache": False})
    for kind, values in VALUES.items():
        for each in values:
            value = torch.tensor(each, dtype=kind)
            expected, found = of(program, x, value), of(compiled, x, value)
            if isinstance(expected, str):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("held", VALUES, ids=str)
@pytest.mark.parametrize("wanted", VALUES, ids=str)
def test_ranges_of_types(held, wanted):
    """`is_in_range` says yes only where the ends of the range fit."""

    def ends(dtype):
        if dtype is torch.bool:
            return (0, 1)
        limits = (torch.finfo if dtype.is_floating_point else torch.iinfo)(dtype)
        return (limits.min, limits.max)

    names = [str(each).removeprefix("torch.") for each in (held, wanted)]
    if wanted is torch.bool:
        assert is_in_range(*names)
        return
    low, high = ends(wanted)
    fits = all(low <= each <= high for each in ends(held)) and not (held.is_floating_point and names[1] in INTEGRAL)
    assert is_in_range(*names) == fits
