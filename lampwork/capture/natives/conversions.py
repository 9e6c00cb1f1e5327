"""Builtin functions that call special methods: on objects of Python classes, the machine calls them.

    ordering      sorted, min, max, list.sort and functools.cmp_to_key compare through the machine, in CPython's order
    numbers       int, float, complex, operator.index, round, divmod, pow and the like call `__int__`, `__index__`, ...
    text          str, repr and format of containers that hold objects, and of the program's exceptions

Where no special method written in Python is involved, the native function answers itself.
"""

from __future__ import annotations

import functools
import math
import operator
import types
from typing import Any

import torch

from lampwork.capture.machine import UNBOUND, Answer
from lampwork.capture.machine.natives import INTRINSICS, Callback
from lampwork.capture.machine.polyfills import POLYFILLS
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.capture.record.fake import TENSOR_KINDS
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.scalars import is_number
from lampwork.capture.values.set_order import in_any_order
from lampwork.capture.values.sizes import number, settled
from lampwork.capture.values.special_methods import is_object
from lampwork.capture.values.text import UNKNOWN
from lampwork.capture.values.unbacked_numbers import extreme, total
from lampwork.capture.values.unknown_text import joined
from lampwork.capture.values.walk import holds
from lampwork.ir.number_operations import FUNCTIONS_OF_ONE

_machine_repr, _machine_str, _machine_format = INTRINSICS[repr], INTRINSICS[str], INTRINSICS[format]


# Ordering -----------------------------------------------------------------------------------------------------------


class Ordered:
    """Stands for a value in native code that orders: compared through the machine."""

    __slots__ = ("world", "value")

    def __init__(self, world: Any, value: Any) -> None:
        self.world = world
        self.value = value

    def __lt__(self, other: Ordered) -> bool:
        return self._compare(operator.lt, other)

    def __gt__(self, other: Ordered) -> bool:
        return self._compare(operator.gt, other)

    def _compare(self, op: Any, other: Ordered) -> bool:
        world = self.world
        return world.truth(world.machine.complete(world.compare_op(op, self.value, other.value)))


