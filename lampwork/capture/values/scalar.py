"""`Scalar`: the stand-in for a number that is another one on the next call.

    group["lr"] * 0.01          value 1e-5: (f0 * 0.01), of numbers that the call has (`numbers.py`)
    loss.item()                 value None: an `Element`, which is there when the graph has run (`unbacked_numbers.py`)
    math.sqrt(loss.item())      value None: math.sqrt of that
    random.random()             value None: an `Element` that the host gives before the graph runs (`host_results.py`)

Integers that the call has, and those that size tensors, are symbols of PyTorch's instead (`sizes.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.values.walk import holds
from lampwork.fakes.fake import DataDependent
from lampwork.ir.number import Apply, Compare, NumberExpr, constant, equals
from lampwork.ir.number_operations import ARITHMETIC, OPERATIONS, RELATION_OF, RELATIONS
from lampwork.ir.record import record

if TYPE_CHECKING:
    from lampwork.capture.values.numbers import BackedNumbers

NUMERIC = frozenset({int, float, bool})
WHAT_IS_DONE = "what is done with a number taken out of a tensor"


@record
class Late:
    """`function(*args)`, called when the graph has run."""

    function: Any
    args: tuple


class Element(NumberExpr):
    """A number that no call has before its entry runs. In no guard and in no stored entry.

    `given`: a tensor of one element, float64, int64 or bool, which nothing writes; a result of the host's
    (`HostResult`); a symbol; or a `Late` call. `of`: its class; None where it may be a tensor as well.
    """

    def __init__(self, given: Any, of: type | None) -> None:
        self.given, self.of = given, of

    @property
    def kind(self) -> str | None:
        return None if self.of is None else self.of.__name__


def given(number: NumberExpr) -> Any:
    """What gives an expression that no call has before its entry runs, beside its parts: as `Element.given`."""
    return number.given if type(number) is Element else number.__dict__.get("_given")


def has_element(number: NumberExpr) -> bool:
    """Whether a number that no call has before its entry runs is among those that it is made of."""
    found = number.__dict__.get("_has_element")
    if found is None:
        found = number.__dict__["_has_element"] = type(number) is Element or any(map(has_element, number.parts))
    return found


def give(number: NumberExpr, by: Any) -> Any:
    """Notes what gives an expression over elements: no other capture meets it."""
    number.__dict__["_given"] = by
    return by


def function_of(number: NumberExpr) -> Any:
    """The function of Python that makes the number of its parts; None where it has none."""
    if isinstance(number, Apply):
        return OPERATIONS[number.operation].function
    return RELATIONS[number.relation] if isinstance(number, Compare) else None


class Scalar:
    """A number whose class the program knows, and of which no more is known than its expression.

    `value`: what it is in this call, for an expression of numbers that the call has; None for one with an `Element`.
    `kind`: the class that it has for the program; asking for it breaks the graph where the value may be a tensor as
    well (`is_either`). `nonzero`: it is not zero, whatever it is. `nonnegative`: it is not below zero. `narrow`: it
    came out of float32 or less, so powers of it do not overflow. `numbers`: those of the capture, where it has a value.
    """

    __slots__ = ("expression", "_kind", "value", "numbers", "nonzero", "nonnegative", "narrow")

    def __init__(
        self, expression: NumberExpr, kind: type | None, value: Any = None, numbers: BackedNumbers | None = None,
        nonzero: bool = False, nonnegative: bool = False,
    ) -> None:  # fmt: skip
        self.expression, self._kind, self.value, self.numbers = expression, kind, value, numbers
        self.nonzero, self.nonnegative, self.narrow = nonzero, nonnegative, False

    @property
    def kind(self) -> type:
        if self._kind is None:
            raise DataDependent("what is done with a number that may be a tensor")
        return self._kind

    @property
    def is_either(self) -> bool:
        """`max(1, count)` of a number and a tensor is the one or the other: good for arithmetic with tensors only."""
        return self._kind is None

    @property
    def reads_tensors(self) -> bool:
        """Whether what it is follows from the contents of tensors."""
        return self.value is None or any(each.read == "item" for each in self.expression.leaves)

    def take(self) -> Any:
        """The number, guarded. Raises `DataDependent` for one that no call has."""
        if self.numbers is None:
            raise DataDependent(WHAT_IS_DONE)
        self.numbers.relation(equals(self.expression, self.value))
        return self.value


def element(by: Any, kind: type | None, nonzero: bool = False, nonnegative: bool = False) -> Scalar:
    """The number that `by` gives: see `Element`."""
    return Scalar(Element(by, kind), kind, nonzero=nonzero, nonnegative=nonnegative)


def is_backed(value: Any) -> bool:
    """Whether it is a number that the call has."""
    return type(value) is Scalar and value.value is not None


def is_unbacked(value: Any) -> bool:
    """Whether it is a number that no call has before its entry runs."""
    return type(value) is Scalar and value.value is None


def kind_of(value: Any) -> type | None:
    """The class that a number has for the program; None for what is no number."""
    kind = type(value)
    if kind is Scalar:
        return value.kind
    if kind is torch.SymInt:
        return int
    return kind if kind in NUMERIC else None


def operand(value: Any) -> NumberExpr:
    """A number that the program holds, as an expression."""
    if type(value) is Scalar:
        return value.expression
    return Element(value, int) if type(value) is torch.SymInt else constant(value)


def taken(value: Any) -> Any:
    """A number that the call has as it is now, guarded; anything else unchanged."""
    if is_backed(value):
        return value.take()
    return int(value) if type(value) is torch.SymInt else value


_SCALAR = frozenset({Scalar})


def taken_in(value: Any) -> Any:
    """As `taken`, for what is in tuples, too."""
    return tuple(map(taken_in, value)) if type(value) is tuple and holds(value, _SCALAR) else taken(value)


# Native code that looks at the number gets it, or breaks the graph. ---------------------------------------------------


def _taking(name: str) -> Callable:
    def answer(self: Scalar, *args: Any) -> Any:
        number = self.take()
        method = getattr(number, name, None)
        if method is not None:
            return method(*map(taken, args))
        # The operator words the error.
        plain = getattr(operator, name, None)
        if plain is not None:
            return plain(number, *map(taken, args))
        return getattr(operator, name.replace("__r", "__", 1))(*map(taken, args), number)

    return answer


def _computing(op: Any, swapped: bool = False) -> Callable:
    def answer(self: Scalar, other: Any) -> Any:
        if self.numbers is None or is_unbacked(other):
            raise DataDependent(WHAT_IS_DONE)
        if type(other) is not Scalar and type(other) not in NUMERIC:
            return NotImplemented
        if op in RELATION_OF:
            return self.numbers.compare(op, self, other)
        return self.numbers.compute(op, other, self) if swapped else self.numbers.compute(op, self, other)

    return answer


for _name in (
    "bool", "int", "float", "index", "complex", "hash", "str", "repr", "format", "round", "trunc", "floor", "ceil",
    "abs", "pos", "invert", "divmod", "rdivmod", "copy", "deepcopy",
    *[f"{prefix}{name}" for prefix in ("", "r") for name in ("and", "or", "xor", "lshift", "rshift")],
):  # fmt: skip
    setattr(Scalar, f"__{_name}__", _taking(f"__{_name}__"))
for _op in RELATION_OF:
    setattr(Scalar, f"__{_op.__name__}__", _computing(_op))
for _op in ARITHMETIC:
    setattr(Scalar, f"__{_op.__name__}__", _computing(_op))
    setattr(Scalar, f"__r{_op.__name__}__", _computing(_op, True))
setattr(Scalar, "__neg__", lambda self: _computing(operator.mul)(self, -1.0))  # noqa: B010
