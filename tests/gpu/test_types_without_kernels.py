"""Eager's errors of types that its kernels for a GPU do not have."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.support import compiled_of

TYPES = [torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.bool, torch.float16, torch.complex64]


def answer(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("count", [3, 20_000])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_indexing(dtype, count):
    def program(x, places):
        return x[places % 2 - 1], x[1:][places]

    x = torch.ones(count, device="cuda").to(dtype)
    places = torch.arange(count - 1, device="cuda")
    eager, ours = answer(program, x, places), answer(compiled_of(program), x, places)
    if isinstance(eager[0], torch.Tensor):
        assert all(map(torch.equal, eager, ours))
    else:
        assert ours == eager


@pytest.mark.parametrize("count", [3, 5000])
@pytest.mark.parametrize("by_contents", [False, True])
def test_products_of_integers_that_nobody_reads(count, by_contents):
    def program(x):
        (x.nonzero() if by_contents else x) @ x.T
        return x * 2

    x = torch.ones(count, 2, dtype=torch.int64, device="cuda")
    eager, ours = answer(program, x), answer(compiled_of(program), x)
    assert eager[0] is NotImplementedError
    assert ours == eager
