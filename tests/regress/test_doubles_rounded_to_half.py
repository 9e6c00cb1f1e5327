"""A double rounded to float16, or a remainder in float16, which is taken of doubles: where a later operator took the
sign, it was rounded by a function of no library.
"""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("size", [1, 2, 5, 17])
@pytest.mark.parametrize("name", ["tanh", "asinh", "sinh", "erf", "sigmoid"])
def test_the_sign_of_a_rounded_double(size, name):
    def program(x):
        y = x.to(torch.float16)
        return getattr(torch, name)(y), torch.copysign(torch.ones_like(y), y)

    x = torch.cat([torch.tensor([-0.0]), torch.linspace(-70000, 70000, size)]).double()
    for answer, expected in zip(lampwork.compile(program)(x), program(x)):
        torch.testing.assert_close(answer, expected, equal_nan=True)
        assert torch.equal(answer.signbit(), expected.signbit())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (40,)], ids=str)
def test_the_sign_of_a_remainder(shape, dtype):
    def program(x, y):
        z = torch.fmod(x, y)
        return torch.tanh(z), torch.copysign(y, z), torch.asinh(z), torch.fmod(x, x).tanh()

    x, y = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1))
    for answer, expected in zip(lampwork.compile(program)(x, y), program(x, y)):
        torch.testing.assert_close(answer, expected)
        assert torch.equal(answer.signbit(), expected.signbit())
