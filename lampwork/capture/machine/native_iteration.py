"""Built-in functions that iterate what they are given, or call a function for each element."""

from __future__ import annotations

import collections
import functools
from typing import Any

from ..bytecode.decode import VERSION
from .generators import MachineGenerator, resume_request
from .iteration import ReversedIterator, is_own_iterator
from .natives import CLASS_INTRINSICS, INTRINSICS, answers, callback
from .operators import BUILTIN
from .polyfills import POLYFILLS, corrected_sum
from .private import keep_builtins
from .values import UNBOUND, Enter, is_a

keep_builtins(globals())


@answers(iter)
def _iter(world: Any, *args: Any) -> Any:
    if len(args) == 1:
        return world.get_iter(args[0])
    if len(args) == 2:
        return iter(callback(world, args[0]), args[1])
    return iter(*args)


@answers(next)
def _next(world: Any, *args: Any) -> Any:
    if not 1 <= len(args) <= 2:
        return next(*args)
    iterator = args[0]
    if type(iterator) is MachineGenerator:
        if len(args) == 1:
            return resume_request(iterator, None)
        return next(*args)
    if is_own_iterator(iterator):
        return next(*args)
    method = world.python_special(iterator, "__next__")
    if method is UNBOUND:
        return world.call_native(next, args, {})
    if len(args) == 1:
        return world.call_attribute(method, iterator, ())
    found, value = world.iter_next(iterator)
    return value if found else args[1]


@answers(MachineGenerator.send)
def _send(world: Any, generator: Any, *args: Any) -> Any:
    if len(args) != 1 or type(generator) is not MachineGenerator:
        return MachineGenerator.send(generator, *args)
    return resume_request(generator, args[0])


@answers(MachineGenerator.__next__)
def _generator_next(world: Any, generator: Any) -> Any:
    return resume_request(generator, None)


@answers(reversed)
def _reversed(world: Any, *args: Any) -> Any:
    if len(args) == 1 and type(args[0]) not in BUILTIN:
        method = world.python_special(args[0], "__reversed__")
        if method is not UNBOUND and method is not None:
            return world.call_attribute(method, args[0], ())
        if world.special(args[0], "__reversed__") is UNBOUND and (
            world.python_special(args[0], "__getitem__") is not UNBOUND
        ):
            return ReversedIterator(world, args[0])
    return world.call_native(reversed, args, {})


#: Natives that ask how long an iterable is, for the list that they make of it.
_ASK_LENGTH = frozenset({list, tuple, list.extend, str.join, bytes.join, sorted})


def _consumer(native: Any, positions: Any = (0,), reads_sets: bool = False) -> None:
    """A native that iterates the arguments at these positions ("all": every one; "others": all but the first).

    One that reads sets takes what they hold, whatever an `__iter__` of their class says."""

    def iterable(world: Any, value: Any) -> Any:
        if native in _ASK_LENGTH:
            return world.native_elements(value)
        return value if reads_sets and is_a(value, (set, frozenset)) else world.native_iterable(value)

    polyfill, subject = POLYFILLS.get(native, (None, 0))
    if native is sum and VERSION >= (3, 12):
        polyfill = corrected_sum

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if polyfill is not None and len(args) > subject and type(args[subject]) is MachineGenerator:
            return Enter(polyfill, args, kwargs)
        if positions == "all":
            args = tuple(iterable(world, value) for value in args)
        elif positions == "others":
            args = (*args[:1], *(iterable(world, value) for value in args[1:]))
        else:
            made = list(args)
            for position in positions:
                if position < len(made):
                    made[position] = iterable(world, made[position])
            args = tuple(made)
        return world.call_native(native, args, kwargs)

    INTRINSICS[native] = answer


_native: Any
for _native in (list, tuple, sum, any, all, enumerate):
    _consumer(_native)
for _native in (set, frozenset):
    _consumer(_native, reads_sets=True)
_consumer(zip, "all")
for _native in (list.extend, str.join, bytes.join, collections.deque.extend, collections.deque.extendleft):
    _consumer(_native, (1,))
for _set in (set, frozenset):
    for _name in (
        "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint", "update",
        "intersection_update", "difference_update", "symmetric_difference_update",
    ):  # fmt: skip
        if hasattr(_set, _name):
            _consumer(getattr(_set, _name), "others", _name != "isdisjoint")


_STRICT = frozenset(("strict",))  # of `map`, from 3.14 on


def _calls_first(native: Any) -> None:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) >= 2 and kwargs.keys() <= _STRICT:
            args = (callback(world, args[0]), *(world.native_iterable(value) for value in args[1:]))
        return world.call_native(native, args, kwargs)

    INTRINSICS[native] = answer


_calls_first(map)
_calls_first(filter)


@answers(functools.reduce)
def _reduce(world: Any, *args: Any, **kwargs: Any) -> Any:
    if 2 <= len(args) <= 3:
        args = (callback(world, args[0]), world.native_iterable(args[1]), *args[2:])
    return world.call_native(functools.reduce, args, kwargs)


def _keyed(native: Any, consumes: bool) -> None:
    polyfill, _ = POLYFILLS.get(native, (None, 0))

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if polyfill is not None and len(args) == 1 and type(args[0]) is MachineGenerator:
            return Enter(polyfill, args, kwargs)
        if "key" in kwargs:
            kwargs["key"] = callback(world, kwargs["key"])
        if consumes and len(args) == 1:
            args = (world.native_elements(args[0]) if native in _ASK_LENGTH else world.native_iterable(args[0]),)
        return world.call_native(native, args, kwargs)

    INTRINSICS[native] = answer


_keyed(sorted, True)
_keyed(min, True)
_keyed(max, True)
_keyed(list.sort, False)


def _dict_fromkeys(world: Any, *args: Any) -> Any:
    if args:
        args = (world.native_iterable(args[0]), *args[1:])
    return dict.fromkeys(*args)


CLASS_INTRINSICS[(dict, "fromkeys")] = _dict_fromkeys
