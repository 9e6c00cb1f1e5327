"""Marks on tensors: which of their sizes vary. Capture reads them with `_torch.size_marks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork.errors import OptionError


def mark(tensor: torch.Tensor, dim: int | Sequence[int], least: int | None, largest: int | None) -> None:
    """See `lampwork.mark_dynamic`."""
    marks = dict(getattr(tensor, "_lampwork_dynamic", None) or {})
    for axis in _dimensions(tensor, dim):
        size = tensor.size(axis)
        if not all(each is None or type(each) is int for each in (least, largest)):
            raise OptionError(f"min and max are integers or None, not {least!r} and {largest!r}")
        if (least is not None and size < least) or (largest is not None and size > largest):
            raise OptionError(f"dimension {axis} has size {size}, which is not between min={least} and max={largest}")
        marks[axis] = (least, largest)
    _note(tensor, marks)


def unmark(tensor: torch.Tensor, dim: int | Sequence[int] | None) -> None:
    """See `lampwork.mark_static`."""
    axes = _dimensions(tensor, dim)
    marks = dict(getattr(tensor, "_lampwork_dynamic", None) or {})
    for axis in axes:
        marks.pop(axis, None)
    _note(tensor, marks, {*(getattr(tensor, "_lampwork_static", None) or ()), *axes})


def _note(tensor: Any, dynamic: dict[int, tuple[int | None, int | None]], static: set[int] | None = None) -> None:
    tensor._lampwork_dynamic = dynamic
    if static is not None:
        tensor._lampwork_static = static


def _dimensions(tensor: torch.Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """Non-negative dimensions, all for None. Raises `OptionError` for ones that the tensor does not have."""
    if not isinstance(tensor, torch.Tensor):
        raise OptionError(f"sizes are marked on a tensor, not on a {type(tensor).__name__}")
    axes = [dim] if isinstance(dim, int) else list(range(tensor.dim()) if dim is None else dim)
    for axis in axes:
        if not isinstance(axis, int):
            raise OptionError(f"a dimension is an integer, or a list of them, not {dim!r}")
        if not -tensor.dim() <= axis < tensor.dim():
            raise OptionError(f"the tensor has {tensor.dim()} dimensions, and no dimension {axis}")
    return [axis % tensor.dim() for axis in axes]
