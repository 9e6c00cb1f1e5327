"""What can be done to the process around a call: modes, settings, builtins and functions that the program calls."""

from __future__ import annotations

import builtins
import dis
import functools
import math
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from tests.mutation.changes import Change, Undo, _names_used
from tests.mutation.places import Root, places, plain_function


def _entered(make: Callable[[], AbstractContextManager]) -> Callable[[Root], Undo]:
    def apply(root: Root) -> Undo:
        context = make()
        context.__enter__()
        return lambda: context.__exit__(None, None, None)  # type: ignore[func-returns-value]

    return apply


def _setting(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Callable[[Root], Undo]:
    def apply(root: Root) -> Undo:
        old = read()
        write(value)
        return lambda: write(old)

    return apply


def _environment(name: str) -> Callable[[Root], Undo]:
    def apply(root: Root) -> Undo:
        old = os.environ.get(name)
        os.environ[name] = "changed"

        def undo() -> None:
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old

        return undo

    return apply


MODES: dict[str, Callable[[Root], Undo]] = {
    "grad mode": lambda root: _entered(lambda: torch.set_grad_enabled(not torch.is_grad_enabled()))(root),
    "inference mode": _entered(torch.inference_mode),
    "autocast": _entered(lambda: torch.autocast("cpu", torch.bfloat16)),
    "default dtype": _setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic mode": _setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "recursion limit": _setting(sys.getrecursionlimit, sys.setrecursionlimit, 2500),
    "matmul precision": _setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "anomaly mode": _setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "environment variable": _environment("HOME"),
}
_OWNERS: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.Tensor", torch.Tensor),
    ("math", math),
    ("operator", operator),
    ("functools", functools),
)
#: Without `__getitem__`: CPython never takes back the slot `sq_item` that a patch fills, and `torch.tensor([a, b])` of
#: tensors raises in that process from then on. `tests/soundness/test_calls_noticed.py` patches it in a process of its own.
_OPERATORS = ("__add__", "__radd__", "__mul__", "__matmul__", "__iter__", "__neg__", "__lt__")
#: What Lampwork, the comparison or Python itself call all the time, under any name.
_LEFT_ALONE = frozenset({
    "__build_class__", "super", "type", "object", "Exception", "BaseException", "property", "staticmethod",
    "classmethod", "locals", "globals", "vars", "print", "isinstance", "issubclass", "__import__",
})  # fmt: skip


def process_changes(root: Root) -> Iterator[Change]:
    """Changes of the process that the program may notice."""
    for name, apply in MODES.items():
        yield Change(name, "process", apply)
    for name in sorted(_imported(root)):
        yield Change("import fails", name, lambda r, n=name: _put_module(n, None))
    for name in sorted(_failing_imports(root)):
        yield Change("import succeeds", name, lambda r, n=name: _put_module(n, types.ModuleType(n)))
    file = root.function.__code__.co_filename if isinstance(root.function, types.FunctionType) else ""
    for name in _OPERATORS:
        found = getattr(torch.Tensor, name)
        yield Change("operator of tensors patched", name, lambda r, n=name, f=found: _patched(torch.Tensor, n, f, file))
    for name in _names_used(list(places(root))):
        found = getattr(builtins, name, None)
        if isinstance(found, (types.BuiltinFunctionType, type)) and name not in _LEFT_ALONE:
            shadowing = lambda r, name=name, found=found: _shadowed(r, name, found)
            yield Change("global shadows builtin", name, shadowing)
            if not isinstance(found, type):
                yield Change("builtin patched", name, lambda r, n=name, f=found: _patched(builtins, n, f, file))
        for where, owner in _OWNERS:
            found = vars(owner).get(name)
            if callable(found) and not isinstance(found, type) and not name.startswith("__"):
                yield Change(f"{where} patched", name, lambda r, o=owner, n=name, f=found: _patched(o, n, f, file))


def _imports(root: Root) -> set[str]:
    """Names that the program's functions import."""
    found: set[str] = set()
    for _, value in places(root):
        function = plain_function(value)
        if function is not None:
            found |= {
                str(step.argval) for step in dis.get_instructions(function.__code__) if step.opname == "IMPORT_NAME"
            }
    return found


def _imported(root: Root) -> set[str]:
    return _imports(root) & _LEAVES & set(sys.modules)


def _failing_imports(root: Root) -> set[str]:
    return {name for name in _imports(root) if name not in sys.modules and name.startswith("absent")}


#: Modules that nothing else needs while a program is called.
_LEAVES = frozenset({"string", "colorsys", "statistics", "fractions", "decimal"})


def _put_module(name: str, module: Any) -> Undo:
    kept = sys.modules.get(name, _ABSENT)
    sys.modules[name] = module

    def undo() -> None:
        if kept is _ABSENT:
            del sys.modules[name]
        else:
            sys.modules[name] = kept  # type: ignore[assignment]

    return undo


_ABSENT = object()


def _shadowed(root: Root, name: str, found: Any) -> Undo:
    names = vars(root.module)
    if name in names:
        return lambda: None
    names[name] = _told_apart(found)

    def undo() -> None:
        del names[name]

    return undo


def _told_apart(found: Callable) -> Callable:
    def changed(*args: Any, **kwargs: Any) -> Any:
        return _other(found(*args, **kwargs))

    return changed


def _other(result: Any) -> Any:
    if isinstance(result, bool):
        return not result
    return result + 1 if isinstance(result, (int, float, torch.Tensor)) else result


def _patched(owner: Any, name: str, found: Callable, file: str) -> Undo:
    """Calls from the program's file get another result."""

    @functools.wraps(found)
    def patched(*args: Any, **kwargs: Any) -> Any:
        result = found(*args, **kwargs)
        caller = sys._getframe(1).f_code.co_filename
        return _other(result) if caller == file or "/capture/" in caller else result

    kept = vars(owner).get(name, _ABSENT)  # absent: inherited
    setattr(owner, name, patched)

    def undo() -> None:
        if kept is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, kept)

    return undo
