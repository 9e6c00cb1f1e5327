"""Powers of whole and of complex numbers under symbolic sizes: strides, types and errors are the kernel's, where those of
PyTorch's decomposition differ (the first power as a clone of expanded memory, negative powers of whole numbers)."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("exponent", [True, 1, 0, 2, 1.0])
@pytest.mark.parametrize("dtype", [torch.int16, torch.bool, torch.complex64])
def test_strides_of_expanded_memory(dtype, exponent):
    program = lambda x: x.expand(2, *x.shape) ** exponent
    compiled = lampwork.compile(program, dynamic=True)
    for rows in (0, 3):
        x = torch.ones(1, rows, 3, 2, dtype=dtype)
        result, expected = compiled(x), program(x)
        assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(result, expected)


@pytest.mark.parametrize("dynamic", [None, True])
def test_negative_powers_are_refused(dynamic):
    def program(x, n):
        try:
            return x**n
        except RuntimeError:
            return x - 1

    compiled = lampwork.compile(program, dynamic=dynamic, options={"recompile_limit": 16})
    for n in (2, 3, -1, 0, -2):
        for x in (torch.arange(5), torch.arange(5) + 0.5, torch.arange(5) > 2):
            if x.dtype is torch.bool and n < 0:
                continue  # truth values have no difference
            assert torch.equal(compiled(x, n), program(x, n))
