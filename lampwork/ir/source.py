"""`Source`: where a Python value came from, as a path from the call that is being compiled. Data only.

A path starts at the compiled callable (`Root`), one of the call's arguments, or a module of `sys.modules`. The runtime
re-reads a path on every call; capture names each value it reads by the path it read it from.

Each kind of step is one class here: its fields, how users write it, and whether a call decides what it leads to. How it
is read is one class of `runtime/guards/steps/`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from lampwork.ir.record import record
from lampwork.ir.stored import Key, OneOf

if TYPE_CHECKING:
    from lampwork.ir.number import NumberExpr


class Source:
    """One step of a path. A step that starts at another value has that value's path as its `base`."""

    #: Whether a call, or the state of the process, decides what is here: the path is not static.
    from_call: ClassVar[bool] = False

    def describe(self) -> str:
        """The path as the user would write it: `self.layers[3].weight`, `x`, `config.HIDDEN` (for messages only)."""
        raise TypeError(f"not a source: {self!r}")

    def parent(self) -> Source | None:
        """The step that this one starts at; None at the start of the path."""
        return getattr(self, "base", None)

    def keys(self) -> tuple[Source, ...]:
        """The paths beside `base` that the value depends on."""
        return ()


@record
class Root(Source):
    """The callable that was compiled: a function, a bound method, or a module."""

    def describe(self) -> str:
        return "self"


@record
class Argument(Source):
    """Positional argument `index` of the call (before binding to parameters)."""

    index: int

    from_call = True

    def describe(self) -> str:
        return f"argument {self.index}"


@record
class Keyword(Source):
    """Keyword argument `name` of the call."""

    name: str

    from_call = True

    def describe(self) -> str:
        return f"argument {self.name!r}"


@record
class PythonModule(Source):
    """`sys.modules[name]`. A function's globals are `InstanceDict(PythonModule(...))`."""

    name: str

    def describe(self) -> str:
        return self.name


@record
class Named(Source):
    """A class or function by its `module` and `qualname` (for reading attributes of it)."""

    module: str
    qualname: str

    def describe(self) -> str:
        return f"{self.module}.{self.qualname}"


@record
class InstanceDict(Source):
    """`base.__dict__` as the real dict (module globals, an object's attributes)."""

    base: Source

    def describe(self) -> str:
        return f"{describe(self.base)}.__dict__"


@record
class Attribute(Source):
    """`getattr(base, name)` through a C-level slot: `__closure__`, `__code__`, `__func__`, `.grad`, slots members."""

    base: Source
    name: str

    def describe(self) -> str:
        return f"{describe(self.base)}.{self.name}"


@record
class Item(Source):
    """`base[key]` by the builtin container's own method. `key` is a constant, or a `Source` for keys by identity."""

    base: Source
    key: Key

    def describe(self) -> str:
        base, key = self.base, self.key
        if isinstance(base, InstanceDict) and isinstance(key, str):
            return f"{describe(base.base)}.{key}"
        if isinstance(base, Item) and isinstance(base.base, InstanceDict) and base.key in _MODULE_DICTS:
            module = describe(base.base.base)
            if type(key) is not str:
                return f"{module}[{shown(key)}]"
            return f"{module}.{key}" if not str(key).isdigit() else f"{module}[{key}]"
        if isinstance(base, Remaining):
            return f"element {key} of what is left of {describe(base.base)}"
        if key is ...:
            return f"{describe(base)}[any]"
        return f"{describe(base)}[{shown(key)}]"

    def keys(self) -> tuple[Source, ...]:
        return (self.key,) if is_source(self.key) else ()


#: What `torch.nn.Module` keeps in dicts of its own, and gives as attributes.
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")


@record
class KeyAt(Source):
    """The `index`-th key of a dict (keys that are objects, such as parameters in optimizer state)."""

    base: Source
    index: int

    def describe(self) -> str:
        return f"list({describe(self.base)})[{self.index}]"


@record
class Cell(Source):
    """`base.__closure__[index].cell_contents`."""

    base: Source
    index: int

    def describe(self) -> str:
        return f"closure variable {self.index} of {describe(self.base)}"


@record
class TypeOf(Source):
    """`type(base)`."""

    base: Source

    def describe(self) -> str:
        return f"type({describe(self.base)})"


@record
class Referent(Source):
    """What the weak reference `base` refers to; None once that is gone."""

    base: Source

    def describe(self) -> str:
        return f"{describe(self.base)}()"


@record
class ClassAttribute(Source):
    """The raw entry `name` found along the MRO of class `base` (no descriptor protocol)."""

    base: Source
    name: str

    def describe(self) -> str:
        return f"{describe(self.base)}.{self.name}"


@record
class Remembered(Source):
    """What the cached function (`functools.lru_cache`) at `base` remembers for these arguments, or computes once more.

    Arguments are plain data, or sources of objects.
    """

    base: Source
    args: tuple[Key, ...]
    kwargs: tuple[tuple[str, Key], ...] = ()

    from_call = True

    def describe(self) -> str:
        parts = [shown(each) for each in self.args] + [f"{name}={shown(each)}" for name, each in self.kwargs]
        return f"{describe(self.base)}({', '.join(parts)})"

    def keys(self) -> tuple[Source, ...]:
        return tuple(each for each in (*self.args, *(each for _, each in self.kwargs)) if is_source(each))


@record
class ContextValue(Source):
    """What the context variable `base` holds for the caller, or, if `has_default`, its own default;
    `ir.operations.NoValue` where that is nothing."""

    base: Source
    has_default: bool

    from_call = True

    def describe(self) -> str:
        return f"{describe(self.base)}.get()"


