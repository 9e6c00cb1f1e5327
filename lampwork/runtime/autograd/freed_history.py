"""Results of a region whose history a `backward()` in it has freed: `loss` after `loss.backward()`.

Eager returns them with that history, which nothing can use any more: so does this.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch

#: What eager's engine says.
SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
    "you need to access saved tensors after calling backward."
)


class Spent(torch.autograd.Function):
    """The history of such a result."""

    @staticmethod
    @_torch.hide_from_peer
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor, write: bool) -> torch.Tensor:
        if write:
            ctx.mark_dirty(tensor)
            return tensor
        with _torch.below_autograd():  # not `tensor` itself: what shares its memory keeps the history that it has
            return torch.ops.aten.alias.default(tensor)

    @staticmethod
    @_torch.hide_from_peer
    def backward(ctx: object, *gradients: object) -> Any:
        raise RuntimeError(SECOND_TIME)


def spent(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as one that requires grad; `backward()` on it raises as eager's does."""
    with torch.enable_grad():
        return Spent.apply(torch.empty(0, requires_grad=True), tensor, False)


def spend(tensor: torch.Tensor) -> None:
    """Gives a tensor of the caller that was written such a history."""
    with torch.enable_grad():
        Spent.apply(torch.empty(0, requires_grad=True), tensor, True)