def _keyed(native: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if native is not sorted and args and not kwargs:
            found = extreme(world, native is max, args)
            if found is not HANDS_ON:
                return found
        if len(args) == 1:
            unordered = None if "key" in kwargs else in_any_order(world, args[0])
            args = (world.collect(args[0], asks=native is sorted) if unordered is None else unordered,)
        key, default = kwargs.get("key"), kwargs.get("default", MISSING)
        if (
            not args
            or kwargs.keys() - _OPTIONS[native]
            or (len(args) > 1 and (native is sorted or "default" in kwargs))
        ):
            return native(*args, **kwargs)
        values = args[0] if len(args) == 1 else list(args)
        keys = values if key is None else [world.machine.call(key, (value,)) for value in values]
        if not world.data.is_data(keys) or holds(keys, TENSOR_KINDS):
            keys = [Ordered(world, each) for each in keys]
        if native is sorted:
            order = sorted(range(len(values)), key=keys.__getitem__, reverse=world.truth(kwargs.get("reverse", False)))
            return [values[position] for position in order]
        if not values:
            return native((), **kwargs) if default is MISSING else default
        return values[native(range(len(values)), key=keys.__getitem__)]

    return answer


_OPTIONS: dict[Any, frozenset[str]] = {
    sorted: frozenset({"key", "reverse"}),
    min: frozenset({"key", "default"}),
    max: frozenset({"key", "default"}),
}


def _sort(world: Any, target: Any, **kwargs: Any) -> None:
    world.touch(target)
    elements = list(list.__iter__(target))  # what C sorts, whatever an `__iter__` of the program's says
    ordered = world.machine.call(sorted, (elements,), kwargs)
    list.__setitem__(target, slice(None), ordered)


def _cmp_to_key(world: Any, *args: Any, **kwargs: Any) -> Any:
    (function,) = args or kwargs.values()
    return functools.cmp_to_key(Callback(world, function))


# Numbers ------------------------------------------------------------------------------------------------------------

#: native -> the special methods it tries, best first
_NUMBERS: dict[Any, tuple[str, ...]] = {
    int: ("__int__", "__index__", "__trunc__"), float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"), operator.index: ("__index__",), hex: ("__index__",),
    oct: ("__index__",), bin: ("__index__",), chr: ("__index__",), round: ("__round__",), bytes: ("__bytes__",),
    math.floor: ("__floor__", "__float__"), math.ceil: ("__ceil__", "__float__"), math.trunc: ("__trunc__",),
    math.sqrt: ("__float__", "__index__"),
}  # fmt: skip
#: Natives whose special method gives the result itself; the others convert what it gives.
_FINAL = frozenset({round, math.floor, math.ceil, math.trunc, bytes})


def _converted(native: Any) -> Any:
    """`native(value, ...)`: what the value's family says, then a special method written in Python, then C."""
    names, machine = _NUMBERS.get(native, ()), INTRINSICS.get(native) if native in (abs, bool) else None

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            found = world.family(args[0]).convert(args[0], native, args[1:], kwargs)
            if found is not HANDS_ON:
                return found
            if not kwargs and is_object(args[0]):
                for name in names:
                    method = world.special(args[0], name)
                    if method is UNBOUND:
                        continue
                    if (name == "__index__" and isinstance(args[0], int)) or (
                        name == "__float__" and isinstance(args[0], float) and native not in (float, complex)
                    ):
                        break  # C takes the number that it holds
                    if type(method) is not types.FunctionType:
                        break
                    if native in _FINAL and name in names[:1]:
                        return world.call_attribute(method, args[0], tuple(args[1:]))
                    result = world.call_special(args[0], method)
                    if type(result) not in (int, float, complex):
                        raise Break("native-argument", f"{name} returns a {type(result).__qualname__}")
                    return native(result, *args[1:])
        # `SymInt.__abs__` is PyTorch's, written in Python: it is not the program's to be interpreted.
        if machine is None or (native is abs and args and type(args[0]) is torch.SymInt):
            return world.call_native(native, args, kwargs)
        return machine(world, *args, **kwargs)

    return answer


def _sum(world: Any, *args: Any, **kwargs: Any) -> Any:
    if args and len(args) + len(kwargs) <= 2:
        found = total(world, args[0]) if len(args) == 1 and not kwargs else HANDS_ON
        if found is not HANDS_ON:
            return found
        args = (world.collect(args[0]), *args[1:])
        if not world.data.are_data(args, kwargs):
            return world.machine.call(POLYFILLS[sum][0], args, kwargs)
    return world.call_native(sum, args, kwargs)


def _divmod(world: Any, *args: Any) -> Any:
    if len(args) == 2 and (is_object(args[0]) or is_object(args[1])):
        result = world.try_binary("divmod", *args)
        if result is NotImplemented:
            names = " and ".join(f"'{type(each).__name__}'" for each in args)
            raise TypeError(f"unsupported operand type(s) for divmod(): {names}")
        return result
    return world.call_native(divmod, args, {})


def _pow(world: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.keys() <= {"base", "exp", "mod"} and any(map(is_object, (*args, *kwargs.values()))):
        given = [*args, *[kwargs[name] for name in ("base", "exp", "mod")[len(args) :] if name in kwargs], None]
        base, exponent, modulo = given[:3]
        if modulo is None:
            return world.binary_op(operator.pow, base, exponent)
        method = world.python_special(base, "__pow__")
        if method is not UNBOUND:
            result = world.call_special(base, method, exponent, modulo)
            if result is not NotImplemented:
                return result
    if len(args) == 2 and not kwargs and all(map(is_number, args)):
        return world.binary_op(operator.pow, *args)
    return world.call_native(pow, args, kwargs)


# Text ---------------------------------------------------------------------------------------------------------------


def _repr(world: Any, *args: Any, **kwargs: Any) -> Any:
    found = _text(world, repr, args) if len(args) == 1 and not kwargs else HANDS_ON
    return _machine_repr(world, *map(number, args), **kwargs) if found is HANDS_ON else found


def _str(world: Any, *args: Any, **kwargs: Any) -> Any:
    found = _text(world, str, args) if len(args) == 1 and not kwargs else HANDS_ON
    return _machine_str(world, *map(number, args), **kwargs) if found is HANDS_ON else found


def _text(world: Any, function: Any, args: tuple) -> Any:
    if isinstance(args[0], type):
        world.loader.classes.note_names(args[0], "__module__", "__qualname__")
    found = world.family(args[0]).text(args[0], function)
    return _text_of_exception(world, args[0], function) if found is HANDS_ON else found


def _format(world: Any, *args: Any) -> Any:
    if 1 <= len(args) <= 2:
        value, spec = args[0], args[1] if len(args) == 2 else ""
        if isinstance(value, type):
            world.loader.classes.note_names(value, "__module__", "__qualname__")
        found = world.family(value).format(value, spec)
        if found is not HANDS_ON:
            return found
        if isinstance(value, BaseException) and type(spec) is str and not spec:
            if type(world.special(value, "__format__")) is not types.FunctionType:
                return world.machine.call(str, (value,))
    return _machine_format(world, *map(number, args))


#: Exceptions whose text is made of more than their arguments, by C code of their own.
_OWN_TEXT = (OSError, UnicodeError, SyntaxError, ImportError, BaseExceptionGroup)


def _text_of_exception(world: Any, error: Any, function: Any) -> Any:
    """`str` or `repr` of an exception whose class leaves that to BaseException; HANDS_ON for any other value."""
    if not isinstance(error, BaseException) or isinstance(error, _OWN_TEXT):
        return HANDS_ON
    if not is_object(error) and settled(error.args) is error.args and not holds(error.args, UNKNOWN):
        return HANDS_ON
    if type(world.special(error, "__str__" if function is str else "__repr__")) is types.FunctionType:
        return HANDS_ON
    call = world.machine.call
    if function is repr:
        if len(error.args) == 1:
            return joined([type(error).__name__, "(", call(repr, (error.args[0],)), ")"])
        return joined([type(error).__name__, call(repr, (error.args,))])
    if len(error.args) == 1:
        return call(repr if isinstance(error, KeyError) else str, (error.args[0],))
    return call(repr, (error.args,)) if error.args else ""


NATIVES: dict[Any, Answer] = {
    sorted: _keyed(sorted),
    min: _keyed(min),
    max: _keyed(max),
    list.sort: _sort,
    functools.cmp_to_key: _cmp_to_key,
    **{native: _converted(native) for native in (*_NUMBERS, *FUNCTIONS_OF_ONE, bool)},
    sum: _sum,
    divmod: _divmod,
    pow: _pow,
    repr: _repr,
    str: _str,
    format: _format,
}
