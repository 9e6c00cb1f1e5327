"""`torch.SymFloat` over numbers that capture does not know: how they pass through PyTorch's own code to the recorder.

    x.add_(y, alpha=number)     ->  the recorder is called with a `torch.SymFloat`, whose node has the number

Where native code needs the number itself (`guard_float`), the number decides: it is taken as it is now and guarded, or
the graph breaks.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from lampwork.fakes.nodes import FloatNode, TruthNode, _Node


class NumberNode(_Node):
    """A floating-point number; `number` knows what it is."""

    __slots__ = ("number",)

    def __init__(self, number: Any) -> None:
        self.number = number

    def __str__(self) -> str:
        return "number"

    def is_float(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def wrap_float(self, value: float) -> NumberNode:
        return NumberNode(value)

    def wrap_int(self, value: int) -> NumberNode:
        return NumberNode(float(value))

    def guard_float(self, file: str, line: int) -> float:
        return float(self.number)

    def neg(self) -> NumberNode:
        return NumberNode(-self.number)

    def add(self, other: NumberNode) -> NumberNode:
        return NumberNode(self.number + other.number)

    def sub(self, other: NumberNode) -> NumberNode:
        return NumberNode(self.number - other.number)

    def mul(self, other: NumberNode) -> NumberNode:
        return NumberNode(self.number * other.number)

    def truediv(self, other: NumberNode) -> NumberNode:
        try:
            return NumberNode(self.number / other.number)
        except ZeroDivisionError:  # native code gets infinity, or no number
            return NumberNode(FloatNode(float(self.number)).truediv(FloatNode(float(other.number))).value)

    float_truediv = truediv

    def _is(self, op: Any, other: NumberNode) -> TruthNode:
        return TruthNode(None, (), bool(op(self.number, other.number)))

    def eq(self, other: NumberNode) -> TruthNode:
        return self._is(operator.eq, other)

    def ne(self, other: NumberNode) -> TruthNode:
        return self._is(operator.ne, other)

    def lt(self, other: NumberNode) -> TruthNode:
        return self._is(operator.lt, other)

    def le(self, other: NumberNode) -> TruthNode:
        return self._is(operator.le, other)

    def gt(self, other: NumberNode) -> TruthNode:
        return self._is(operator.gt, other)

    def ge(self, other: NumberNode) -> TruthNode:
        return self._is(operator.ge, other)


#: Exponents with which eager takes roots: of -0 and of -inf these are not what powers are. 1.5 is one in a derivative.
_ROOTS, _ROOTS_OF_GRADIENTS = (0.5, -0.5), (0.5, -0.5, 1.5)


def root_of(exponent: object, base: torch.Tensor) -> float | None:
    """The exponent of `base` where it varies and is one with which eager takes a root, None for others. That it is, or
    is none, is noted for other calls."""
    if type(exponent) is not torch.SymFloat:
        return None
    return next((each for each in (_ROOTS_OF_GRADIENTS if base.requires_grad else _ROOTS) if exponent == each), None)


def symbolic_float(number: object) -> torch.SymFloat:
    return torch.SymFloat(NumberNode(number))


def number_behind(value: object) -> Any:
    """The number that a `torch.SymFloat` stands for; other values themselves."""
    return value.node.number if type(value) is torch.SymFloat and type(value.node) is NumberNode else value


def mentions_numbers(value: Any) -> bool:
    """Whether such a number is in the arguments of an operator."""
    kind = type(value)
    if kind is torch.SymFloat:
        return type(value.node) is NumberNode
    if kind is tuple or kind is list:
        return any(map(mentions_numbers, value))
    return kind is dict and any(map(mentions_numbers, value.values()))


def with_known_floats(value: Any) -> Any:
    """The arguments of an operator, with a Python number for each float that a size was made to (`nodes.FloatNode`)."""
    kind = type(value)
    if kind is torch.SymFloat:
        return value.node.value if type(value.node) is FloatNode else value
    if kind is tuple or kind is list:
        made = [with_known_floats(each) for each in value]
        return value if all(map(operator.is_, made, value)) else kind(made)
    if kind is dict and value:
        return {name: with_known_floats(each) for name, each in value.items()}
    return value
