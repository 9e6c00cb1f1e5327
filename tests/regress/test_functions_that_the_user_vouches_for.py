"""A function that is not interpreted, on the word of whoever marked it, is known by itself: others have its code, and
close over something else."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Block(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def of_constant(number):
    number_of = torch._dynamo.assume_constant_result(lambda: number)
    return lambda x: x * number_of()


def of_default(number):
    number_of = torch._dynamo.assume_constant_result(lambda number=number: number)
    return lambda x: x * number_of()


def in_graph(number):
    return torch._dynamo.allow_in_graph(lambda x: x * number)


@pytest.mark.parametrize("make", [of_constant, of_default, in_graph])
def test_each_closes_over_its_own(make):
    x = torch.ones(3)
    ours = [lampwork.compile(Block(make(number)), options={"cache": False}) for number in (2, 3, 4.5)]
    for compiled, number in zip(ours, (2, 3, 4.5)):
        torch.testing.assert_close(compiled(x), x * number)
    ours[0].function = make(7)
    torch.testing.assert_close(ours[0](x), x * 7)
