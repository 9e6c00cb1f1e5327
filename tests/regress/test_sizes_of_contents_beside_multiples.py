"""A size that contents decide was assumed to be twice another, which therefore was a multiple of two: the check named a
size that the program did not have, and nothing said that an odd one is none."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "operands": lambda x, y, n: torch.nonzero(x).reshape(-1) ^ y,
    "expanded": lambda x, y, n: torch.nonzero(x).reshape(-1).expand(y.shape[0]),
    "numbers": lambda x, y, n: torch.nonzero(x).reshape(-1).expand(n),
    "views": lambda x, y, n: torch.nonzero(x).reshape(-1).view(n, -1),
    "thrice": lambda x, y, n: torch.nonzero(x[:, :, None]).reshape(-1) + torch.cat([y, y[:n]]),
    "strided": lambda x, y, n: torch.cat([x[x > 0], x[x > 0]]) * y,
}
CALLS = ((5, 10, 10), (4, 9, 9), (4, 8, 8), (3, 6, 3), (4, 1, 2), (7, 12, 12), (7, 14, 7), (4, 4, 2))


def outcome(function, x, y, n):
    try:
        return function(x, y, n)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_calls_of_several_sizes(program):
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for rows, count, number in CALLS:
        arguments = torch.arange(rows)[:, None] + 1, torch.arange(count), number
        found, expected = outcome(compiled, *arguments), outcome(program, *arguments)
        assert type(found) is type(expected)
        assert found == expected if isinstance(found, str) else torch.equal(found, expected), (rows, count, number)
