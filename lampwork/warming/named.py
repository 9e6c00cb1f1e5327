"""What `module:factory` and `script.py::factory` name: something to compile, found again by any process."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from lampwork.commands.explain import load_script
from lampwork.ir.reference import find
from lampwork.runtime.wrappers import is_wrapper

#: Arguments of one call.
Call = tuple[tuple[Any, ...], dict[str, Any]]


def found(target: str) -> tuple[Callable, Call | None]:
    """What `target` names, and the arguments of a call of it, where they are told.

    Something compiled, a module and a function that takes arguments are what they are. A function that takes none is
    called: it returns one of these, `(callable, args)` or `(callable, args, kwargs)`. Modules stay in training mode or
    out of it, as they are.

    Raises ValueError, TypeError or ImportError with the remedy where there is no such thing.
    """
    value = _value(target)
    if isinstance(value, type):
        raise TypeError(f"{target} is a class: name a function that returns an instance, ready to be called")
    if not callable(value):
        raise TypeError(
            f"{target} is {type(value).__name__}, which cannot be called: name a function that returns a model"
        )
    if isinstance(value, torch.nn.Module) or is_wrapper(value) or _needs_arguments(value):
        return value, None
    made = value()
    call: Call | None = None
    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[1], tuple | list):
        call = tuple(made[1]), dict(made[2]) if len(made) == 3 else {}
        made = made[0]
    if not callable(made) or isinstance(made, type):
        raise TypeError(
            f"{target}() returned {type(made).__name__}; a factory returns a callable, (callable, args) or "
            "(callable, args, kwargs), with args a tuple"
        )
    return made, call


def name_of(value: Callable) -> str | None:
    """The `module:name` that leads to `value` in any process; None where there is none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or module == "__main__" or module not in sys.modules:
        return None
    with suppress(LookupError):
        if isinstance(name, str) and find(module, name) is value:
            return f"{module}:{name}"
    # `fast = lampwork.compile(f)` has the name of `f`.
    names = (name for name, each in list(vars(sys.modules[module]).items()) if each is value)
    return next((f"{module}:{name}" for name in names), None)


def _value(target: str) -> Any:
    path, separator, name = target.partition("::")
    if separator:
        module: ModuleType = load_script(Path(path))
    else:
        path, separator, name = target.partition(":")
        if not separator or not path or not name:
            raise ValueError(f"{target}: give package.module:factory, or script.py::factory")
        if "" not in sys.path:
            sys.path.insert(0, "")
        module = importlib.import_module(path)
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise ValueError(f"{path} has no {name!r}") from None
    return value


def _needs_arguments(function: Callable) -> bool:
    if not isinstance(function, FunctionType):
        return True
    parameters = inspect.signature(function).parameters.values()
    return any(
        each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters
    )
