"""Operators of lists that are given no tensor, and of sizes below zero: they raised another error than eager, or none."""

from __future__ import annotations

import pytest
import torch

import lampwork

CALLS = {
    "stack": lambda x: torch.stack([]),
    "stack of a tuple": lambda x: torch.stack((), 1),
    "cat": lambda x: torch.cat([]),
    "hstack": lambda x: torch.hstack([]),
    "vstack": lambda x: torch.vstack([]),
    "dstack": lambda x: torch.dstack([]),
    "column_stack": lambda x: torch.column_stack([]),
    "block_diag": lambda x: torch.block_diag().shape,
    "meshgrid": lambda x: torch.meshgrid([]),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(),
    "einsum": lambda x: torch.einsum("i->i"),
    "foreach add": lambda x: torch._foreach_add([], 1),
    "foreach mul_": lambda x: torch._foreach_mul_([], 2),
    "foreach norm": lambda x: torch._foreach_norm([]),
    "zeros": lambda x: torch.zeros(-1),
    "zeros of more": lambda x: torch.zeros((2, -1)),
    "ones": lambda x: torch.ones(-1),
    "new_zeros": lambda x: x.new_zeros(-1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("caught", [True, False])
def test_errors(name, caught):
    call = CALLS[name]

    def program(x):
        if not caught:
            return call(x)
        try:
            return call(x)
        except RuntimeError as error:
            return type(error).__name__, str(error)

    def observed(function):
        try:
            return function(torch.ones(2))
        except Exception as error:
            return type(error), str(error)

    compiled = lampwork.compile(program, options={"cache": False})
    assert observed(compiled) == observed(program)
