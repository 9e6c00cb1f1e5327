"""`NumberOperations`: what a world does with numbers from outside (`numbers.py`), operation by operation.

    1 - lr * 0.01      computed by the host: another number
    x * lr             the operator is recorded with a tensor of one element
    lr > 0             decided by the number seen, guarded
    f"{lr}"            the number seen, guarded

Symbolic sizes that meet floats, and sizes that contents decide, become such numbers here.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from lampwork.capture.base import CaptureWorld
from lampwork.capture.machine import UNBOUND
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.keyed_calls import settle_keys
from lampwork.capture.values.numbers import FUNCTIONS, NUMERIC, OPERATORS, BackedNumber, BackedNumbers
from lampwork.capture.values.unbacked_numbers import UnbackedNumber
from lampwork.fakes.numbers import symbolic_float
from lampwork.fakes.overflow import refuse_exponent
from lampwork.fakes.shapes import contiguous, has_zero
from lampwork.fakes.symbolic import by_contents

_INPLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.ipow: operator.pow,
}  # fmt: skip
#: Those functions that give an integer for an integer, and questions.
_KEEP_INTEGERS = frozenset({
    abs, min, max, int, round, math.floor, math.ceil, math.trunc, math.isnan, math.isinf, math.isfinite, math.isclose,
})  # fmt: skip


def counted(value: Any) -> Any:
    """A number of elements that contents decide, as a number out of a tensor; anything else unchanged."""
    if not by_contents(value):
        return value
    with torch.no_grad():
        return UnbackedNumber(torch.scalar_tensor(value, dtype=torch.int64), int)


#: Exponents with which eager takes roots: of -0 and of -inf these are not what powers are. 1.5 is one in a derivative.
_ROOTS, _ROOTS_OF_GRADIENTS = (0.5, -0.5), (0.5, -0.5, 1.5)


class NumberOperations(CaptureWorld):
    """The part of a world that knows numbers from outside: before the one that knows numbers out of tensors."""

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is BackedNumber or type(right) is BackedNumber:
            if op in OPERATORS and _is_number(left) and _is_number(right):
                return self.backed_numbers.compute(op, left, right)
            if type(left) is Fake or type(right) is Fake:
                if op is operator.pow:  # PyTorch takes exponents and bases as numbers only, or as tensors
                    beside = left if type(left) is Fake else right
                    if has_zero(beside.size()):  # whatever the number is
                        return op(beside, 1.0) if beside is left else op(1.0, beside)
                    if beside is left:
                        exponent = self.symbolic(right)
                        if beside.is_floating_point():
                            refuse_exponent(exponent, beside.dtype)
                        for root in _ROOTS_OF_GRADIENTS if beside.requires_grad else _ROOTS:
                            if type(exponent) is torch.SymFloat and exponent == root:
                                return op(beside, root)
                    made = op(self._as_tensor(left, right), self._as_tensor(right, left))
                    is_dense = beside is right or beside.is_contiguous()
                    if is_dense and made.stride() != contiguous(made.size()):
                        # Powers of a number are contiguous; and dimensions that are one long lie otherwise beside a
                        # number than beside a tensor.
                        made = made.clone(memory_format=torch.contiguous_format)
                    # The number has a type of its own beside a tensor without dimensions; eager's has none.
                    return made.to(beside.dtype) if beside.is_floating_point() else made
                return op(self.symbolic(left), self.symbolic(right))
            return super().binary_op(op, *self._operands(left, right, op is operator.truediv))
        if _counts_in_float(op, left, right):
            return super().binary_op(op, counted(left), counted(right))
        if op in OPERATORS and _makes_float(op, left, right):
            return self.backed_numbers.compute(op, left, right)
        return super().binary_op(op, left, right)

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is BackedNumber or type(right) is BackedNumber:
            plain = _INPLACE.get(op)
            if plain is not None and _is_number(left) and _is_number(right):
                return self.backed_numbers.compute(plain, left, right)
            if type(left) is Fake or type(right) is Fake:
                return op(self.symbolic(left), self.symbolic(right))
            return super().inplace_op(op, *self._operands(left, right, op is operator.itruediv))
        if _counts_in_float(_INPLACE.get(op), left, right):
            return super().inplace_op(op, counted(left), counted(right))
        if op in _INPLACE and _makes_float(_INPLACE[op], left, right):
            return self.backed_numbers.compute(_INPLACE[op], left, right)
        return super().inplace_op(op, left, right)

    def _as_tensor(self, value: Any, other: Any) -> Any:
        if type(value) is not BackedNumber:
            return value
        return self.backed_numbers.tensor(value, other.device) if other.is_floating_point() else value.take()

    def _operands(self, left: Any, right: Any, divides: bool = False) -> tuple[Any, Any]:
        """Numbers beside numbers out of tensors become part of the graph; beside anything else, what they are now."""
        for one, other in ((left, right), (right, left)):
            if type(one) is BackedNumber and type(other) is not UnbackedNumber:
                return BackedNumbers.taken(left), BackedNumbers.taken(right)
        nonzero = divides and type(right) is BackedNumber and self.backed_numbers.compare(operator.ne, right, 0)
        one, other = self.beside_unknown((left, right))
        if nonzero:
            other.nonzero = True
        return one, other

    def beside_unknown(self, values: Any) -> list[Any]:
        """The values, numbers among them as ones that the graph computes with."""
        return [self.backed_numbers.unknown(each) if type(each) is BackedNumber else each for each in values]

    def unary_op(self, op: Any, value: Any) -> Any:
        if type(value) is BackedNumber:
            if op is operator.neg:
                return self.backed_numbers.compute(operator.mul, value, -1.0)
            return value if op is operator.pos else op(value.take())
        return super().unary_op(op, value)

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is BackedNumber or type(right) is BackedNumber:
            if _is_number(left) and _is_number(right):
                return self.backed_numbers.compare(op, left, right)
            if type(left) is Fake or type(right) is Fake:
                return op(self.symbolic(left), self.symbolic(right))
            if type(left) is UnbackedNumber or type(right) is UnbackedNumber:
                left, right = self._operands(left, right)
            else:
                left, right = BackedNumbers.taken(left), BackedNumbers.taken(right)
        elif _is_mixed(left, right):
            return self.backed_numbers.compare(op, left, right)
        return super().compare_op(op, left, right)

    def truth(self, value: Any) -> bool:
        if type(value) is BackedNumber:
            return self.backed_numbers.compare(operator.ne, value, 0)
        known = self.decided(value)
        return super().truth(value) if known is None else known

    def decided(self, value: Any) -> bool | None:
        """What a tensor of one boolean holds, where it compares a counter that the host knows; guarded."""
        return self.backed_numbers.decided(value, self.loader.origin) if type(value) is Fake else None

    def load_attr(self, obj: Any, name: str) -> Any:
        if type(obj) is BackedNumber:
            return float if name == "__class__" else super().load_attr(obj.take(), name)
        return super().load_attr(obj, name)

    def python_special(self, obj: Any, name: str) -> Any:
        """The methods that `BackedNumber` has are for native code: a float's are C's."""
        return UNBOUND if type(obj) is BackedNumber else super().python_special(obj, name)

    def call_native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if function is pow and len(args) == 2 and not kwargs and all(map(_is_number, args)):
            return self.binary_op(operator.pow, *args)
        if _mention_numbers(args) or (kwargs and _mention_numbers(tuple(kwargs.values()))):
            if not kwargs and function.__hash__ is not None and function in FUNCTIONS:
                values = tuple(args[0]) if function in (min, max) and len(args) == 1 else args
                if all(map(_is_number, values)):
                    return self.backed_numbers.function(function, values)
            if not self.takes_symbols(function) and not _looks_for(function):
                args, kwargs = settle_keys(function, args, kwargs, _taken)
        elif not kwargs and any(map(_is_size, args)) and all(map(_is_number, args)) and _is_float_function(function):
            return self.backed_numbers.function(function, args)
        return super().call_native(function, args, kwargs)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        if type(container) is Fake and type(value) is BackedNumber:
            if container.is_floating_point() and container.device.type == "cpu":
                value = self.backed_numbers.made_tensor(value, container.dtype)
            else:
                value = value.take()
        super().set_item(container, key, value)

    def format_value(self, value: Any, conversion: int, spec: Any) -> str:
        return super().format_value(BackedNumbers.taken(value), conversion, spec)

    def symbolic(self, value: Any) -> Any:
        """What native functions of tensors are given in place of a number; containers likewise."""
        kind = type(value)
        if kind is BackedNumber or (kind is UnbackedNumber and value.kind is float):
            self.recorder.numbers = self.backed_numbers
            return symbolic_float(value)
        if kind is list or kind is tuple:
            return kind([self.symbolic(each) for each in self.touch(value)])
        return value


def _looks_for(function: Any) -> bool:
    """Whether a method looks for its argument among items, by identity first: a list that holds a NaN has it."""
    return type(getattr(function, "__self__", None)) in (list, tuple) and function.__name__ in _LOOKING


_LOOKING = frozenset({"count", "index", "remove", "__contains__"})


def _is_float_function(function: Any) -> bool:
    """Whether a function makes floating-point numbers of integers."""
    return function.__hash__ is not None and function in FUNCTIONS and function not in _KEEP_INTEGERS


def _taken(value: Any) -> Any:
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([_taken(each) for each in value]) if _mention_numbers(value) else value
    return BackedNumbers.taken(value) if kind is BackedNumber else value


def _mention_numbers(values: Any) -> bool:
    for each in values:
        kind = type(each)
        if kind is BackedNumber or ((kind is list or kind is tuple) and _mention_numbers(each)):
            return True
    return False


def mention_numbers(values: Any) -> bool:
    """Whether a number that is not known yet is among the values, or in lists and tuples among them."""
    for each in values:
        kind = type(each)
        if kind is BackedNumber or kind is UnbackedNumber:
            return True
        if (kind is list or kind is tuple) and mention_numbers(each):
            return True
    return False


def _is_number(value: Any) -> bool:
    kind = type(value)
    return kind is BackedNumber or kind in NUMERIC or _is_size(value)


def _is_size(value: Any) -> bool:
    """Whether it is a symbolic integer that the call has: others are known when the graph has run."""
    return type(value) is torch.SymInt and not by_contents(value)


def _is_mixed(left: Any, right: Any) -> bool:
    return (_is_size(left) and type(right) is float) or (_is_size(right) and type(left) is float)


def _counts_in_float(op: Any, left: Any, right: Any) -> bool:
    """Whether arithmetic of a size that contents decide gives a floating-point number."""
    if op not in OPERATORS or not (by_contents(left) or by_contents(right)):
        return False
    return float in (type(left), type(right)) or (op is operator.truediv and Fake not in (type(left), type(right)))


def _makes_float(op: Any, left: Any, right: Any) -> bool:
    """Whether arithmetic of a symbolic integer gives a floating-point number."""
    if not _is_size(left) and not _is_size(right):
        return False
    if _is_mixed(left, right):
        return True
    return op is operator.truediv and _is_number(left) and _is_number(right)
