"""A double rounded to float16, of which a later operator took the sign, was rounded by a function of no library."""

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
