"""A region entered without grad mode returned a view of a tensor that requires grad, with `requires_grad` set."""

from __future__ import annotations

import sys

import torch

import lampwork


def test_detached_behind_a_break_in_no_grad() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        loss = (x * weight).sum()
        with torch.no_grad():
            sys.getsizeof(x)  # a break: the frame goes on without grad mode
        return loss.detach()

    x, weight = torch.randn(4), torch.randn(4, requires_grad=True)
    result = lampwork.compile(program)(x, weight)
    torch.testing.assert_close(result, program(x, weight))
    assert not result.requires_grad and result.grad_fn is None
