"""Operators that take numbers for tensors (`torch.div(8, 4)`), and what is computed from literals, are known."""

from __future__ import annotations

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
