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

from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.record.fake import TENSOR_KINDS, DataDependent
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.keyed_calls import settle_keys, takes_symbols
from lampwork.capture.values.memberships import contains_symbol
from lampwork.capture.values.scalars import counts_in_float, is_float_function, is_mixed, is_number, makes_float
from lampwork.capture.values.unbacked_numbers import counted
from lampwork.capture.values.walk import holds
from lampwork.fakes.symbolic import size_of
from lampwork.ir.number_operations import ARITHMETIC, RELATION_OF

SYMBOLIC = frozenset({torch.SymInt, torch.SymBool, torch.SymFloat})
#: The classes that symbols have for the program.
NUMBER_TYPES = {torch.SymInt: int, torch.SymBool: bool, torch.SymFloat: float}
_SEQUENCES = frozenset({tuple, list, torch.Size})
_TABLES = frozenset({dict, collections.OrderedDict, collections.defaultdict})
#: Containers whose symbols are looked for; sets have none, as what is put into them is a number by then.
_READ = _TABLES | {tuple, list, torch.Size, collections.deque}
_INTEGERS = frozenset({int, bool, torch.SymInt})
_WHOLE = frozenset({torch.SymInt, torch.SymBool, int, bool})
_NUMBERS = frozenset({*SYMBOLIC, int, bool, float})
_TRUTHS = frozenset({bool, torch.SymBool})
_EXACT = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod})
_LOGIC = frozenset({operator.and_, operator.or_})
_ARITHMETIC = frozenset({*ARITHMETIC, *_LOGIC})


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
    if kind in _SEQUENCES and holds(value, SYMBOLIC):
        sizes = None if kind is list else _sizes_of(value)
        if sizes is not None and id(value) in sizes.settled:
            return sizes.settled[id(value)][1]
        known = [number(each) for each in value]
        if all(map(operator.is_, known, value)):
            return value
        made = kind(known)
        if sizes is not None:
            sizes.settled[id(value)] = value, made
        return made
    return value


def _sizes_of(value: tuple) -> Any:
    """The sizes of the capture, out of the first symbol in a tuple, or in one of the tuples in it."""
    for each in value:
        found = each.node.sizes if type(each) is torch.SymInt else _sizes_of(each) if type(each) is tuple else None
        if found is not None:
            return found
    return None


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


def settled_in_place(value: Any, _around: tuple[int, ...] = ()) -> Any:
    """As `settled`, for native code that changes or keeps what it is given: containers stay what they are."""
    kind = type(value)
    if kind not in (list, collections.deque, dict) or id(value) in _around:
        return settled(value)
    around = (*_around, id(value))
    places = list(value.items() if kind is dict else enumerate(value))
    for place, each in places:
        known = settled_in_place(each, around)
        if known is not each:
            value[place] = known
    return value


def decided(value: Any) -> Any:
    """Arguments of an operator with what comparisons of sizes give, which is guarded: operators know no other truth
    values. Those that contents decide are left."""
    kind = type(value)
    if kind is torch.SymBool:
        return value if value.node.known() is None and value.node.by_contents() else bool(value)
    if kind is tuple or kind is list:
        return kind([decided(each) for each in value])
    return {name: decided(each) for name, each in value.items()} if kind is dict else value


