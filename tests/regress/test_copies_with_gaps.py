"""What is written whole keeps the strides that it was made with, where those of its new contents are the same and these
lie in an input: the copy that the caller gets closed the gaps between rows."""

from __future__ import annotations

import pytest
import torch

import lampwork


def into_the_same_strides(x):
    return torch.empty_strided(x.shape, x.stride()).copy_(x)


def scattered(x):
    made = torch.diagonal_scatter(x, torch.ones(x.shape[2], 4), 0, 0, 1)
    made[:] = x
    return made


def of_two(x):
    made = torch.empty_strided(x.shape, x.stride()).copy_(x)
    return made, made * 2, x + 1


def turned(x):
    return torch.empty_strided(x.mT.shape, x.mT.stride()).copy_(x.mT)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [into_the_same_strides, scattered, of_two, turned])
def test_copies_keep_gaps(program, dynamic, gradients):
    compiled = lampwork.compile(program, dynamic=dynamic)
    for rows in (6, 7) if dynamic else (6,):
        for cut in (lambda base: base[1::2], lambda base: base[1::2, :, ::2], lambda base: base[: len(base) // 2]):
            base = torch.randn(2 * rows, 4, 6, requires_grad=gradients)
            for found, expected in zip(tensors(compiled(cut(base))), tensors(program(cut(base))), strict=True):
                assert found.stride() == expected.stride()
                torch.testing.assert_close(found, expected, rtol=0, atol=0)
                assert found.data_ptr() != base.data_ptr()


def tensors(results):
    return results if isinstance(results, tuple) else (results,)
