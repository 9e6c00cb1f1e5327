"""What eager's autograd saves of operators that write to views: it hides the node of such an operator in another one
(`CopySlices`), which tells nothing.

    y = x.view(-1); y.exp_()        y is saved, after the write
    y = x.view(-1); y.mul_(w)       w is

Each such write is noted with the number that the other node gets. To know what was saved, the operator is called anew,
on tensors without memory of which none is a view: what its node saves there stands for what it was called with.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.autograd.refused import refused
from lampwork.fakes.fake import Fake
from lampwork.fakes.symbolic import by_contents, hint_of
from lampwork.ir.record import record

_REMEDY = "Call detach() on its operands, or run inference under torch.no_grad()."


@record
class _Argument:
    """A tensor as it was when the operator was called; autograd and operators of metadata change tensors."""

    fake: Fake
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    requires_grad: bool


class ViewWrites:
    """The writes to views in one recording."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[Any, Any, Any]] = {}

    def note(self, op: Any, args: tuple, kwargs: dict) -> None:
        """Told of each operator that writes, below autograd: a node that is made for it is hidden in the next one."""
        if torch.is_grad_enabled() and args and type(args[0]) is Fake and args[0]._is_view():
            self._noted[_torch.next_sequence_number()] = op, _kept(args), _kept(kwargs)

    def saved(self, node: Any) -> list[tuple[str, Fake]] | None:
        """Of a node that hides another: the tensors that this one saves, each with the attribute that holds it, but for
        copies, which nobody sees. None where that is not known. Raises `Unsupported` where it has no derivative."""
        noted = self._noted.get(_torch.sequence_number(node))
        if noted is None or noted[0].namespace != "aten":
            return None
        op, args, kwargs = noted
        made: dict[int, tuple[torch.Tensor, Fake]] = {}
        try:
            with torch.enable_grad(), _torch.without_saved_tensor_hooks():
                written = _stand_in(args[0]).clone()  # a leaf may not be written
                made[id(args[0].fake)] = written, args[0].fake
                op(*_with_stand_ins(args, made), **_with_stand_ins(kwargs, made))
                hidden = written.grad_fn
        except Exception:  # of a size that nobody knows, or without a kernel for tensors that have no memory
            return None
        if hidden is None:
            return None
        refuse_without_derivative(hidden)
        fakes = {_torch.storage_key(each): fake for each, fake in made.values()}
        found = [(name, fakes.get(_torch.storage_key(each))) for name, each in _torch.tensors_saved_by(hidden)]
        return [(name, fake) for name, fake in found if fake is not None]


def refuse_without_derivative(node: Any) -> None:
    """Refuses a node of an operator that has no derivative: eager's engine raises when it comes there, also where that
    leads to no input."""
    if type(node).__name__ == "NotImplemented":
        raise refused("an operator on the way to it has no derivative", _REMEDY)


def _kept(value: Any) -> Any:
    """Arguments, with tensors as they are now."""
    if type(value) is Fake:
        return _Argument(value, tuple(value.size()), tuple(value.stride()), value.dtype, value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_kept, value))
    return {name: _kept(each) for name, each in value.items()} if isinstance(value, dict) else value


def _stand_in(argument: _Argument) -> torch.Tensor:
    size, stride = map(_numbers, (argument.size, argument.stride))
    made = torch.empty_strided(size, stride, dtype=argument.dtype, device="meta")
    return made.requires_grad_(argument.requires_grad)


def _with_stand_ins(value: Any, made: dict[int, tuple[torch.Tensor, Fake]]) -> Any:
    if type(value) is _Argument:
        if id(value.fake) not in made:
            made[id(value.fake)] = _stand_in(value), value.fake
        return made[id(value.fake)][0]
    if isinstance(value, (list, tuple)):
        return type(value)([_with_stand_ins(each, made) for each in value])
    if isinstance(value, dict):
        return {name: _with_stand_ins(each, made) for name, each in value.items()}
    return _numbers((value,))[0] if isinstance(value, torch.SymInt) else value


def _numbers(sizes: tuple[Any, ...]) -> list[int]:
    """Sizes as they are in the call that is captured. Raises ValueError where contents decide."""
    if any(map(by_contents, sizes)):
        raise ValueError
    return [hint_of(each) for each in sizes]