class SizeFamily(StandInFamily):
    """Symbols."""

    stand_ins = SYMBOLIC

    def kind(self, value: Any) -> type:
        return NUMBER_TYPES[type(value)]

    # -- operators

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        left_type, right_type = type(left), type(right)
        if left_type in TENSOR_KINDS or right_type in TENSOR_KINDS:
            return op(decided(left), decided(right))
        if counts_in_float(op, left, right):
            return self.world.binary_op(op, counted(left), counted(right))
        if op in ARITHMETIC and makes_float(op, left, right):
            return self.world.backed_numbers.compute(op, left, right)
        if op in _EXACT and left_type in _INTEGERS and right_type in _INTEGERS:
            return simplified(op(_integer(left), _integer(right)))
        if op is operator.pow and left_type is torch.SymInt and right_type is int and 0 <= right <= 8:
            return simplified(math.prod([left] * right))
        if op in _LOGIC and left_type in _TRUTHS and right_type in _TRUTHS:
            return simplified(op(left, right))
        return self.world.binary_op(op, number(left), number(right))

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) in TENSOR_KINDS:
            return op(left, decided(right))
        plain, kinds = IN_PLACE[op], {type(left), type(right)}
        if (plain in ARITHMETIC and kinds <= _NUMBERS) or (plain in _LOGIC and kinds <= _WHOLE):
            return self.binary(plain, left, right)  # numbers have nothing in place
        return self.world.inplace_op(op, *[number(each) if type(each) in SYMBOLIC else each for each in (left, right)])

    def unary(self, op: Any, value: Any) -> Any:
        if type(value) is torch.SymInt and op in (operator.neg, operator.pos):
            return simplified(op(value))
        return op(number(value))

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        left_type, right_type = type(left), type(right)
        if left_type in TENSOR_KINDS or right_type in TENSOR_KINDS:
            return op(decided(left), decided(right))
        if is_mixed(left, right):
            return self.world.backed_numbers.compare(op, left, right)
        if left_type in _INTEGERS and right_type in _INTEGERS:
            return simplified(op(_integer(left), _integer(right)))
        if op in (operator.eq, operator.ne) and not (
            isinstance(left, (int, float, complex, *SYMBOLIC)) and isinstance(right, (int, float, complex, *SYMBOLIC))
        ):
            # No number equals None or a string; other objects may say what they like.
            if is_plain(left) or is_plain(right):
                return op is operator.ne
        return self.world.compare_op(op, number(left), number(right))

    def contains(self, item: Any, container: Any) -> Any:
        if type(item) not in SYMBOLIC or type(container) in SYMBOLIC:
            return super().contains(item, container)
        if isinstance(container, (list, tuple)):
            return HANDS_ON
        known = contains_symbol(self.world, item, container) if type(item) is torch.SymInt else None
        return self.world.contains(number(item), container) if known is None else known

    def truth(self, value: Any) -> bool:
        if type(value) is torch.SymBool and value.node.known() is None and value.node.by_contents():
            raise DataDependent("a branch on a number of elements")
        if type(value) is torch.SymInt:
            return self.world.truth(value != 0)
        return bool(value)

    def load_attr(self, value: Any, name: str) -> Any:
        return NUMBER_TYPES[type(value)] if name == "__class__" else self.world.load_attr(number(value), name)

    # -- native functions

    def native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any, tuple, dict[str, Any]]:
        if not kwargs and is_float_function(function) and all(map(is_number, args)):
            return self.world.backed_numbers.function(function, args), function, args, kwargs
        if type(function) is types.BuiltinFunctionType and isinstance(function.__self__, torch.Size):
            if function.__name__ == "numel":
                return simplified(math.prod(function.__self__)), function, args, kwargs
            if function.__name__ in ("index", "count"):
                function = getattr(number(function.__self__), function.__name__)
            return HANDS_ON, function, args, kwargs
        if function in _LOOK_AT_TYPES:
            return HANDS_ON, function, tuple([_of_its_type(each) for each in args]), kwargs
        answer = self._called(function, args, kwargs)
        if answer is HANDS_ON and not takes_symbols(function):
            args, kwargs = settle_keys(function, args, kwargs, number)
        return answer, function, args, kwargs

    def _called(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a native function answers for symbols; HANDS_ON: as it does for other values."""
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
            return self.world.binary_op(operator.floordiv, *args), self.world.binary_op(operator.mod, *args)
        if function in (sum, math.prod) and not kwargs and all(type(each) in _INTEGERS for each in args[0]):
            return simplified(function(*args))
        if function is abs and type(args[0]) is torch.SymInt:
            return simplified(abs(args[0]))
        if function in _ARITHMETIC and len(args) == 2 and not kwargs:
            return self.world.binary_op(function, *args)
        if function in RELATION_OF and len(args) == 2:
            return self.world.compare_op(function, *args)
        if function in (slice, torch.Size):
            return function(*args, **kwargs)
        return HANDS_ON


def _of_its_type(value: Any) -> Any:
    """Some number of the type of a symbol, for what asks for types alone."""
    if type(value) in (tuple, list):
        return type(value)(map(_of_its_type, value))
    return NUMBER_TYPES[type(value)]() if type(value) in SYMBOLIC else value


#: What looks at no number that it is given.
_LOOK_AT_TYPES = frozenset({
    torch.overrides.has_torch_function,
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
})  # fmt: skip

_UNCHANGED = frozenset({int, operator.index, math.trunc, math.floor, math.ceil})


def _integer(value: Any) -> Any:
    return int(value) if type(value) is bool else value
