"""Operators that take numbers for tensors (`torch.div(8, 4)`), and what is computed from literals, are known."""

from __future__ import annotations

import pytest
import torch

import lampwork


def test_operators_on_plain_numbers():
    def program(x):
        chunks = torch.div(x.size(0), 4, rounding_mode="trunc") - 1
        return x + chunks, torch.add(2, 3), torch.mul(2.5, x.size(1)), torch.ones(int(chunks) + 1)

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    dynamic = lampwork.compile(program, dynamic=True, options={"cache": False})
    for rows in (8, 12, 16):
        x = torch.ones(rows, 3)
        for function in (compiled, dynamic):
            for expected, found in zip(program(x), function(x)):
                assert torch.equal(expected, found) and expected.dtype == found.dtype


def test_a_literal_that_was_written_is_known_no_more():
    def program(x):
        count = torch.tensor(3) + 1
        known = int(count)
        count += x.long().sum()
        return x + known, count

    compiled = lampwork.compile(program, options={"cache": False})
    for x in (torch.ones(2), torch.zeros(2)):
        for expected, found in zip(program(x), compiled(x)):
            assert torch.equal(expected, found)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("dynamic", [None, True])
def test_divisors_that_are_zero_in_the_type_of_the_quotient(dtype, dynamic):
    """256 is, as int8: eager raises."""
    programs = (
        lambda x, n: x // n,
        lambda x, n: x % n,
        lambda x, n: torch.fmod(x, n),
        lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    )
    for program in programs:
        compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
        for number in (3, 256, 300, 1 << 16, 5, 1 << 32):
            outcomes = []
            for function in (program, compiled):
                try:
                    outcomes.append(function(torch.tensor([5, 7], dtype=dtype), number).tolist())
                except RuntimeError as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1], number
