"""Operators that are given a number out of a tensor: `x.clamp(max=x.mean().item())`.

The number is handed on as the tensor that it is in the graph, to those operators whose results are the same with it.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.record.fake import DataDependent, Fake
from lampwork.capture.values.scalar import is_unbacked
from lampwork.capture.values.unbacked_numbers import (
    beside,
    compute_in_place,
    compute_with_tensor,
    tensor_of,
)

_DTYPES: dict[type | None, Any] = {int: torch.int64, bool: torch.bool}


def call_with_numbers(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `function` gives. Raises `DataDependent` where it is in no table, or looks at the number."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if type(owner) is Fake:
        args = (owner, *args)
    answer = _ANSWERS.get(name)
    if answer is None:
        raise _refused(name)
    try:
        return answer(*args, **kwargs)
    except TypeError:  # options that are not in the signatures below
        raise _refused(name) from None


def takes_numbers(function: Any) -> bool:
    """Whether `call_with_numbers` knows the function; integers given to others are sizes."""
    return getattr(function, "__name__", "") in _ANSWERS


def has_number(args: tuple, kwargs: dict[str, Any]) -> bool:
    return any(is_unbacked(each) for each in (*args, *kwargs.values()))


def _refused(name: str) -> DataDependent:
    return DataDependent(f"{name} with a number taken out of a tensor")


def _bound(x: Fake, value: Any) -> Any:
    """A number beside `x`, known or not, as a tensor; None stays."""
    if value is None or is_unbacked(value):
        return value if value is None else beside(value, x)
    if type(value) not in (int, float) or (type(value) is float and not x.is_floating_point()):
        raise _refused("an operator")
    return torch.tensor(value, dtype=x.dtype).to(x.device)


def _clamp(x: Any, min: Any = None, max: Any = None, misses: bool | None = None) -> Any:
    """Of equal ones `x` stays, where kernels for two tensors give the limit: -0 and 0 are. `misses`: one limit that is
    NaN is none."""
    low, high = _bound(x, min), _bound(x, max)
    if x.is_cuda or not x.is_floating_point():
        return torch.clamp(x, min=low, max=high)
    if misses is None:
        misses = not _torch.clamp_takes_missing_limits()
    for limit, is_within in ((low, torch.ge), (high, torch.le)):
        if limit is not None:
            stays = x.isnan() | limit.isnan() if misses and (low is None or high is None) else x.isnan()
            x = torch.where(is_within(x, limit), x, torch.where(stays, x.detach(), limit.to(x.dtype)))
    return x


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return torch.masked_fill(x, mask, beside(value, x))


def _masked_fill_in_place(x: Any, mask: Any, value: Any) -> Any:
    return x.masked_fill_(mask, beside(value, x))


def _fill(x: Any, value: Any) -> Any:
    return x.fill_(beside(value, x))


def _where(condition: Any, x: Any, y: Any) -> Any:
    tensor = x if type(x) is Fake else y
    if type(tensor) is not Fake:
        raise _refused("where")
    return torch.where(condition, *[each if type(each) is Fake else _bound(tensor, each) for each in (x, y)])


def _tensor(number: Any, dtype: Any = None, device: Any = None) -> Any:
    if type(number) in (list, tuple):
        made = _tensor_of_list(number, dtype)
    else:
        made = tensor_of(number).to(dtype or _DTYPES.get(number.kind) or torch.get_default_dtype(), copy=True)
    return made if device is None else made.to(device)


def _tensor_of_list(elements: Any, dtype: Any) -> Any:
    """`torch.tensor` of numbers and of tensors of one number in lists, of which some are not known.

    A tensor gives its number, and its type where the types of all decide.
    """
    leaves, shape = _leaves(elements)
    tensors = [each for each in leaves if type(each) is Fake]
    if any(each.device.type != "cpu" or (dtype is not None and not dtype.is_floating_point) for each in tensors):
        raise _refused("tensor")  # an integer of a tensor of floats is an error
    kinds = {*map(_kind_of, leaves)}
    if not kinds <= {int, float, bool}:
        raise _refused("tensor")
    wide = torch.float64 if float in kinds else torch.int64 if int in kinds else torch.bool
    with torch.no_grad():
        parts = [_tensor_of_element(each, wide) for each in leaves]
        return torch.stack(parts).to(dtype or reduce(torch.promote_types, map(_type_of, leaves))).reshape(shape)


def _kind_of(element: Any) -> type | None:
    """The class of number that an element is, or has in it; None for complex numbers and what is no number."""
    if type(element) is not Fake:
        return element.kind if is_unbacked(element) else type(element)
    if element.is_complex() or element.dtype is torch.uint64:
        return None
    return float if element.is_floating_point() else bool if element.dtype is torch.bool else int


def _tensor_of_element(element: Any, dtype: torch.dtype) -> Any:
    if type(element) is Fake:
        return element.detach().to(dtype)
    return tensor_of(element).to(dtype) if is_unbacked(element) else torch.tensor(element, dtype=dtype)


def _type_of(element: Any) -> torch.dtype:
    """The type that `torch.tensor` sees in an element of a list."""
    if type(element) is Fake:
        return element.dtype
    return _DTYPES.get(_kind_of(element)) or torch.get_default_dtype()


def _leaves(elements: Any) -> tuple[list[Any], tuple[int, ...]]:
    """What is in nested lists of equal lengths, in order, and the shape."""
    if type(elements) not in (list, tuple):
        if type(elements) is Fake and elements.dim():
            raise _refused("tensor")  # eager takes one of one element, and no other
        return [elements], ()
    parts = [_leaves(each) for each in elements]
    if not parts or any(shape != parts[0][1] for _, shape in parts):
        raise _refused("tensor")
    return [leaf for leaves, _ in parts for leaf in leaves], (len(parts), *parts[0][1])


def holds_number(value: Any) -> bool:
    """Whether the value is a number that is not known, or a nested list with such a number or a tensor in it."""
    if type(value) in (list, tuple):
        return any(type(each) is Fake or holds_number(each) for each in value)
    return is_unbacked(value)


def _full(size: Any, number: Any, dtype: Any = None) -> Any:
    if not is_unbacked(number):
        raise _refused("full")
    made = torch.empty(size, dtype=dtype or _DTYPES.get(number.kind) or torch.get_default_dtype())
    return made.copy_(tensor_of(number))


def _full_like(x: Any, number: Any) -> Any:
    return torch.empty_like(x).copy_(beside(number, x))


def _arithmetic(plain: Any) -> Any:
    return lambda x, y: compute_with_tensor(plain, x, y)


def _in_place(plain: Any) -> Any:
    return lambda x, y: compute_in_place(plain, x, y)


_ANSWERS: dict[str, Any] = {
    "clamp": _clamp, "clip": _clamp, "clamp_min": lambda x, min: _clamp(x, min=min, misses=False),
    "clamp_max": lambda x, max: _clamp(x, max=max, misses=False), "masked_fill": _masked_fill,
    "masked_fill_": _masked_fill_in_place, "fill_": _fill, "where": _where, "tensor": _tensor, "as_tensor": _tensor,
    "full": _full, "full_like": _full_like, "add": _arithmetic(torch.add), "sub": _arithmetic(torch.sub),
    "mul": _arithmetic(torch.mul), "add_": _in_place(torch.Tensor.add_), "sub_": _in_place(torch.Tensor.sub_),
    "mul_": _in_place(torch.Tensor.mul_), "div_": _in_place(torch.Tensor.div_),
}  # fmt: skip
