"""ATen's type promotion (`torch.result_type`) over fakes and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lampwork.fakes.fake import Unknown

COMPLEX_OF = {torch.float16: torch.complex32, torch.bfloat16: torch.complex64, torch.float32: torch.complex64,
               torch.float64: torch.complex128}  # fmt: skip
_REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    return _REAL_OF.get(dtype, dtype)


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype == torch.bool else 1


def scalar_dtype(value: object) -> torch.dtype:
    kind = type(value)
    if kind is bool:
        return torch.bool
    if kind is int or kind is torch.SymInt:
        return torch.int64
    if kind is float:
        return torch.get_default_dtype()
    if kind is complex:
        return COMPLEX_OF[torch.get_default_dtype()]
    raise Unknown


def promoted(operands: Sequence[object]) -> torch.dtype:
    """`torch.result_type` of tensors and Python numbers.

    Tensors with dimensions win over 0-d ones, those over numbers.
    """
    tensor_type: torch.dtype | None = None
    zero_type: torch.dtype | None = None
    number_type: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, torch.Tensor):
            dtype = operand.dtype
            if operand.dim():
                tensor_type = (
                    dtype if tensor_type is None or tensor_type == dtype else torch.promote_types(tensor_type, dtype)
                )
            else:
                zero_type = dtype if zero_type is None or zero_type == dtype else torch.promote_types(zero_type, dtype)
        else:
            dtype = scalar_dtype(operand)
            number_type = dtype if number_type is None else torch.promote_types(number_type, dtype)
    found = _combine(_combine(tensor_type, zero_type), number_type)
    assert found is not None, "no operands"
    return found


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None:
        return lower
    if lower is None or higher == lower:
        return higher
    if _category(lower) > _category(higher):
        if lower.is_complex and higher.is_floating_point:
            return COMPLEX_OF[higher]
        return torch.promote_types(higher, lower)
    return higher


def as_float(dtype: torch.dtype) -> torch.dtype:
    """Integers and bool become the default dtype."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
