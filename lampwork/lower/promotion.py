"""ATen's type promotion (`torch.result_type`) over the values of lowering."""

from __future__ import annotations

import torch

from lampwork.ir.dtype import FLOATING
from lampwork.lower.values import TensorMeta, TensorValue

_promoted: dict[tuple[str, str], str] = {}


def promote(left: str, right: str) -> str:
    """`torch.promote_types` on names; "" stands for nothing."""
    if left == right or not right:
        return left
    if not left:
        return right
    found = _promoted.get((left, right))
    if found is None:
        both = torch.promote_types(getattr(torch, left), getattr(torch, right))
        found = _promoted[left, right] = str(both).removeprefix("torch.")
    return found


def _number_dtype(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return str(torch.get_default_dtype()).removeprefix("torch.")
    return "int64"


def _combine(higher: str, lower: str) -> str:
    """A type of higher priority with one of lower: the lower only raises the kind (bool, integer, float)."""
    if higher in FLOATING:
        return higher
    if not higher or higher == "bool" or lower in FLOATING:
        return promote(higher, lower)
    return higher


def result_type(*values: object) -> str:
    """The common type of tensors with dimensions, then tensors without, then numbers (ATen's TypeProperties.cpp)."""
    dimensioned = scalar = number = ""
    for value in values:
        if isinstance(value, (TensorValue, TensorMeta)):
            if value.shape:
                dimensioned = promote(dimensioned, value.dtype)
            else:
                scalar = promote(scalar, value.dtype)
        elif value is not None:
            number = promote(number, _number_dtype(value))
    return _combine(_combine(dimensioned, scalar), number)
