"""Sizes that are equal in every call, as a range of another size says: later stages took them for different ones."""

from __future__ import annotations

import pytest
import torch

import lampwork


def last_row(x):
    return x.chunk(2, -2)[1]  # n - (n + 1) // 2 rows: one, of 2 or of 3


PROGRAMS = {
    "picked": lambda x: torch.masked_select(x, last_row(x) > 0),
    "places": lambda x: (last_row(x) > 0).expand(x.shape).nonzero(),
    "products": lambda x: (last_row(x) + 1).expand(x.shape) @ x.t(),
    "inverse": lambda x: torch.linalg.pinv((last_row(x) + 1).expand(x.shape)),
    "sorted": lambda x: (last_row(x) + 1).expand(x.shape).sort(1)[0],
    "halved": lambda x: torch.nn.functional.glu(torch.masked_select(x, last_row(x) > 0), 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_that_are_one_are_expanded(name):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=True)
    for rows, columns in [(2, 11), (3, 8), (2, 5)]:
        x = torch.linspace(-1, 1.5, rows * columns).view(rows, columns).flip(0)
        torch.testing.assert_close(compiled(x), program(x))


def test_a_size_that_equals_a_number_of_elements_found_is_explained():
    """The note of what fixed a size named only sizes of inputs."""

    def function(x, mask, y):
        joined = torch.column_stack([torch.masked_select(x, mask > 0), y])
        return joined.tensor_split(2, 0)[1].new_ones(joined.shape)

    mask = torch.tensor([1.0, 1, -1, -1, -1, 1, -1])
    x, y = torch.randn(7), torch.randn(3)
    assert torch.equal(lampwork.compile(function, dynamic=True)(x, mask, y), function(x, mask, y))
