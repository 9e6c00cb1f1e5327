"""Operations on symbolic integers in the program: they are ints to it, whatever stands behind them.

Arithmetic and comparisons with integers stay symbolic; a branch on a comparison notes a guard; operators of tensors
take symbols as they are. Everything else (indexing a list, hashing, formatting, floating-point arithmetic, functions in
C) needs the number, which specialises the symbol: the entry then serves that number alone, and says so.
"""

from __future__ import annotations

import collections
import math
import operator
import types
from typing import Any

import torch

from lampwork.capture.base import CaptureWorld
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.record.fake import DataDependent, Fake
from lampwork.capture.record.products import product
from lampwork.capture.values.keyed_calls import settle_keys
from lampwork.capture.values.memberships import contains_symbol
from lampwork.fakes.symbolic import size_of

SYMBOLIC = frozenset({torch.SymInt, torch.SymBool, torch.SymFloat})
#: The classes that symbols have for the program.
NUMBER_TYPES = {torch.SymInt: int, torch.SymBool: bool, torch.SymFloat: float}
_TABLES = frozenset({dict, collections.OrderedDict, collections.defaultdict})
#: Containers whose symbols are looked for; sets have none, as what is put into them is a number by then.
_READ = _TABLES | {tuple, list, torch.Size, collections.deque}
_INTEGERS = frozenset({int, bool, torch.SymInt})
_TRUTHS = frozenset({bool, torch.SymBool})
_EXACT = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod})
_LOGIC = frozenset({operator.and_, operator.or_})
_INPLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.ifloordiv: operator.floordiv, operator.imod: operator.mod, operator.iand: operator.and_,
    operator.ior: operator.or_,
}  # fmt: skip
_ARITHMETIC = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.mod: "%",
    operator.truediv: "/", operator.pow: "**", operator.and_: "&", operator.or_: "|",
}  # fmt: skip
_COMPARISONS = frozenset({operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge})


def simplified(value: Any) -> Any:
    """A plain number where the guards so far leave nothing else."""
    kind = type(value)
    if kind is torch.SymInt:
        size = size_of(value)
        return size if isinstance(size, int) else value
    if kind is torch.SymBool:
        known = value.node.known()
        return value if known is None else known
    return number(value) if kind is torch.SymFloat else value


def number(value: Any) -> Any:
    """The number behind a symbol, guarded; containers of plain data likewise. Anything else unchanged."""
    kind = type(value)
    if kind is torch.SymInt:
        return int(value)
    if kind is torch.SymBool:
        return bool(value)
    if kind is torch.SymFloat:
        return value.node.guard_float("", 0)
    if kind is slice:
        return slice(number(value.start), number(value.stop), number(value.step))
    if kind in (tuple, list) and mentions_symbols(value):
        return kind([number(each) for each in value])
    if kind is torch.Size and mentions_symbols(value):
        return torch.Size([number(each) for each in value])
    return value


def mentions_symbols(value: Any) -> bool:
    """Whether a symbol is in plain data."""
    kind = type(value)
    if kind in SYMBOLIC:
        return True
    if kind is tuple or kind is list or kind is torch.Size:
        return any(map(mentions_symbols, value))
    if kind is slice:
        return type(value.start) in SYMBOLIC or type(value.stop) in SYMBOLIC or type(value.step) in SYMBOLIC
    return False


def settled(value: Any, _around: tuple[int, ...] = ()) -> Any:
    """As `number`, and symbols in containers of every kind, to any depth: what native code reads, and does not keep."""
    kind = type(value)
    if kind in SYMBOLIC or kind is slice:
        return number(value)
    if kind not in _READ or id(value) in _around:
        return value
    around = (*_around, id(value))
    if kind in _TABLES:
        pairs = [(settled(key, around), settled(each, around)) for key, each in value.items()]
        if all(key is old and each is held for (key, each), (old, held) in zip(pairs, value.items(), strict=True)):
            return value
        made = value.copy()
        made.clear()
        made.update(pairs)
        return made
    values = [settled(each, around) for each in value]
    if all(each is held for each, held in zip(values, value, strict=True)):
        return value
    return collections.deque(values, value.maxlen) if kind is collections.deque else kind(values)


