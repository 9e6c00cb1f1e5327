"""Templates: how Python values are rebuilt after a region's graph ran. Data only; pickles.

A region's result and effects mention Python values. A value is a constant, something found at a source, a tensor the
graph computed, or an object made in the region, which `Region.objects[k]` describes once so that identity and cycles
survive: objects are first allocated in order, then filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lampwork.ir.guard import ObjectRef
from lampwork.ir.source import Source


@dataclass(frozen=True)
class ConstantValue:
    """Immutable plain data (the domain of `Equals`)."""

    value: Any


@dataclass(frozen=True)
class ObjectValue:
    """An importable class, function, module."""

    ref: ObjectRef


@dataclass(frozen=True)
class SourceValue:
    """The object found at `source` when the call began (read before any effect is applied)."""

    source: Source


@dataclass(frozen=True)
class TensorValue:
    """Tensor result `index` of the graph. `requires_grad`/`tensor_class` are restored on the object where they differ
    from a plain tensor that requires no gradient."""

    index: int
    tensor_class: ObjectRef | None = None
    requires_grad: bool = False


@dataclass(frozen=True)
class ScalarValue:
    """Python number result `index` of the graph, converted by `kind` ("int", "float", "bool")."""

    index: int
    kind: str


@dataclass(frozen=True)
class NewValue:
    """The object `Region.objects[index]`."""

    index: int


Template = ConstantValue | ObjectValue | SourceValue | TensorValue | ScalarValue | NewValue


# Objects made in the region -----------------------------------------------------------------------


@dataclass(frozen=True)
class NewTuple:
    """A tuple, or a tuple subclass (named tuple, torch.Size) given by `cls`; built when its items are."""

    items: tuple[Template, ...]
    cls: ObjectRef | None = None


@dataclass(frozen=True)
class NewSlice:
    start: Template
    stop: Template
    step: Template


@dataclass(frozen=True)
class NewList:
    items: tuple[Template, ...]


@dataclass(frozen=True)
class NewSet:
    """A set, or frozenset when `frozen`."""

    items: tuple[Template, ...]
    frozen: bool = False


@dataclass(frozen=True)
class NewDict:
    pairs: tuple[tuple[Template, Template], ...]


@dataclass(frozen=True)
class NewDeque:
    items: tuple[Template, ...]
    maxlen: int | None = None


@dataclass(frozen=True)
class NewObject:
    """An instance of `cls` made by its builtin base's `__new__` (object, dict, list, ... ) without running `__init__`:
    `items`/`pairs` are its contents as a builtin container, `attributes` its instance `__dict__`, `slots` its slots."""

    cls: ObjectRef
    attributes: tuple[tuple[str, Template], ...] = ()
    slots: tuple[tuple[str, Template], ...] = ()
    items: tuple[Template, ...] | None = None
    pairs: tuple[tuple[Template, Template], ...] | None = None


@dataclass(frozen=True)
class NewCell:
    contents: Template | None


@dataclass(frozen=True)
class NewFunction:
    """A function made in the region.

    `code` is marshalled by the runtime; `globals_of` names the module of its globals.
    """

    code: Any
    globals_of: Template
    name: str
    qualname: str
    defaults: Template | None
    kwdefaults: Template | None
    closure: tuple[Template, ...]
    attributes: tuple[tuple[str, Template], ...] = ()


@dataclass(frozen=True)
class NewMethod:
    """A bound method `function.__get__(instance)`."""

    function: Template
    instance: Template


@dataclass(frozen=True)
class NewCall:
    """`callable(*args, **kwargs)` for value-like classes whose construction has no effect: partial, range iterators."""

    callable: ObjectRef
    args: tuple[Template, ...]
    kwargs: tuple[tuple[str, Template], ...] = ()


NewThing = (
    NewTuple | NewSlice | NewList | NewSet | NewDict | NewDeque | NewObject | NewCell | NewFunction | NewMethod
    | NewCall
)  # fmt: skip

# Effects: what the program did to objects the caller can see, applied in order after the graph ran


@dataclass(frozen=True)
class SetAttribute:
    """`target.__dict__[name] = value` (instance dict write, no `__setattr__`)."""

    target: Template
    name: str
    value: Template


@dataclass(frozen=True)
class DeleteAttribute:
    target: Template
    name: str


@dataclass(frozen=True)
class CallSetAttribute:
    """`setattr(target, name, value)` through C-level descriptors: slots, `tensor.grad`, `.requires_grad`, `.data`."""

    target: Template
    name: str
    value: Template


@dataclass(frozen=True)
class ReplaceItems:
    """The list/deque at `target` keeps its first `keep` items; then come `items`.

    `keep` None: the items are appended to whatever is there, so `append` needs no guard on what was kept.
    """

    target: Template
    keep: int | None
    items: tuple[Template, ...]


@dataclass(frozen=True)
class SetItem:
    """`target[key] = value` by the builtin container's method (dict or list)."""

    target: Template
    key: Template
    value: Template


@dataclass(frozen=True)
class DeleteItem:
    target: Template
    key: Template


@dataclass(frozen=True)
class ReplaceDict:
    """The dict's contents become exactly `pairs`, in order."""

    target: Template
    pairs: tuple[tuple[Template, Template], ...]


@dataclass(frozen=True)
class ReplaceSet:
    target: Template
    items: tuple[Template, ...]


@dataclass(frozen=True)
class SetCell:
    """The closure cell `index` of the function at `function` gets `value` (None: becomes empty)."""

    function: Template
    index: int
    value: Template | None


@dataclass(frozen=True)
class SetState:
    """Process state `name` (see `ir.source.State`) becomes `value`: grad mode, default dtype, autocast, ..."""

    name: str
    value: Template


@dataclass(frozen=True)
class AdvanceIterator:
    """`next(target)` is called `steps` times; `exhausted`: until StopIteration."""

    target: Template
    steps: int
    exhausted: bool = False


Effect = (
    SetAttribute | DeleteAttribute | CallSetAttribute | ReplaceItems | SetItem | DeleteItem | ReplaceDict | ReplaceSet
    | SetCell | SetState | AdvanceIterator
)  # fmt: skip
