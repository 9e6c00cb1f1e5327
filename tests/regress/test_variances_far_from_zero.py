"""Variances in single precision were off by up to their own size where the mean is large, and left the range of the type
where numbers are very large or very small; eager's CPU kernels compute them in double precision."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("scale, mean", [(0.1, 1e6), (1.0, 1e4), (1e30, 0.0), (1e-30, 0.0)])
def test_spread(scale, mean, dim):
    x = torch.randn(33, 515, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = (x * scale + mean).float()

    def program(x):
        return x.std(dim), torch.std_mean(x, dim, correction=0), x.std(dim, keepdim=True) / scale

    ours = lampwork.compile(program, options={"cache": False})(x)
    expected = program(x.double())  # which eager's own kernel for all dimensions is not near
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=scale * 1e-6, check_dtype=False)


def test_variance_and_gradient():
    x = (torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * 0.1 + 1e6).requires_grad_()

    def program(x):
        return x.var(1) + x.std(1)

    values, gradients = [], []
    for function in (lampwork.compile(program, options={"cache": False}), program):
        value = function(x)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value.sum(), x)[0])
    torch.testing.assert_close(*values, rtol=1e-6, atol=0)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
