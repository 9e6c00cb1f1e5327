"""Numbers that a program takes out of tensors and only passes on: `losses.append(loss.item())`.

Such a number is known once the graph has run. Until then it can be stored, returned, computed with in floating point,
and meet tensors in arithmetic; it stays in the graph as a tensor of one element. Whatever looks at it (a branch, text,
an index, a function in C) breaks the graph, and finds the number where the program goes on.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.fake import Fake
from lampwork.fakes.fake import DataDependent

#: A list made by `tolist` is one graph result for each element.
_LONGEST_LIST = 64
_EXACT_INTEGER = 1 << 53
_PLAIN = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul,
    operator.truediv: operator.truediv, operator.iadd: operator.add, operator.isub: operator.sub,
    operator.imul: operator.mul, operator.itruediv: operator.truediv,
}  # fmt: skip
_COMPARISONS = frozenset({operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge})


class UnknownNumber:
    """What `tensor.item()` gives. `tensor`: a stand-in of one element, float64, int64 or bool, which nothing writes.

    `kind`: the class that the number has for the program.
    """

    __slots__ = ("tensor", "kind")

    def __init__(self, tensor: Fake, kind: type) -> None:
        self.tensor, self.kind = tensor, kind


def _refuse(self: Any, *args: Any) -> Any:
    raise DataDependent("what is done with a number taken out of a tensor")


for _name in (
    "bool", "int", "float", "index", "complex", "eq", "ne", "lt", "le", "gt", "ge", "hash", "str", "repr", "format",
    "round", "trunc", "floor", "ceil", "abs", "neg", "pos", "invert", "divmod", "rdivmod", "copy", "deepcopy",
    *[f"{prefix}{name}" for prefix in ("", "r", "i") for name in
      ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")],
):  # fmt: skip
    setattr(UnknownNumber, f"__{_name}__", _refuse)


def item(recorder: Any, tensor: Any) -> Any:
    """`tensor.item()`: the number where the program made the tensor of one, else an `UnknownNumber`.

    Raises `DataDependent` for complex numbers and for tensors inside a function transform.
    """
    if type(tensor) is not Fake:
        raise DataDependent("Tensor.item")
    if tensor.constant is not None and _torch.storage_key(tensor) not in recorder.written:
        with recorder._paused():
            return tensor.constant.item()
    kind: type
    if tensor.is_floating_point():
        dtype, kind = torch.float64, float
    elif tensor.dtype is torch.bool:
        dtype, kind = torch.bool, bool
    elif tensor.is_complex() or tensor.dtype is torch.uint64:
        raise DataDependent("Tensor.item")
    else:
        dtype, kind = torch.int64, int
    with torch.no_grad():
        return UnknownNumber(tensor.detach().reshape(()).to(dtype, copy=True), kind)


def items(recorder: Any, tensor: Any) -> Any:
    """`tensor.tolist()`."""
    if type(tensor) is not Fake or not all(type(size) is int for size in tensor.shape):
        raise DataDependent("Tensor.tolist")
    if tensor.constant is not None and _torch.storage_key(tensor) not in recorder.written:
        with recorder._paused():
            return tensor.constant.tolist()
    if tensor.numel() > _LONGEST_LIST:
        raise DataDependent("Tensor.tolist")
    return [items(recorder, each) for each in tensor.detach().unbind(0)] if tensor.dim() else item(recorder, tensor)


class UnknownNumbers:
    """Operations on such numbers."""

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is UnknownNumber or type(right) is UnknownNumber:
            return _compute(op, left, right)
        return super().binary_op(op, left, right)  # type: ignore[misc]

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is UnknownNumber:
            return _compute(op, left, right)
        if type(right) is UnknownNumber:
            if type(left) is Fake and op in _PLAIN:
                return op(left, _beside(right, left))
            return _compute(op, left, right)
        return super().inplace_op(op, left, right)  # type: ignore[misc]

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is UnknownNumber or type(right) is UnknownNumber:
            if type(left) is Fake:
                return op(left, _beside(right, left))
            if type(right) is Fake:
                return op(_beside(left, right), right)
            raise DataDependent("the comparison of a number taken out of a tensor")
        return super().compare_op(op, left, right)  # type: ignore[misc]

    def truth(self, value: Any) -> bool:
        if type(value) is UnknownNumber:
            raise DataDependent("a branch on a number taken out of a tensor")
        return super().truth(value)  # type: ignore[misc]

    def load_attr(self, obj: Any, name: str) -> Any:
        if type(obj) is UnknownNumber:
            if name == "__class__":
                return obj.kind
            raise DataDependent(f"the attribute {name} of a number taken out of a tensor")
        return super().load_attr(obj, name)  # type: ignore[misc]


def _compute(op: Any, left: Any, right: Any) -> Any:
    plain = _PLAIN.get(op)
    if plain is None:
        raise DataDependent("what is done with a number taken out of a tensor")
    if type(left) is Fake:
        return plain(left, _beside(right, left))
    if type(right) is Fake:
        if plain is operator.truediv:  # as Tensor.__rtruediv__ computes it
            return right.reciprocal() * _beside(left, right)
        return plain(_beside(left, right), right)
    divides_by_unknown = plain is operator.truediv and (type(right) is UnknownNumber or right == 0)
    if divides_by_unknown or not (_is_float(left) or _is_float(right) or plain is operator.truediv):
        # Python's integers have no bounds, and a divisor that is zero raises.
        raise DataDependent("what is done with a number taken out of a tensor")
    with torch.no_grad():
        result = plain(_as_float(left), _as_float(right))
        if not isinstance(result, Fake):
            raise DataDependent("what is done with a number taken out of a tensor")
        return UnknownNumber(result, float)


def _is_float(value: Any) -> bool:
    return type(value) is float or (type(value) is UnknownNumber and value.kind is float)


def _as_float(value: Any) -> Any:
    if type(value) is UnknownNumber:
        return value.tensor.to(torch.float64)
    if type(value) is float or (type(value) in (int, bool) and abs(value) < _EXACT_INTEGER):
        return float(value)
    raise DataDependent("what is done with a number taken out of a tensor")


def _beside(number: Any, tensor: Any) -> Any:
    """The number as what it becomes next to `tensor` in an operator: a tensor of one element of the same type.

    Half types compute with the number in single precision, and integers become floating-point next to a float: those
    break.
    """
    exact = tensor.dtype in (torch.float32, torch.float64) or (tensor.dtype is torch.int64 and number.kind is int)
    if number.kind is bool or not exact:
        raise DataDependent("what is done with a number taken out of a tensor")
    with torch.no_grad():
        return number.tensor.to(tensor.dtype)
