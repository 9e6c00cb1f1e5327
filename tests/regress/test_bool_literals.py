"""A number that varies is written into tensors of bool."""

from __future__ import annotations

import torch

import lampwork


def test_a_size_that_becomes_zero_is_scattered():
    """The number was taken for true in every call: an expression of sizes is an object."""

    def program(x, places):
        return (x > 0).scatter(0, places, x.size(0) - 5)

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    places = torch.tensor([1])
    for count in (7, 5, 9):
        x = torch.ones(count)
        assert torch.equal(compiled(x, places), program(x, places))
