"""Naming objects: `ObjectRef`s for classes, functions and modules, and digests of code. No torch.

Capture makes references, the runtime resolves them: both must agree on what a name means, so the rules live here.
"""

from __future__ import annotations

import _abc
import abc
import collections
import hashlib
import importlib
import sys
import types
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import ref as weak_reference

from lampwork.ir import operations
from lampwork.ir.code_cache import CodeCache
from lampwork.ir.guard import ObjectRef

_MISSING = object()
_FIELD = type(vars(collections.namedtuple("_Fields", "field"))["field"])
#: Kinds of class attributes that are known by a `property_digest`.
PROPERTIES = frozenset({property, _FIELD})
#: Where the classes of PyTorch's operators, and of what those are found in, are: these look an operator up when it is
#: first asked for.
_OPERATORS = "torch._ops"
_RELEASED_OPERATORS = ("aten.", "prims.")
#: Where the classes of Triton's kernels are.
_KERNELS = frozenset({"triton.runtime.jit", "triton.runtime.autotuner", "triton.runtime.interpreter"})
_HEAP_TYPE = 1 << 9  # a class that is made while the program runs
_digests: CodeCache[str] = CodeCache()
_qualname = type.__dict__["__qualname__"].__get__
_mro = type.__dict__["__mro__"].__get__


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
        # Of this package's own modules many are loaded when they are needed.
        if module.partition(".")[0] != __name__.partition(".")[0]:
            raise LookupError(f"module {module} is not loaded")
        try:
            value = importlib.import_module(module)
        except ImportError as error:
            raise LookupError(f"{module}: {error}") from error
    if not qualname:
        return value
    for part in qualname.split("."):
        if isinstance(value, ModuleType) and type(value).__module__ != _OPERATORS:
            value = value.__dict__.get(part, _MISSING)
        elif isinstance(value, type):
            value = value.__dict__.get(part, _MISSING)
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
        elif type(value).__module__ == _OPERATORS:
            # Others than PyTorch's own may be made of something else in this process: who has not looked has none.
            released = qualname.startswith(_RELEASED_OPERATORS)
            value = getattr(value, part, _MISSING) if released else value.__dict__.get(part, _MISSING)
        else:
            value = _MISSING
        if value is _MISSING:
            raise LookupError(f"{module} has no {qualname}")
    return value


def reference(value: Any) -> ObjectRef:
    """The reference that names `value`. `portable` is false where the name does not lead back to the very object."""
    if isinstance(value, ModuleType):
        name = value.__name__
        if sys.modules.get(name) is not value:
            return _part_of_a_module(value, name)
        return ObjectRef("module", name, "", "", True, value)
    kind, digest = _nature(value)
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
    if kind == "class":
        digest = contents_digest(value)
    return ObjectRef(kind, module, str(qualname), digest, False, value)


