"""Functions behind `functools.lru_cache`: the program gets what they remember, read from the cache again on every call.

What a function has not remembered yet it computes once, natively, while the program is captured: as eager does on the
first call, and only where the program has changed nothing yet that the function could see.
"""

from __future__ import annotations

import functools
import gc
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

from lampwork.capture.outside import changes, facts
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.capture.outside.plain import has_identity_hash, is_plain

CACHED_FUNCTION: Any = functools._lru_cache_wrapper  # type: ignore[attr-defined]


def call_cached(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`. Raises `Break` for arguments other than plain data, objects from outside, and
    functions that their modules have under their names."""
    inner = function.__wrapped__
    for value in (*args, *kwargs.values()):
        world.touch(value)
    if inner.__module__ == "typing":  # `Optional[int]`: immutable
        return _called(world, function, args, kwargs)
    origin = world.loader.origin(function)
    if function.cache_parameters()["maxsize"] == 0:
        return world.machine.call(world.attribute(function, "__wrapped__"), args, kwargs)
    parts = [_argument(world, value) for value in (*args, *kwargs.values())]
    if any(part is MISSING for part in parts):
        raise Break("cached-function", f"{inner.__qualname__} caches its results and takes objects")
    result = _remembered_or_computed(world, function, args, kwargs)
    if origin is None:
        if is_plain(result) or isinstance(result, (type, FunctionType, ModuleType)):
            return result
        raise Break("cached-function", f"{inner.__qualname__}, which came from native code, returns an object")
    guard_native(world, origin.source, function)
    named = tuple(zip(kwargs, parts[len(args) :]))
    return world.loader.load(result, world.sources.remembered(origin.source, tuple(parts[: len(args)]), named))


def guard_native(world: Any, source: Any, function: Any) -> None:
    """Guards which callable implemented in C is at `source`. One behind `functools.lru_cache` without an importable
    name (a method of `typing`, a closure) is told by the code of what it wraps, so that other processes find it."""
    wrapped = vars(function).get("__wrapped__") if type(function) is CACHED_FUNCTION else None
    if type(wrapped) is not FunctionType or world.guards.reference(function).portable:
        world.guards.is_object(source, function)
        return
    world.guards.type_is(source, CACHED_FUNCTION)
    world.guards.function_is(world.sources.item(world.sources.instance_dict(source), "__wrapped__"), wrapped)


def _argument(world: Any, value: Any) -> Any:
    """Plain data as it is, an object from outside by its source; MISSING for anything else."""
    if is_plain(value):
        return value
    origin = world.loader.origin(value)
    if origin is not None and facts.is_itself(origin) and has_identity_hash(value):
        return origin.source
    if type(value) in _NAMED and world.guards.reference(value).portable:
        # Such as the function that `__torch_function__` is given: it came from no other place than its module.
        reference = world.guards.reference(value)
        source = world.sources.named(reference.module, reference.qualname)
        world.loader.load(value, source)
        return source
    return MISSING


_NAMED = frozenset({FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType})


def _called(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    with world.recorder._paused():
        return function(*args, **kwargs)


def _remembered_or_computed(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if not _remembers(function, args, kwargs):
        if changes.has_changed_anything(world):
            raise Break(
                "cached-function",
                f"{function.__wrapped__.__qualname__} is called for the first time after the program has changed state",
                "Call it once before the compiled function.",
            )
        try:
            result = _called(world, function, args, kwargs)
        except Exception as error:  # which nothing remembers: the next call may do otherwise
            why = f"{function.__wrapped__.__qualname__} raises {type(error).__name__}, which its cache does not keep"
            raise Break("cached-function", why) from error
        if changes.was_changed(world):
            raise Break("cached-function", f"{function.__wrapped__.__qualname__} changes what the program has read")
        return result
    return _called(world, function, args, kwargs)


def _remembers(function: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether the cache has an answer. Looks the key up as CPython makes it (Modules/_functoolsmodule.c)."""
    held = gc.get_referents(function)
    own = function.__dict__
    caches = [each for each in held if type(each) is dict and each is not own]
    if len(caches) != 1:
        return False
    typed = function.cache_parameters()["typed"]
    if not typed and not kwargs:
        key: Any = args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
        return key in caches[0]
    key = args
    if kwargs:
        mark = [each for each in held if type(each) is object]
        if len(mark) != 1:
            return False
        key = (*args, mark[0], *[part for pair in kwargs.items() for part in pair])
    if typed:
        key = (*key, *map(type, args), *map(type, kwargs.values()))
    return key in caches[0]
