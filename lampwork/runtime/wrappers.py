"""What users call: functions, methods and modules that hold a `CompiledFunction`, made from it and led back to it.

fast = wrap(CompiledFunction(function, settings))
is_wrapper(fast); compiled_of(fast).function is original_of(fast) is function
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, cast

import torch

from lampwork import _torch
from lampwork._torch import is_peer_tracing
from lampwork.runtime.function import CompiledFunction


def wrap(compiled: CompiledFunction, inlined_by_peer: bool = True) -> Callable:
    """`compiled` as a plain function: works as a method, keeps name, doc string and signature of the original. A bound
    method stays one.

    `inlined_by_peer`: whether `torch.compile` may take the original in its place.
    """
    original = compiled.function
    if isinstance(original, MethodType):
        return MethodType(_dressed(_method(compiled), compiled, original.__func__, inlined_by_peer), original.__self__)
    call = compiled.call

    def lampwork_compiled(*args: object, **kwargs: object) -> Any:
        if is_peer_tracing():
            return original(*args, **kwargs)
        return call(args, kwargs)

    return _dressed(lampwork_compiled, compiled, original, inlined_by_peer)


#: Where an object that was copied from one with a compiled method has its own, by name and settings. (It is copied and
#: pickled with the object: what is found there may be of another object, or not compiled.)
_OWN_METHODS = "_lampwork_methods"


def _method(compiled: CompiledFunction) -> Any:
    """The function of a compiled method: of its object, and of copies of that, each of which gets a compiled method of
    its own as it is called."""
    call, method = compiled.call, cast(MethodType, compiled.function)
    owner, function = method.__self__, method.__func__
    key = f"{compiled.name} {compiled.settings!r}"

    def of_another(other: object) -> Callable:
        own = getattr(other, "__dict__", {}).setdefault(_OWN_METHODS, {})
        found = own.get(key)
        if (
            not is_wrapper(found)
            or found.__self__ is not other
            or original_of(found) is not compiled_of(found).function
        ):
            found = MethodType(function, other)
            if compiled.again is not None:
                found = own[key] = compiled.again(found)
        return found

    def lampwork_compiled(self: object, /, *args: object, **kwargs: object) -> Any:
        if is_peer_tracing():
            return function(self, *args, **kwargs)
        if self is owner:
            return call(args, kwargs)
        return of_another(self)(*args, **kwargs)

    return lampwork_compiled


def _dressed(wrapper: Any, compiled: CompiledFunction, original: Callable, inlined_by_peer: bool) -> Callable:
    """`wrapper` with what is known of `original`."""
    try:
        functools.update_wrapper(wrapper, original)
    except AttributeError:  # an object without a __dict__
        pass
    if not hasattr(original, "__name__"):
        wrapper.__name__ = wrapper.__qualname__ = compiled.name
    wrapper.__dict__.update(__wrapped__=original, __lampwork__=compiled)
    compiled.wrapper_code = wrapper.__code__
    if inlined_by_peer:
        _torch.note_original(wrapper, original)
    return _torch.hide_from_peer(wrapper)


def is_wrapper(function: Any) -> bool:
    """Whether `wrap` or `compile_module` made `function`: wrappers around it have its attributes, too."""
    known = getattr(function, "__lampwork__", None)
    if not isinstance(known, CompiledFunction):
        return False
    if type(function) is MethodType and isinstance(known.function, MethodType):
        function = function.__func__
    if type(function) is FunctionType:
        return function.__code__ is known.wrapper_code
    return isinstance(function, torch.nn.Module)


def original_of(wrapper: Any) -> Callable:
    """What `wrapper`, for which `is_wrapper` holds, calls without us."""
    original = compiled_of(wrapper).function
    if type(wrapper) is MethodType and isinstance(original, MethodType) and wrapper.__self__ is not original.__self__:
        return MethodType(original.__func__, wrapper.__self__)
    return original


def compiled_of(value: object) -> CompiledFunction:
    """The `CompiledFunction` of what `lampwork.compile` returned. Raises TypeError for anything else."""
    found = getattr(value, "__lampwork__", None)
    if found is None and isinstance(value, MethodType):
        found = getattr(value.__func__, "__lampwork__", None)
    if not isinstance(found, CompiledFunction):
        raise TypeError(f"{value!r} was not made by lampwork.compile")
    return found
