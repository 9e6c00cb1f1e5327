"""Compiled functions in pickles: told by what they wrap and by their settings. Who loads one compiles anew.

    pool = torch.multiprocessing.get_context("spawn").Pool(2)
    pool.map(lampwork.compile(function), inputs)

`pickle` itself writes functions of Python by name and asks nobody: a compiled function that its module has under its
own name (a decorated one) is written so. For others the pickler of `multiprocessing` has a word, which is the one that
spawned processes, pools and workers of data loaders get what they call by. Compiled modules have a `__reduce_ex__`.
"""

from __future__ import annotations

import sys
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, MethodType
from typing import Any

from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.wrappers import compiled_of, is_wrapper, original_of


def _reducer_override(pickler: ForkingPickler, value: Any) -> Any:
    if type(value) not in (FunctionType, MethodType) or not is_wrapper(value) or _is_found_by_name(value):
        return NotImplemented
    compiled = compiled_of(value)
    if compiled.again is None:
        return NotImplemented
    return _compiled, (compiled.again, original_of(value))


def _is_found_by_name(function: FunctionType | MethodType) -> bool:
    """Whether what `pickle` looks up is `function` itself."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _compiled(again: Any, function: Any) -> Any:
    return again(function)


def reduce_compiled(compiled: CompiledFunction) -> tuple[Any, ...]:
    """What `CompiledFunction.__reduce__` returns, for picklers that write functions with all that these hold."""
    if compiled.again is None:
        raise TypeError(f"cannot pickle what {compiled.name} was compiled to")
    return _compiled_of, (compiled.again, compiled.function)


def _compiled_of(again: Any, function: Any) -> CompiledFunction:
    return compiled_of(again(function))


def register() -> None:
    """Has the pickler of `multiprocessing` ask, unless somebody else's answers are there already."""
    pickler: Any = ForkingPickler
    if "reducer_override" not in vars(pickler):
        pickler.reducer_override = _reducer_override


__all__ = ["reduce_compiled", "register"]
