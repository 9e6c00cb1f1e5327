"""Variances of no elements are NaN, whatever is added to their number; norms of no elements, and of numbers."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("shape, dim", [((0, 0, 0), None), ((3, 0), 1), ((0,), 0), ((2, 0, 3), (1, 2)), ((4, 5), 1)])
def test_variances(shape, dim, dynamic):
    for function in (torch.var, torch.std, torch.var_mean):
        for correction in (-5, -0.5, 0, 1):
            program = lambda x: function(x, dim, correction=correction)
            for dtype in (torch.float32, torch.float16):
                x = torch.ones(shape, dtype=dtype)
                found, expected = lampwork.compile(program, dynamic=dynamic)(x), program(x)
                torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf"), -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_shapes_of_norms_without_a_kernel(order, keepdim, monkeypatch):
    """Where no kernel is asked, as on GPUs: the shape was what PyTorch's own rule says, in one version a wrong one."""
    monkeypatch.setattr("lampwork.fakes.kernels.LARGEST", -1)
    for shape, dim in (((1, 0, 3), -3), ((2, 0), 0), ((3, 0, 2, 1), -1), ((2, 3), 1)):
        program = lambda x, dim=dim: x.norm(order, dim, keepdim)
        expected = program(torch.ones(shape))
        found = lampwork.compile(program, options={"cache": False})(torch.ones(shape))
        assert found.shape == expected.shape and found.stride() == expected.stride()


@pytest.mark.parametrize("order", [2, float("inf"), -float("inf")])
@pytest.mark.parametrize("keepdim", [False, True])
def test_norms_of_numbers_along_a_dimension(order, keepdim):
    """A tensor without dimensions has one that may be named, by eager's norms as by its sums."""
    program = lambda x: torch.linalg.vector_norm(x, order, dim=-1, keepdim=keepdim)
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    torch.testing.assert_close(compiled(torch.tensor(-2.5)), program(torch.tensor(-2.5)))