@record
class ThreadNames(Source):
    """The dict of what the `threading.local` at `base` holds in the thread of the caller."""

    base: Source

    from_call = True

    def describe(self) -> str:
        return f"{describe(self.base)}.__dict__"


@record
class Remaining(Source):
    """What the builtin iterator `base` has yet to give, as a sequence; looking at it does not advance the iterator."""

    base: Source

    from_call = True

    def describe(self) -> str:
        return f"what is left of {describe(self.base)}"


@record
class Subclasses(Source):
    """The classes that derive from the class `base` itself, as a tuple."""

    base: Source

    from_call = True

    def describe(self) -> str:
        return f"{describe(self.base)}.__subclasses__()"


@record
class PlainContents(Source):
    """What the object `base`, of a class that derives from `str`, `bytes` or a class of numbers, holds: plain data of
    that class (`operations.plain_contents`)."""

    base: Source

    def describe(self) -> str:
        return f"the contents of {describe(self.base)}"


@record
class ArrayMemory(Source):
    """A tensor over the memory of the numpy array `base`, made anew for each call."""

    base: Source

    from_call = True

    def describe(self) -> str:
        return describe(self.base)


@record
class PlainTensor(Source):
    """A plain tensor over the memory of the tensor `base`, which is of a subclass, made anew for each call."""

    base: Source

    from_call = True

    def describe(self) -> str:
        return describe(self.base)


@record
class Numbers(Source):
    """A float64 tensor made on each call: the values of `numbers`. On `device`, "" for the CPU: one copy that nobody
    waits for."""

    numbers: tuple[NumberExpr, ...]
    device: str = ""

    from_call = True

    def describe(self) -> str:
        return f"{len(self.numbers)} numbers"

    def keys(self) -> tuple[Source, ...]:
        return tuple({id(leaf): leaf.source for number in self.numbers for leaf in number.leaves}.values())


@record
class Computed(Source):
    """An integer that the host computes on each call, of numbers that the call has."""

    number: NumberExpr

    from_call = True

    def describe(self) -> str:
        return f"an integer made of {' and '.join(describe(each) for each in self.keys())}"

    def keys(self) -> tuple[Source, ...]:
        return tuple({id(leaf): leaf.source for leaf in self.number.leaves}.values())


@record
class HostInput(Source):
    """A tensor with what host call `index` of the region gives: a number, in a tensor of no dimensions and of type
    `dtype` on `device` ("" for the CPU); or for `dtype` "" a tensor, or the memory of a numpy array. The entry makes
    it, after its guards were checked."""

    index: int
    dtype: Annotated[str, OneOf("float64", "int64", "bool", "")]
    device: str = ""

    from_call = True

    def describe(self) -> str:
        return f"host call {self.index}"


@record
class State(Source):
    """Process state by name: grad_mode, inference_mode, autocast, default_dtype, deterministic, num_threads, ..."""

    name: str

    from_call = True

    def describe(self) -> str:
        return self.name.replace("_", " ")


def describe(source: Source) -> str:
    """The path as the user would write it: `self.layers[3].weight`, `x`, `config.HIDDEN` (for messages only)."""
    return source.describe()


def shown(key: Any) -> str:
    """A key, a constant or a source, as the user would write it."""
    return describe(key) if is_source(key) else repr(key)


def root_of(source: Source) -> Source:
    """Where the path starts."""
    while True:
        base = source.parent()
        if base is None:
            return source
        source = base


def is_static(source: Source) -> bool:
    """The path does not start at the call's arguments or at process state: weights, modules, classes, globals."""
    step: Source | None = source
    while step is not None:
        if step.from_call or not all(map(is_static, step.keys())):
            return False
        step = step.parent()
    return True


def is_lasting(source: Source) -> bool:
    """The path is static, and none of those that lead somewhere else in each step of a training loop: to gradients."""
    step: Source | None = source
    while step is not None:
        if isinstance(step, Attribute) and step.name == "grad":
            return False
        step = step.parent()
    return is_static(source)


def by_any_key(source: Source, names: Collection[object] = ()) -> Source | None:
    """The path with any key in the place of texts that vary: keys that are sources, and those of `names`. It begins at
    the last public name before the first of them, so that it is the same for all layers of a model; None without one.

        self.layers[3].scales[self.chosen]      scales[any]
    """
    steps: list[Source] = [source]
    while (base := steps[-1].parent()) is not None:
        steps.append(base)
    steps.reverse()
    first = next((place for place, each in enumerate(steps) if is_open(each, names)), None)
    if first is None:
        return None
    start = first
    while start > 1 and not _is_public(steps[start - 1]):
        start -= 1
    path: Source = Root()
    for step in steps[max(start - 1, 1) :]:
        path = Item(path, ...) if is_open(step, names) else from_base(step, path)
    return path


def from_base(step: Any, base: Source) -> Source:
    """The same step from another value."""
    return replace(step, base=base)


def is_open(step: Source, names: Collection[object]) -> bool:
    """Whether it is an item of a dict or list, at a key that varies: a source, or one of `names`."""
    if not isinstance(step, Item) or isinstance(step.base, InstanceDict):
        return False
    return is_source(step.key) or (type(step.key) in (str, int) and step.key in names)


def _is_public(step: Source) -> bool:
    return isinstance(step, Item) and type(step.key) is str and not step.key.startswith("_")


def any_element(source: Source) -> Source:
    """The path with any index in the place of its last: texts in one list are chosen together."""
    return Item(source.base, ...) if isinstance(source, Item) and type(source.key) is int else source


def is_source(value: object) -> bool:
    return isinstance(value, Source)