class SymbolicValues(CaptureWorld):
    """The part of a world that knows symbols; first in its order, so that others see numbers."""

    @property
    def has_symbols(self) -> bool:
        return bool(self.recorder.sizes)

    # -- operators

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        left_type, right_type = type(left), type(right)
        if left_type not in SYMBOLIC and right_type not in SYMBOLIC:
            if op is operator.matmul and self.has_symbols:
                answer = product(left, right)
                if answer is not NotImplemented:
                    return answer
            if op is operator.mod and self.has_symbols and (left_type is str or left_type is bytes):
                right = settled(right)
            return super().binary_op(op, left, right)
        if left_type is Fake or right_type is Fake:
            return op(left, right)
        if op in _EXACT and left_type in _INTEGERS and right_type in _INTEGERS:
            return simplified(op(_integer(left), _integer(right)))
        if op is operator.pow and left_type is torch.SymInt and right_type is int and 0 <= right <= 8:
            return simplified(math.prod([left] * right))
        if op in _LOGIC and left_type in _TRUTHS and right_type in _TRUTHS:
            return simplified(op(left, right))
        return super().binary_op(op, number(left), number(right))

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) in SYMBOLIC:
            plain = _INPLACE.get(op)
            if plain is not None:
                return self.binary_op(plain, left, right)
            return super().inplace_op(op, number(left), number(right))
        if type(right) in SYMBOLIC and type(left) is not Fake:
            plain = _INPLACE.get(op)
            if plain is not None and type(left) in _INTEGERS:
                return self.binary_op(plain, left, right)
            right = number(right)
        elif type(right) in SYMBOLIC:
            return op(left, right)
        return super().inplace_op(op, left, right)

    def unary_op(self, op: Any, value: Any) -> Any:
        if type(value) in SYMBOLIC:
            if type(value) is torch.SymInt and op in (operator.neg, operator.pos):
                return simplified(op(value))
            return op(number(value))
        return super().unary_op(op, value)

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        left_type, right_type = type(left), type(right)
        if left_type in SYMBOLIC or right_type in SYMBOLIC:
            if left_type is Fake or right_type is Fake:
                return op(left, right)
            if left_type in _INTEGERS and right_type in _INTEGERS:
                return simplified(op(_integer(left), _integer(right)))
            if op in (operator.eq, operator.ne) and not (
                isinstance(left, (int, float, complex, *SYMBOLIC))
                and isinstance(right, (int, float, complex, *SYMBOLIC))
            ):
                # No number equals None or a string; other objects may say what they like.
                if is_plain(left) or is_plain(right):
                    return op is operator.ne
            left, right = number(left), number(right)
        elif mentions_symbols(left) or mentions_symbols(right):
            if op in (operator.eq, operator.ne) and type(left) in _SEQUENCES and type(right) in _SEQUENCES:
                return self._compare_sequences(op, left, right)
            left, right = number(left), number(right)
        return super().compare_op(op, left, right)

    def _compare_sequences(self, op: Any, left: Any, right: Any) -> bool:
        equal = isinstance(left, tuple) == isinstance(right, tuple) and len(left) == len(right)
        if equal:
            for one, other in zip(left, right):
                if one is not other and not self.truth(self.compare_op(operator.eq, one, other)):
                    equal = False
                    break
        return equal if op is operator.eq else not equal

    def truth(self, value: Any) -> bool:
        if type(value) in SYMBOLIC:
            if type(value) is torch.SymBool and value.node.known() is None and value.node.by_contents():
                raise DataDependent("a branch on a number of elements")
            if type(value) is torch.SymInt:
                return self.truth(value != 0)
            return bool(value)
        return super().truth(value)

    # -- containers

    def get_item(self, container: Any, key: Any) -> Any:
        if type(container) is not Fake and mentions_symbols(key):
            key = number(key)
        return super().get_item(container, key)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        if type(container) is not Fake and mentions_symbols(key):
            key = number(key)
        super().set_item(container, key, value)

    def del_item(self, container: Any, key: Any) -> None:
        super().del_item(container, number(key))

    def contains(self, item: Any, container: Any) -> bool:
        if mentions_symbols(item) and not isinstance(container, (list, tuple)):
            known = contains_symbol(self, item, container) if type(item) is torch.SymInt else None
            if known is not None:
                return known
            item = number(item)
        return super().contains(item, container)

    def map_add(self, target: dict, key: Any, value: Any) -> None:
        super().map_add(target, number(key), value)

    def set_add(self, target: set, value: Any) -> None:
        super().set_add(target, number(value))

    def length(self, value: Any) -> int:
        if type(value) is Fake and value.dim() and self.has_symbols:
            return value.size(0)
        return super().length(value)

    # -- text

    def format_value(self, value: Any, conversion: int, spec: Any) -> str:
        return super().format_value(number(value), conversion, spec)

    # -- native functions

    def call_native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self.has_symbols:
            if function is len and len(args) == 1 and type(args[0]) is Fake:
                return self.length(args[0])
            if type(function) is types.BuiltinFunctionType and isinstance(function.__self__, torch.Size):
                if function.__name__ == "numel":
                    return simplified(math.prod(function.__self__))
                if mentions_symbols(function.__self__) and function.__name__ in ("index", "count"):
                    function = getattr(number(function.__self__), function.__name__)
            elif any(map(mentions_symbols, args)) or any(map(mentions_symbols, kwargs.values())):
                answer = self._call_on_symbols(function, args, kwargs)
                if answer is not NotImplemented:
                    return answer
        return super().call_native(function, args, kwargs)

    def _call_on_symbols(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a native function answers for symbols; NotImplemented: as it does for other values."""
        if function in _UNCHANGED and len(args) == 1 and type(args[0]) is torch.SymInt and not kwargs:
            return args[0]
        if function in (min, max) and not kwargs:
            values = args if len(args) > 1 else tuple(args[0])
            if all(type(each) in _INTEGERS for each in values):
                pick = torch.sym_min if function is min else torch.sym_max
                result = values[0]
                for each in values[1:]:
                    result = pick(result, each)
                return simplified(result)
        if function is divmod and all(type(each) in _INTEGERS for each in args):
            return self.binary_op(operator.floordiv, *args), self.binary_op(operator.mod, *args)
        if function in (sum, math.prod) and not kwargs and all(type(each) in _INTEGERS for each in args[0]):
            return simplified(function(*args))
        if function is abs and type(args[0]) is torch.SymInt:
            return simplified(abs(args[0]))
        if function in _ARITHMETIC and len(args) == 2 and not kwargs:
            return self.binary_op(function, *args)
        if function in _COMPARISONS and len(args) == 2:
            return self.compare_op(function, *args)
        if function in (slice, torch.Size):
            return function(*args, **kwargs)
        if self.takes_symbols(function):
            return NotImplemented
        return super().call_native(function, *settle_keys(function, args, kwargs, number))


_SEQUENCES = frozenset({tuple, list, torch.Size})
_UNCHANGED = frozenset({int, operator.index, math.trunc, math.floor, math.ceil})


def _integer(value: Any) -> Any:
    return int(value) if type(value) is bool else value
