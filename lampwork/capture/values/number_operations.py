"""Operations on numbers from outside (`numbers.py`).

    1 - lr * 0.01      computed by the host: another number
    x * lr             the operator is recorded with a tensor of one element
    lr > 0             decided by the number seen, guarded
    f"{lr}"            the number seen, guarded

Symbolic sizes that meet floats, and sizes that contents decide, become such numbers here.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.keyed_calls import settle_keys, takes_symbols
from lampwork.capture.values.numbers import NUMERIC, BackedNumber, BackedNumbers
from lampwork.capture.values.unbacked_numbers import UnbackedNumber
from lampwork.capture.values.unknown_text import formatted, unknown_text
from lampwork.fakes.numbers import root_of, symbolic_float
from lampwork.fakes.overflow import refuse_exponent
from lampwork.fakes.shapes import contiguous, has_zero
from lampwork.fakes.symbolic import by_contents
from lampwork.ir.number_operations import ARITHMETIC, FUNCTIONS, OPERATIONS

#: Functions that make floating-point numbers of integers.
_FLOAT_FUNCTIONS = frozenset({each.function for each in OPERATIONS.values() if each.kind("int") == "float"}) & FUNCTIONS


class BackedNumberFamily(StandInFamily):
    """Numbers from outside. Asked before numbers out of tensors."""

    stand_ins = frozenset({BackedNumber})

    def kind(self, value: Any) -> type:
        return float

    def text(self, value: Any, function: Any) -> Any:
        return unknown_text(function, value)

    def format(self, value: Any, spec: Any) -> Any:
        return formatted(value, spec, 1.0)

    # -- operators

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        if op in ARITHMETIC and is_number(left) and is_number(right):
            return self.world.backed_numbers.compute(op, left, right)
        if type(left) is Fake or type(right) is Fake:
            if op is operator.pow:
                return self._power(left, right)
            return op(self.symbolic(left), self.symbolic(right))
        return self.world.binary_op(op, *self._operands(left, right, op is operator.truediv))

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        plain = IN_PLACE[op]
        if type(left) is Fake:
            return op(left, self._exponent(left, right) if plain is operator.pow else self.symbolic(right))
        if type(right) is Fake or (plain in ARITHMETIC and is_number(left) and is_number(right)):
            return self.binary(plain, left, right)
        return self.world.inplace_op(op, *self._operands(left, right, plain is operator.truediv))

    def _power(self, left: Any, right: Any) -> Any:
        """`left ** right`, one of which is a tensor. PyTorch takes numbers or tensors as exponents and bases."""
        beside = left if type(left) is Fake else right
        if beside is left:
            exponent = self._exponent(left, right)
            if type(exponent) is float:
                return left**exponent
        elif has_zero(beside.size()):
            return 1.0**beside
        made = self._as_tensor(left, right) ** self._as_tensor(right, left)
        is_dense = beside is right or beside.is_contiguous()
        if is_dense and made.stride() != contiguous(made.size()):
            # Powers of a number are contiguous; and dimensions that are one long lie otherwise beside a
            # number than beside a tensor.
            made = made.clone(memory_format=torch.contiguous_format)
        # The number has a type of its own beside a tensor without dimensions; eager's has none.
        return made.to(beside.dtype) if beside.is_floating_point() else made

    def _exponent(self, tensor: Any, number: Any) -> Any:
        """The exponent of a tensor, as a symbol; as a float where eager takes a root, and where nothing is computed."""
        if has_zero(tensor.size()):
            return 1.0
        exponent = self.symbolic(number)
        if tensor.is_floating_point():
            refuse_exponent(exponent, tensor.dtype)
        root = root_of(exponent, tensor)
        return exponent if root is None else root

    def _as_tensor(self, value: Any, other: Any) -> Any:
        if type(value) is not BackedNumber:
            return value
        floating = other.is_floating_point()
        return self.world.backed_numbers.tensor(value, other.device) if floating else value.take()

    def _operands(self, left: Any, right: Any, divides: bool = False) -> tuple[Any, Any]:
        """Numbers beside numbers out of tensors become part of the graph; beside anything else, what they are now."""
        for one, other in ((left, right), (right, left)):
            if type(one) is BackedNumber and type(other) is not UnbackedNumber:
                return BackedNumbers.taken(left), BackedNumbers.taken(right)
        numbers = self.world.backed_numbers
        nonzero = divides and type(right) is BackedNumber and numbers.compare(operator.ne, right, 0)
        one, other = self.beside_unknown((left, right))
        if nonzero:
            other.nonzero = True
        return one, other

    def beside_unknown(self, values: Any) -> list[Any]:
        """The values, numbers among them as ones that the graph computes with."""
        return [self.world.backed_numbers.unknown(each) if type(each) is BackedNumber else each for each in values]

    def unary(self, op: Any, value: Any) -> Any:
        if op is operator.neg:
            return self.world.backed_numbers.compute(operator.mul, value, -1.0)
        return value if op is operator.pos else op(value.take())

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        if is_number(left) and is_number(right):
            return self.world.backed_numbers.compare(op, left, right)
        if type(left) is Fake or type(right) is Fake:
            return op(self.symbolic(left), self.symbolic(right))
        if type(left) is UnbackedNumber or type(right) is UnbackedNumber:
            return self.world.compare_op(op, *self._operands(left, right))
        return self.world.compare_op(op, BackedNumbers.taken(left), BackedNumbers.taken(right))

    def truth(self, value: Any) -> bool:
        return self.world.backed_numbers.compare(operator.ne, value, 0)

    def load_attr(self, value: Any, name: str) -> Any:
        return float if name == "__class__" else self.world.load_attr(value.take(), name)

    # -- native functions

    def native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, tuple, dict[str, Any]]:
        """What a native function makes of numbers from outside, or HANDS_ON with the arguments that it can take."""
        if function is pow and len(args) == 2 and not kwargs and all(map(is_number, args)):
            return self.world.binary_op(operator.pow, *args), args, kwargs
        if _mention_numbers(args) or (kwargs and _mention_numbers(tuple(kwargs.values()))):
            if not kwargs and function.__hash__ is not None and function in FUNCTIONS:
                values = tuple(args[0]) if function in (min, max) and len(args) == 1 else args
                if all(map(is_number, values)):
                    return self.world.backed_numbers.function(function, values), args, kwargs
            if not takes_symbols(function) and not _looks_for(function):
                return HANDS_ON, *settle_keys(function, args, kwargs, _taken)
        elif not kwargs and any(map(_is_size, args)) and all(map(is_number, args)) and _is_float_function(function):
            return self.world.backed_numbers.function(function, args), args, kwargs
        return HANDS_ON, args, kwargs

    def symbolic(self, value: Any) -> Any:
        """What native functions of tensors are given in place of a number; containers likewise."""
        kind = type(value)
        if kind is BackedNumber or (kind is UnbackedNumber and value.kind is float):
            self.world.recorder.numbers = self.world.backed_numbers
            return symbolic_float(value)
        if kind is list or kind is tuple:
            return kind([self.symbolic(each) for each in self.world.touch(value)])
        return value


def _looks_for(function: Any) -> bool:
    """Whether a method looks for its argument among items, by identity first: a list that holds a NaN has it."""
    return type(getattr(function, "__self__", None)) in (list, tuple) and function.__name__ in _LOOKING


_LOOKING = frozenset({"count", "index", "remove", "__contains__"})


def _is_float_function(function: Any) -> bool:
    """Whether a function makes floating-point numbers of integers."""
    return function.__hash__ is not None and function in _FLOAT_FUNCTIONS


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


def is_number(value: Any) -> bool:
    kind = type(value)
    return kind is BackedNumber or kind in NUMERIC or _is_size(value)


def _is_size(value: Any) -> bool:
    """Whether it is a symbolic integer that the call has: others are known when the graph has run."""
    return type(value) is torch.SymInt and not by_contents(value)


def is_mixed(left: Any, right: Any) -> bool:
    return (_is_size(left) and type(right) is float) or (_is_size(right) and type(left) is float)


def counts_in_float(op: Any, left: Any, right: Any) -> bool:
    """Whether arithmetic of a size that contents decide gives a floating-point number."""
    if op not in ARITHMETIC or not (by_contents(left) or by_contents(right)):
        return False
    return float in (type(left), type(right)) or (op is operator.truediv and Fake not in (type(left), type(right)))


def makes_float(op: Any, left: Any, right: Any) -> bool:
    """Whether arithmetic of a symbolic integer gives a floating-point number."""
    if not _is_size(left) and not _is_size(right):
        return False
    if is_mixed(left, right):
        return True
    return op is operator.truediv and is_number(left) and is_number(right)