def namespace_of(function: FunctionType) -> str:
    """The module whose `__dict__` are the globals of `function`; empty where they are no module's."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return str(name) if module is not None and module.__dict__ is function.__globals__ else ""


def module_namespace(name: str) -> dict[str, Any]:
    """The globals of functions of that module. Raises `LookupError` where it is not loaded."""
    module = sys.modules.get(name)
    if module is None:
        raise LookupError(f"module {name} is not loaded")
    return module.__dict__


def _part_of_a_module(value: ModuleType, name: str) -> ObjectRef:
    """The reference that names a module which is only an attribute of another, as `torch.ops.aten` is."""
    place, _, last = name.rpartition(".")
    parent = sys.modules.get(place)
    if isinstance(parent, ModuleType) and parent.__dict__.get(last) is value:
        return ObjectRef("module", place, last, "", True, value)
    return ObjectRef("module", name, "", "", False, value)


def _nature(value: object) -> tuple[str, str]:
    """The kind of `value`, and a digest of what another process must find under its name. A name alone tells nothing of
    what the program, or an import, has put there since."""
    if isinstance(value, type):
        return "class", class_digest(value)
    if isinstance(value, FunctionType):
        return "function", code_digest(value.__code__)
    if type(value) in PROPERTIES:
        return "property", property_digest(value)
    if isinstance(value, BuiltinFunctionType) or (hasattr(type(value), "__objclass__") and hasattr(value, "__name__")):
        return "builtin", f"{type(value).__name__} {value.__name__}"
    return "object", f"{type(value).__module__}.{type(value).__qualname__}"


def class_digest(cls: type) -> str:
    """A digest of the names of `cls` and its base classes, in the order of attribute lookup, of its metaclass and of
    classes registered with it, which `isinstance` and `except` ask for; and of their special methods, which the
    interpreter looks for by itself. What else a class holds is guarded where it is read."""
    if not cls.__flags__ & _HEAP_TYPE:
        return f"{cls.__module__}.{cls.__qualname__}"
    digest = hashlib.sha256()
    for each in (*cls.__mro__, *type.mro(type(cls))):
        module = str(each.__dict__.get("__module__"))
        digest.update(f"{module}.{_qualname(each)}\n".encode(errors="surrogatepass"))
        if each.__flags__ & _HEAP_TYPE and module.partition(".")[0] not in _RELEASED:
            for name, value in sorted(each.__dict__.items(), key=lambda item: str(item[0])):
                if str(name).startswith("__") and name not in _NO_CONTENTS:
                    digest.update(f"{name} ".encode(errors="surrogatepass"))
                    _feed_content(digest.update, value)
            annotations = each.__dict__.get("__annotations__")  # a descriptor, in classes whose instances have some
            _feed(digest.update, tuple(map(str, annotations)) if type(annotations) is dict else ())
            deferred = each.__dict__.get("__annotate_func__")  # from 3.14 on: code, with the names among its constants
            if type(deferred) is FunctionType:
                _feed(digest.update, tuple(name for name in deferred.__code__.co_consts if type(name) is str))
            if isinstance(each, abc.ABCMeta):
                registered = (weak() for weak in _abc._get_dump(each)[0])
                _feed(digest.update, frozenset(_qualname(other) for other in registered if other is not None))
    return digest.hexdigest()[:24]


def is_registered(cls: type, abstract: type) -> bool:
    """Whether `cls` or a base of it was registered with `abstract`, an abstract class, or with a class derived from it.
    Runs no code of a program, as `issubclass` may."""
    bases = set(map(id, _mro(cls)))
    pending, seen = [abstract], {id(abstract)}
    while pending:
        each = pending.pop()
        registered = (weak() for weak in _abc._get_dump(each)[0])
        for other in (*registered, *type.__subclasses__(each)):
            if id(other) in bases:
                return True
            if isinstance(other, abc.ABCMeta) and id(other) not in seen:
                seen.add(id(other))
                pending.append(other)
    return False


def is_replacement(native: object) -> bool:
    """Whether a program has put this function where one of a released module was: it is Python's, of another module."""
    if type(native) is not FunctionType:
        return False
    return str(native.__globals__.get("__name__")).partition(".")[0] not in _RELEASED


#: Modules whose releases are part of every entry's key: their classes are known by name.
_RELEASED = frozenset({*sys.stdlib_module_names, "torch", "lampwork"} - {"__main__"})
#: What a class has beside what its text says, or has of every class.
_NO_CONTENTS = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __qualname__ __annotations__ __annotate__ __annotate_func__ _abc_impl "
    "__abstractmethods__ __annotations_cache__ __firstlineno__ __static_attributes__ __parameters__".split()
)


def contents_digest(cls: type) -> str:
    """A digest of the names of `cls` and its bases, and of what those of them hold that have no importable name: code,
    plain values, and the types of the rest. It stands for a class that has no importable name. What the program reads
    of the class is guarded as well."""
    digest = hashlib.sha256(class_digest(cls).encode())
    for each in cls.__mro__:
        if not each.__flags__ & _HEAP_TYPE or _is_found(each):
            continue
        for name in sorted(set(map(str, vars(each))) - _NO_CONTENTS):
            digest.update(f"{_qualname(each)}.{name} ".encode(errors="surrogatepass"))
            _feed_content(digest.update, vars(each).get(name))
    return digest.hexdigest()[:24]


def _is_found(cls: type) -> bool:
    try:
        return find(str(cls.__dict__.get("__module__")), _qualname(cls)) is cls
    except LookupError:
        return False


def _feed_content(update: Any, value: Any) -> None:
    if isinstance(value, (staticmethod, classmethod)):
        update(type(value).__name__.encode())
        value = value.__func__
    if type(value) is property:
        for function in (value.fget, value.fset, value.fdel):
            update(b"property")
            _feed_content(update, function)
    elif type(value) is FunctionType:
        _feed(update, value.__code__)
    elif _is_constant(value):
        _feed(update, value)
    else:
        update(f"{type(value).__module__}.{type(value).__qualname__}".encode(errors="surrogatepass"))


