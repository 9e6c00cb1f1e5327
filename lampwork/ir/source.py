"""`Source`: where a Python value came from, as a path from the call that is being compiled. Data only.

A path starts at the compiled callable (`Root`), one of the call's arguments, or a module of `sys.modules`. The runtime
re-reads a path on every call; capture names each value it reads by the path it read it from.
"""

from __future__ import annotations

from typing import Any

from lampwork.ir.record import record


@record
class Root:
    """The callable that was compiled: a function, a bound method, or a module."""


@record
class Argument:
    """Positional argument `index` of the call (before binding to parameters)."""

    index: int


@record
class Keyword:
    """Keyword argument `name` of the call."""

    name: str


@record
class PythonModule:
    """`sys.modules[name]`. A function's globals are `InstanceDict(PythonModule(...))`."""

    name: str


@record
class Named:
    """A class or function by its `module` and `qualname` (for reading attributes of it)."""

    module: str
    qualname: str


@record
class InstanceDict:
    """`base.__dict__` as the real dict (module globals, an object's attributes)."""

    base: Source


@record
class Attribute:
    """`getattr(base, name)` through a C-level slot: `__closure__`, `__code__`, `__func__`, `.grad`, slots members."""

    base: Source
    name: str


@record
class Item:
    """`base[key]` by the builtin container's own method. `key` is a constant, or a `Source` for keys by identity."""

    base: Source
    key: Any


@record
class KeyAt:
    """The `index`-th key of a dict (keys that are objects, such as parameters in optimizer state)."""

    base: Source
    index: int


@record
class Cell:
    """`base.__closure__[index].cell_contents`."""

    base: Source
    index: int


@record
class TypeOf:
    """`type(base)`."""

    base: Source


@record
class Referent:
    """What the weak reference `base` refers to; None once that is gone."""

    base: Source


@record
class ClassAttribute:
    """The raw entry `name` found along the MRO of class `base` (no descriptor protocol)."""

    base: Source
    name: str


@record
class Remembered:
    """What the function behind `functools.lru_cache` at `base` remembers for these arguments, or computes once more.

    Arguments are plain data, or sources of objects.
    """

    base: Source
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()


@record
class Remaining:
    """What the builtin iterator `base` has yet to give, as a sequence; looking at it does not advance the iterator."""

    base: Source


@record
class ArrayMemory:
    """A tensor over the memory of the numpy array `base`, made anew for each call."""

    base: Source


@record
class Numbers:
    """A float64 tensor made on each call: the values of `texts`, Python expressions over the numbers named by `numbers`
    (each a `SizeSource`; see `ir.guard.NUMBER_FUNCTIONS` for what else they may name). On `device`, "" for the CPU: one
    copy that nobody waits for."""

    texts: tuple[str, ...]
    numbers: tuple[Any, ...]
    device: str = ""


@record
class State:
    """Process state by name: grad_mode, inference_mode, autocast, default_dtype, deterministic, num_threads, ..."""

    name: str


Source = (
    Root | Argument | Keyword | PythonModule | Named | InstanceDict | Attribute | Item | KeyAt | Cell | TypeOf
    | Referent | ClassAttribute | Remembered | Remaining | ArrayMemory | Numbers | State
)  # fmt: skip


def describe(source: Source) -> str:
    """The path as the user would write it: `self.layers[3].weight`, `x`, `config.HIDDEN` (for messages only)."""
    match source:
        case Root():
            return "self"
        case Argument(index):
            return f"argument {index}"
        case Keyword(name):
            return f"argument {name!r}"
        case PythonModule(name):
            return name
        case Named(module, qualname):
            return f"{module}.{qualname}"
        case Item(InstanceDict(base), key) if isinstance(key, str):
            return f"{describe(base)}.{key}"
        case Item(Item(InstanceDict(base), "_parameters" | "_buffers" | "_modules"), key):
            return f"{describe(base)}.{key}" if not str(key).isdigit() else f"{describe(base)}[{key}]"
        case InstanceDict(base):
            return f"{describe(base)}.__dict__"
        case Attribute(base, name):
            return f"{describe(base)}.{name}"
        case Item(Remaining(base), key):
            return f"element {key} of what is left of {describe(base)}"
        case Item(base, key):
            return f"{describe(base)}[{describe(key) if is_source(key) else repr(key)}]"
        case KeyAt(base, index):
            return f"list({describe(base)})[{index}]"
        case Cell(base, index):
            return f"closure variable {index} of {describe(base)}"
        case TypeOf(base):
            return f"type({describe(base)})"
        case Referent(base):
            return f"{describe(base)}()"
        case ClassAttribute(base, name):
            return f"{describe(base)}.{name}"
        case Remembered(base, args, kwargs):
            shown = [describe(each) if is_source(each) else repr(each) for each in args]
            shown += [f"{name}={describe(each) if is_source(each) else repr(each)}" for name, each in kwargs]
            return f"{describe(base)}({', '.join(shown)})"
        case Remaining(base):
            return f"what is left of {describe(base)}"
        case ArrayMemory(base):
            return describe(base)
        case Numbers(texts):
            return f"{len(texts)} numbers"
        case State(name):
            return name.replace("_", " ")
    raise TypeError(f"not a source: {source!r}")


def is_static(source: Source) -> bool:
    """The path does not start at the call's arguments or at process state: weights, modules, classes, globals."""
    while True:
        if isinstance(source, (Argument, Keyword, State, Remembered, Remaining, ArrayMemory, Numbers)):
            return False
        if isinstance(source, Item) and is_source(source.key) and not is_static(source.key):
            return False
        base = getattr(source, "base", None)
        if base is None:
            return True
        source = base


def is_lasting(source: Source) -> bool:
    """The path is static, and none of those that lead somewhere else in each step of a training loop: to gradients."""
    step: Source | None = source
    while step is not None:
        if isinstance(step, Attribute) and step.name == "grad":
            return False
        step = getattr(step, "base", None)
    return is_static(source)


def is_source(value: object) -> bool:
    return isinstance(value, Source.__args__)  # type: ignore[attr-defined]
