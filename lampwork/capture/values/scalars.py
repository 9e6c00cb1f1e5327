"""Operations on numbers that are others on the next call (`scalar.py`).

    1 - lr * 0.01              lr: from outside. Computed by the host: another number that the call has
    x * lr                     the operator is recorded with a tensor of one element
    lr > 0                     decided by the number seen, guarded
    math.sqrt(loss.item())     computed when the graph has run
    x * loss.item()            in the graph
    f"{lr} {loss.item()}"      a text made then

Symbolic sizes that meet floats, and sizes that contents decide, become such numbers here. A number that the call has
becomes part of the graph next to one that it has not.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.record.fake import TENSOR_KINDS, Fake
from lampwork.capture.record.saved_instead import saved_instead
from lampwork.capture.values.assumptions import assume, one_raises
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.keyed_calls import settle_keys, takes_symbols
from lampwork.capture.values.scalar import (
    NUMERIC,
    WHAT_IS_DONE,
    Scalar,
    element,
    given,
    is_backed,
    is_unbacked,
    kind_of,
    operand,
    taken,
)
from lampwork.capture.values.unbacked_numbers import (
    PLAIN,
    as_sizes,
    beside,
    chosen_beside,
    compute,
    compute_with_tensor,
    computed,
    counted,
    decision_of,
    tensor_of,
)
from lampwork.capture.values.unknown_text import formatted, unknown_text
from lampwork.capture.values.walk import holds
from lampwork.fakes.fake import DataDependent
from lampwork.fakes.numbers import root_of, symbolic_float
from lampwork.fakes.overflow import refuse_exponent
from lampwork.fakes.shapes import contiguous, has_zero
from lampwork.fakes.symbolic import by_contents
from lampwork.ir.number import applied, compared
from lampwork.ir.number_operations import (
    ARITHMETIC,
    FUNCTIONS,
    FUNCTIONS_OF_ONE,
    KINDS,
    OPERATIONS,
    RELATION_OF,
    operation_of,
)
from lampwork.ir.program import UNUSUAL_SIDE

if TYPE_CHECKING:
    from lampwork.capture.machine import Frame

#: The class of the tensors that function transforms wrap fakes in.
_WRAPPED = torch.Tensor
#: Functions that make floating-point numbers of integers.
_FLOAT_FUNCTIONS = frozenset({each.function for each in OPERATIONS.values() if each.kind("int") == "float"}) & FUNCTIONS


class ScalarFamily(StandInFamily):
    """Numbers. Asked before arrays: next to one, a number that the call has is taken as it is now."""

    stand_ins = frozenset({Scalar})

    def kind(self, value: Any) -> type:
        return value.kind

    # -- operators

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        if is_number(left) and is_number(right):
            if op in ARITHMETIC:
                return self.world.backed_numbers.compute(op, left, right)
        elif is_unbacked(left) or is_unbacked(right):
            return self._unbacked(op, left, right)
        elif type(left) is Fake or type(right) is Fake:
            if op is operator.pow:
                return self._power(left, right)
            return op(self.symbolic(left), self.symbolic(right))
        elif _WRAPPED in (type(left), type(right)) and op in ARITHMETIC and op is not operator.pow:
            return op(self.symbolic(left), self.symbolic(right))
        return self.world.binary_op(op, taken(left), taken(right))

    def _unbacked(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is Fake or type(right) is Fake:
            tensor, number = (left, right) if type(left) is Fake else (right, left)
            if self.world.recorder.exact and tensor.is_cuda and not number.is_either and number.kind is float:
                return op(self.symbolic(left), self.symbolic(right))  # of which kernels there differ
            return compute_with_tensor(op if op in PLAIN else None, left, right)
        if self._meets_array(left, right):
            return HANDS_ON
        if op is operator.truediv:
            left, right = counted(left), counted(right)
        return compute(self.world, op, *self._beside_unbacked(left, right, op is operator.truediv))

    def _meets_array(self, left: Any, right: Any) -> bool:
        array = self.world.families.array
        return array.has(type(left)) or array.has(type(right))

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        plain = IN_PLACE[op]
        if type(left) is Fake and is_unbacked(right):
            if plain not in PLAIN:
                raise DataDependent(WHAT_IS_DONE)
            return op(left, chosen_beside(right, left) if right.is_either else beside(right, left))
        if type(left) is Fake:
            return op(left, self._exponent(left, right) if plain is operator.pow else self.symbolic(right))
        if type(left) is _WRAPPED and is_backed(right) and plain in ARITHMETIC and plain is not operator.pow:
            return op(left, self.symbolic(right))
        if is_unbacked(left) or is_unbacked(right) or type(right) is Fake:
            return self.binary(plain, left, right)
        if plain in ARITHMETIC and is_number(left) and is_number(right):
            return self.binary(plain, left, right)
        return self.world.inplace_op(op, taken(left), taken(right))

    def _power(self, left: Any, right: Any) -> Any:
        """`left ** right`, one of which is a tensor. PyTorch takes numbers or tensors as exponents and bases."""
        beside = left if type(left) is Fake else right
        if self.world.recorder.exact and not has_zero(beside.size()):  # kernels for two tensors round otherwise
            if beside is right and right.requires_grad and torch.is_grad_enabled():
                return left.take() ** right  # the derivative takes its logarithm
            return self.symbolic(left) ** self.symbolic(right)
        if beside is left:
            exponent = self._exponent(left, right)
            if type(exponent) is float:
                return left**exponent
        elif has_zero(beside.size()):
            return 1.0**beside
        base, exponent = self._as_tensor(left, right), self._as_tensor(right, left)
        with self.world.recorder.taking_number():
            made = base**exponent
        is_dense = beside is right or beside.is_contiguous()
        if is_dense and made.stride() != contiguous(made.size()):
            # Powers of a number are contiguous; and dimensions that are one long lie otherwise beside a
            # number than beside a tensor.
            made = saved_instead(made, made.clone(memory_format=torch.contiguous_format))
        return made

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
        if type(value) is not Scalar:
            return value
        if not other.is_floating_point():
            return value.take()
        if not other.dim():  # beside which a tensor's type would count, and a number's does not
            return self.world.backed_numbers.operand(value, other.dtype, other.device)
        return self.world.backed_numbers.tensor(value, other.device)

    def _beside_unbacked(self, left: Any, right: Any, divides: bool = False) -> list[Any]:
        nonzero = divides and is_backed(right) and self.world.backed_numbers.compare(operator.ne, right, 0)
        one, other = self.beside_unbacked((left, right))
        if nonzero:
            other.nonzero = True
        return [one, other]

    def beside_unbacked(self, values: Any) -> list[Any]:
        """The values, those among them that the call has as ones that the graph computes with."""
        return [self.world.backed_numbers.unbacked(each) if is_backed(each) else each for each in values]

    def unary(self, op: Any, value: Any) -> Any:
        if is_backed(value):
            if op is operator.neg:
                return self.world.backed_numbers.compute(operator.mul, value, -1.0)
            return value if op is operator.pos else op(value.take())
        if op not in (operator.neg, operator.pos, operator.invert) or (op is operator.invert and value.kind is float):
            raise DataDependent(WHAT_IS_DONE)
        tensor = given(value.expression)
        if op is operator.neg and value.kind is float and type(tensor) is Fake:
            with torch.no_grad():
                return element(-tensor, float, nonzero=value.nonzero)
        return self._computed(op, value, kind=float if value.kind is float else int)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        if is_number(left) and is_number(right):
            return self.world.backed_numbers.compare(op, left, right)
        if not is_unbacked(left) and not is_unbacked(right):
            if type(left) in TENSOR_KINDS or type(right) in TENSOR_KINDS:
                return op(self.symbolic(left), self.symbolic(right))
            return self.world.compare_op(op, taken(left), taken(right))
        if type(left) is Fake:
            return op(left, beside(right, left))
        if type(right) is Fake:
            return op(beside(left, right), right)
        if self._meets_array(left, right):
            return HANDS_ON
        if op in RELATION_OF and kind_of(left) is not None and kind_of(right) is not None:
            numbers = map(operand, self._beside_unbacked(left, right))
            return computed(self.world, compared(RELATION_OF[op], *numbers), bool)
        if op in (operator.eq, operator.ne) and (_equals_no_number(left) or _equals_no_number(right)):
            return op is operator.ne
        raise DataDependent("the comparison of a number taken out of a tensor")

    def truth(self, value: Any) -> bool:
        if is_backed(value):
            return self.world.backed_numbers.compare(operator.ne, value, 0)
        if type(given(value.expression)) is HostResult:
            raise Break(
                "data-dependent",
                "a branch on a number that is drawn or read anew on each call: both ways may be taken",
                "Draw it outside of the compiled function, or choose with torch.where.",
            )
        raise DataDependent("a branch on a number taken out of a tensor")

    def only_index(self, container: Any, key: Any) -> Any:
        """0 for an index that a tensor holds into a sequence of one element, as is assumed; other keys as they are."""
        single = is_unbacked(key) and key.kind is int and type(container) in (list, tuple)
        if not single or not self.world.recorder.contents.allowed or self.world.length(container) != 1:
            return key
        assume(self.world, tensor_of(key) == 0, True, UNUSUAL_SIDE)
        return 0

    def branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> bool:
        """As of the tensor that decides it, where one side does nothing but raise."""
        if is_backed(value):
            return self.truth(value)
        tensor = given(value.expression)
        if type(tensor) is not Fake:
            assumes = one_raises(frame.code, if_true, if_false)
            tensor = decision_of(value) if assumes else None
        return self.truth(value) if tensor is None else self.world.branch(frame, tensor, if_true, if_false)

    def load_attr(self, value: Any, name: str) -> Any:
        if name == "__class__":
            return value.kind
        if is_backed(value):
            return self.world.load_attr(value.take(), name)
        raise DataDependent(f"the attribute {name} of a number taken out of a tensor")

    # -- conversions

    def text(self, value: Any, function: Any) -> Any:
        return unknown_text(function, value)

    def format(self, value: Any, spec: Any) -> Any:
        return formatted(value, spec, value.kind(1))

    def convert(self, value: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if is_backed(value):
            return HANDS_ON
        if function is round:
            return self._rounded(value, [*args, *kwargs.values()], kwargs.keys())
        if args or kwargs:
            return HANDS_ON
        if function is bool:
            return self._as_bool(value)
        if function is int or function is float:
            return self._as_number(function, value)
        row = operation_of(function) if function in FUNCTIONS_OF_ONE else None
        kind = None if row is None else row.kind(value.kind.__name__)
        if row is None or kind is None:
            return HANDS_ON
        fails = row.raises != "never" and not (function is math.sqrt and value.nonnegative)
        found = self._computed(function, value, kind=KINDS[kind], may_fail=fails)
        found.nonnegative = function in (abs, math.fabs, math.sqrt, math.exp)
        return found

    def _computed(self, function: Any, *args: Any, kind: type, may_fail: bool = False) -> Scalar:
        row = operation_of(function)
        assert row is not None
        return computed(self.world, applied(row.name, *map(operand, args)), kind, may_fail)

    def _rounded(self, value: Any, places: list, names: Any) -> Scalar:
        if len(places) > 1 or names - {"ndigits"} or not all(each is None or type(each) is int for each in places):
            raise DataDependent(WHAT_IS_DONE)
        digits = [each for each in places if each is not None]
        kind = float if digits and value.kind is float else int
        return self._computed(round, value, *digits, kind=kind, may_fail=value.kind is float)

    def _as_bool(self, value: Any) -> Scalar:
        """A number, unless a branch is what asks."""
        tensor = given(value.expression)
        if type(tensor) is not Fake:
            return value if value.kind is bool else self._computed(bool, value, kind=bool)
        with torch.no_grad():
            truth: Any = tensor if value.kind is bool else tensor != 0
            return element(truth, bool)

    def _as_number(self, kind: type, value: Any) -> Scalar:
        if value.kind is kind:
            return value
        if kind is int and value.kind is float:  # it may be no number, or infinite
            return self._computed(int, value, kind=int, may_fail=True)
        tensor = given(value.expression)
        if type(tensor) is not Fake:
            return self._computed(kind, value, kind=kind, may_fail=kind is float)
        with torch.no_grad():
            return element(tensor.to(torch.float64 if kind is float else torch.int64), kind)

    # -- native functions

    def native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any, tuple, dict[str, Any]]:
        if not kwargs and function.__hash__ is not None and function in FUNCTIONS:
            values = tuple(args[0]) if function in (min, max) and len(args) == 1 else args
            if all(map(is_number, values)):
                return self.world.backed_numbers.function(function, values), function, args, kwargs
        if function is torch.Size and len(args) == 1 and type(args[0]) in (tuple, list):
            return torch.Size(as_sizes(self.world.recorder, self.world.touch(args[0]))), function, args, kwargs
        if not takes_symbols(function) and not _looks_for(function):
            args, kwargs = settle_keys(function, args, kwargs, _taken)
        return HANDS_ON, function, args, kwargs

    def symbolic(self, value: Any) -> Any:
        """What native functions of tensors are given in place of a number; containers likewise."""
        kind = type(value)
        if kind is Scalar and value.kind is float:
            self.world.recorder.numbers = self.world.backed_numbers
            return symbolic_float(value)
        if kind is list or kind is tuple:
            return kind([self.symbolic(each) for each in self.world.touch(value)])
        return value


def _equals_no_number(value: Any) -> bool:
    """Whether it is None, a text or other plain data; other objects may say what they like."""
    return not isinstance(value, (int, float, complex, Scalar)) and is_plain(value)


def _looks_for(function: Any) -> bool:
    """Whether a method looks for its argument among items, by identity first: a list that holds a NaN has it."""
    return type(getattr(function, "__self__", None)) in (list, tuple) and function.__name__ in _LOOKING


_LOOKING = frozenset({"count", "index", "remove", "__contains__"})


def is_float_function(function: Any) -> bool:
    """Whether a function makes floating-point numbers of integers."""
    return function.__hash__ is not None and function in _FLOAT_FUNCTIONS


def _taken(value: Any) -> Any:
    kind = type(value)
    if kind is list or kind is tuple:
        known = [_taken(each) for each in value] if holds(value, ScalarFamily.stand_ins) else value
        return value if all(map(operator.is_, known, value)) else kind(known)
    return value.take() if is_backed(value) else value


def is_number(value: Any) -> bool:
    """Whether it is a number that the program or the call has."""
    return is_backed(value) or type(value) in NUMERIC or _is_size(value)


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
