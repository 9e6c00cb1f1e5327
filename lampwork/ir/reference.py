"""Naming objects: `ObjectRef`s for classes, functions and modules, and digests of code. No torch.

Capture makes references, the runtime resolves them: both must agree on what a name means, so the rules live here.
"""

from __future__ import annotations

import hashlib
import sys
import types
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from lampwork.ir import operations
from lampwork.ir.code_cache import CodeCache
from lampwork.ir.guard import ObjectRef

_MISSING = object()
_digests: CodeCache[str] = CodeCache()


def code_digest(code: CodeType) -> str:
    """A digest of what `code` does: instructions, constants, names and exception table; not where it was written.

    Equal digests mean equal behaviour given equal globals, closure and defaults. Stable across processes.
    """
    known = _digests.get(code)
    if known is not None:
        return known
    digest = hashlib.sha256()
    _feed(digest.update, code)
    return _digests.put(code, digest.hexdigest()[:24])


def _feed(update: Any, value: Any) -> None:
    if isinstance(value, CodeType):
        update(b"code")
        shape = (
            value.co_name, value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags,
            value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars,
        )  # fmt: skip
        update(repr(shape).encode())
        update(value.co_code)
        update(value.co_exceptiontable)
        for constant in value.co_consts:
            _feed(update, constant)
    elif isinstance(value, tuple):
        update(b"tuple%d" % len(value))
        for item in value:
            _feed(update, item)
    elif isinstance(value, frozenset):
        # Iteration order depends on the process's hash seed.
        update(("frozenset" + repr(sorted(f"{type(item).__name__}:{item!r}" for item in value))).encode())
    else:
        update(f"{type(value).__name__}:{value!r}".encode())


def find(module: str, qualname: str) -> Any:
    """The object that `module` and `qualname` name in this process; raises `LookupError` when there is none."""
    value: Any = sys.modules.get(module, _MISSING)
    if value is _MISSING:
        raise LookupError(f"module {module} is not loaded")
    if not qualname:
        return value
    for part in qualname.split("."):
        if isinstance(value, ModuleType):
            value = value.__dict__.get(part, _MISSING)
        elif isinstance(value, type):
            value = value.__dict__.get(part, _MISSING)
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
        else:
            value = _MISSING
        if value is _MISSING:
            raise LookupError(f"{module} has no {qualname}")
    return value


def reference(value: Any) -> ObjectRef:
    """The reference that names `value`. `portable` is false where the name does not lead back to the very object."""
    if isinstance(value, ModuleType):
        name = value.__name__
        return ObjectRef("module", name, "", "", sys.modules.get(name) is value, value)
    if isinstance(value, type):
        kind, digest = "class", ""
    elif isinstance(value, FunctionType):
        kind, digest = "function", code_digest(value.__code__)
    elif isinstance(value, BuiltinFunctionType) or (
        hasattr(type(value), "__objclass__") and hasattr(value, "__name__")
    ):
        kind, digest = "builtin", ""
    else:
        kind, digest = "object", ""
    module = getattr(value, "__module__", None)
    qualname = getattr(value, "__qualname__", None)
    owner = getattr(value, "__objclass__", None) if kind == "builtin" else None
    if owner is not None:
        module = owner.__module__
    if not isinstance(module, str):
        module = "builtins" if kind == "builtin" else ""
    if not isinstance(qualname, str):
        qualname = getattr(value, "__name__", None) or ""
    for place, name in _names(value, kind, module, str(qualname)):
        try:
            if name and find(place, name) is value:
                return ObjectRef(kind, place, name, digest, True, value)
        except LookupError:
            continue
    return ObjectRef(kind, module, str(qualname), digest, False, value)


def _names(value: Any, kind: str, module: str, qualname: str) -> list[tuple[str, str]]:
    """Names that may lead to `value`, best first."""
    names = [(module, qualname)]
    if kind == "builtin":
        # `torch.conv2d` says that it is `_VariableFunctionsClass.conv2d`; `torch.nn.functional.linear`, that it is
        # `linear`.
        names.append((module, getattr(value, "__name__", "")))
        owner = getattr(value, "__self__", None)
        if isinstance(owner, type):  # `itertools.chain.__new__` says that it is of `builtins`
            names.append((owner.__module__, qualname))
    if kind == "class" and module == "builtins":
        # `method`, `cell`, `mappingproxy` are known to the `types` module only, iterators to ours.
        names += [("types", name) for name, found in vars(types).items() if found is value]
        names += [(operations.__name__, name) for name, found in vars(operations).items() if found is value]
    return names


def decides_by_code(ref: ObjectRef) -> bool:
    """Whether `ref`, from another process, names a function that is told by its code alone: its name leads elsewhere,
    as that of a method which a decorator has replaced."""
    return ref.live is None and not ref.portable and ref.kind == "function" and bool(ref.digest)


def resolve(ref: ObjectRef) -> Any:
    """The object `ref` names: the live one, else the one found by name. Raises `LookupError` when there is none.

    A function found by name whose code digest differs is not the object: `LookupError` says so.
    """
    if ref.live is not None:
        return ref.live
    if not ref.portable:
        raise LookupError(f"{ref.module}.{ref.qualname} has no importable name")
    value = find(ref.module, ref.qualname)
    if ref.digest and (not isinstance(value, FunctionType) or code_digest(value.__code__) != ref.digest):
        raise LookupError(f"the code of {ref.module}.{ref.qualname} changed")
    return value
