"""Facts that were compared, or described, by less than they hold: ranges by their numbers (all empty ones are equal),
annotations of functions whose classes have a class of their own."""

from __future__ import annotations

import pytest
import torch

import lampwork


def test_empty_ranges_are_told_apart():
    def program(x):
        return range(5, x.item()), range(1, x.item() + 1, 5)

    compiled = lampwork.compile(program)
    for number in (1, 2, 3):
        assert list(map(repr, compiled(torch.tensor(number)))) == list(map(repr, program(torch.tensor(number))))


def test_a_range_that_is_an_argument():
    compiled = lampwork.compile(lambda x, numbers: (x + len(numbers), numbers.stop))
    for stop in (5, 4, 3):
        assert compiled(torch.ones(2), range(5, stop))[1] == stop


def test_annotations_of_a_function_that_is_returned():
    def program(x):
        def made(a: int, b: x.shape[0] = 1, c: torch.dtype = torch.float32) -> torch.Tensor:
            return x

        made.__annotations__["return"] = torch.Tensor
        return made

    assert lampwork.compile(program)(torch.ones(2)).__annotations__ == program(torch.ones(2)).__annotations__


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1)])
def test_strides_of_angles(order):
    compiled = lampwork.compile(lambda z: z.permute(order).angle(), dynamic=True)
    for size in (2, 4):
        z = torch.randn(*range(size, size + len(order)), dtype=torch.complex64)
        torch.testing.assert_close(compiled(z), z.permute(order).angle())
        assert compiled(z).stride() == z.permute(order).angle().stride()