def _is_constant(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, value))
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def property_digest(value: Any) -> str:
    """A digest of the code of a property's functions; empty if one of them is no Python function. Of a field of a named
    tuple: which it is."""
    if type(value) is _FIELD:
        return f"field {value.__reduce__()[1][0]}"
    functions = (value.fget, value.fset, value.fdel)
    if any(each is not None and type(each) is not FunctionType for each in functions):
        return ""
    return " ".join("" if each is None else code_digest(each.__code__) for each in functions)


def _names(value: Any, kind: str, module: str, qualname: str) -> list[tuple[str, str]]:
    """Names that may lead to `value`, best first."""
    names = [(module, qualname)]
    if type(value).__module__ == _OPERATORS:
        names = [("torch.ops", str(value))]
    if type(value).__module__ in _KERNELS:  # around a function whose name it has, however many decorators it went by
        function = value
        while type(function) is not FunctionType and hasattr(function, "fn"):
            function = function.fn
        names = [(str(function.__module__), str(getattr(function, "__qualname__", "")))]
    if kind == "builtin":
        # `torch.conv2d` says that it is `_VariableFunctionsClass.conv2d`; `torch.nn.functional.linear`, that it is
        # `linear`.
        names.append((module, getattr(value, "__name__", "")))
        # The native function that a Python function of the same name calls, as `torch.cdist` does: its class is known
        # to the extension module alone.
        names.append((f"{module}._C", qualname))
        owner = getattr(value, "__self__", None)
        if isinstance(owner, type):  # `itertools.chain.__new__` says that it is of `builtins`
            names.append((owner.__module__, qualname))
    if kind == "function" and "<locals>" in qualname:  # made by a decorator, as `F.max_pool2d` is
        home = getattr(sys.modules.get(module), "__dict__", {})
        names += [(module, name) for name, found in list(home.items()) if found is value]
    if kind == "class":
        names += _native_names(value)
    owner = getattr(value, "__objclass__", None) if kind == "builtin" else None
    if owner is not None:  # `types.ModuleType.__getattribute__` says that it is of `builtins.module`
        names += [(place, f"{name}.{value.__name__}") for place, name in _native_names(owner)]
    return names


def _native_names(cls: type) -> list[tuple[str, str]]:
    """Where a class of the interpreter has a name: `method` and `cell` are known to the `types` module only, iterators
    to a module of ours."""
    if cls.__module__ != "builtins":
        return []
    places = (types, operations)
    return [(place.__name__, name) for place in places for name, found in vars(place).items() if found is cls]


def decides_by_code(ref: ObjectRef) -> bool:
    """Whether `ref`, from another process, names a function that is told by its code alone: its name leads elsewhere,
    as that of a method which a decorator has replaced."""
    return ref.live is None and not ref.portable and ref.kind in ("function", "property") and bool(ref.digest)


def decides_by_contents(ref: ObjectRef) -> bool:
    """Whether `ref`, from another process, names a class that is known by its contents: its name leads nowhere, as that
    of a class which a function or `type()` has made."""
    return ref.live is None and not ref.portable and ref.kind == "class" and bool(ref.digest)


class ClassWith:
    """Whether a class has contents of this digest. The last one that had is known again by itself."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.known: Callable[[], object] = lambda: None

    def __call__(self, cls: type) -> bool:
        if self.known() is cls:
            return True
        if contents_digest(cls) != self.digest:
            return False
        self.known = weak_reference(cls)
        return True


def resolve(ref: ObjectRef) -> Any:
    """The object `ref` names: the live one, else the one found by name. Raises `LookupError` when there is none.

    What is found by name is not the object where its digest differs: `LookupError` says so.
    """
    if ref.live is not None:
        return ref.live
    if not ref.portable:
        raise LookupError(f"{ref.module}.{ref.qualname} has no importable name")
    value = find(ref.module, ref.qualname)
    if ref.kind == "module":
        if not isinstance(value, ModuleType):
            raise LookupError(f"{ref.module} is no module")
    elif ref.digest and _nature(value) != (ref.kind, ref.digest):
        raise LookupError(f"{'the code of ' if ref.kind == 'function' else ''}{ref.module}.{ref.qualname} changed")
    ref.__dict__["live"] = value  # an entry names a class a hundred times
    return value
