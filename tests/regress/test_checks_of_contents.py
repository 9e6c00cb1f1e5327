"""What a program assumes of sizes that contents decide is checked by the host, in names that it knows."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import lampwork


def same(program, *calls, **settings):
    compiled = lampwork.compile(program, options={"cache": False}, **settings)
    for call in calls:
        expected, found = program(*call), compiled(*call)
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one, equal_nan=True)


def test_as_many_as_an_input_whose_size_is_fixed_later():
    def program(x):
        return torch.lerp(x[x > 0], x, 0.0), torch.count_nonzero(x, (0,))

    same(program, [torch.tensor([1.0, 2.0, 3.0])], [torch.tensor([1.0, 2.0, 3.0, 4.0])], dynamic=True)


def test_a_check_of_a_tensor_without_elements():
    """What is checked was known, and nobody else read it."""
    same(lambda x: (F.gaussian_nll_loss(x, x, x**2),), [torch.zeros(0)], [torch.ones(3)])
