"""What a program assumes of sizes that contents decide is checked by the host, in names that it knows."""

from __future__ import annotations

import pytest
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


def test_of_as_many_classes_as_a_size_says():
    def program(x, classes):
        return torch.nn.functional.one_hot(classes, x.shape[0])

    compiled = lampwork.compile(program, options={"cache": False})
    for size in (3, 4, 5):
        classes = torch.tensor([0, size - 1])
        assert torch.equal(compiled(torch.ones(size), classes), program(torch.ones(size), classes))
        with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
            compiled(torch.ones(size), classes + 1)
