"""Templates: how Python values are rebuilt after a region's graph ran. Data only.

A region's result and effects mention Python values. A value is a constant, something found at a source, a tensor the
graph computed, or an object made in the region, which `Region.objects[k]` describes once so that identity and cycles
survive: objects are first allocated in order, then filled.
"""

from __future__ import annotations

from typing import Any

from lampwork.ir.guard import ObjectRef
from lampwork.ir.number import NumberExpr
from lampwork.ir.record import record
from lampwork.ir.source import Source


@record
class ConstantValue:
    """Immutable plain data (the domain of `Equals`)."""

    value: Any


@record
class ObjectValue:
    """An importable class, function, module."""

    ref: ObjectRef


@record
class SourceValue:
    """The object found at `source` when the call began (read before any effect is applied)."""

    source: Source


@record
class TensorValue:
    """Tensor result `index` of the graph. `requires_grad`/`tensor_class` are restored on the object where they differ
    from a plain tensor that requires no gradient. `spent`: it has a history that a `backward()` freed."""

    index: int
    tensor_class: ObjectRef | None = None
    requires_grad: bool = False
    spent: bool = False


@record
class ScalarValue:
    """Python number result `index` of the graph, converted by `kind` ("int", "float", "bool")."""

    index: int
    kind: str


@record
class NumberValue:
    """A Python number: an expression over those that the call has (`2*s0`, `s0` the size of an input)."""

    number: NumberExpr


@record
class HostValue:
    """What host call `index` of the region gave."""

    index: int


@record
class NewValue:
    """The object `Region.objects[index]`."""

    index: int


Template = ConstantValue | ObjectValue | SourceValue | TensorValue | ScalarValue | NumberValue | HostValue | NewValue


@record
class HostCall:
    """`function(*args, **kwargs)`, made by each call of the entry before its graph runs, in the program's order: random
    numbers of the host, clocks, and what is computed of them. `HostValue(index)` is its result."""

    index: int
    function: ObjectRef
    args: tuple[Template, ...]
    kwargs: tuple[tuple[str, Template], ...] = ()


# Objects made in the region -----------------------------------------------------------------------


@record
class NewTuple:
    """A tuple, or a tuple subclass (named tuple, torch.Size) given by `cls`; built when its items are."""

    items: tuple[Template, ...]
    cls: ObjectRef | None = None


@record
class NewSlice:
    start: Template
    stop: Template
    step: Template


@record
class NewList:
    items: tuple[Template, ...]


@record
class NewSet:
    """A set, or frozenset when `frozen`."""

    items: tuple[Template, ...]
    frozen: bool = False


@record
class NewDict:
    pairs: tuple[tuple[Template, Template], ...]


@record
class NewDeque:
    items: tuple[Template, ...]
    maxlen: int | None = None


@record
class NewObject:
    """An instance of `cls` made by its builtin base's `__new__` (object, dict, list, ... ) without running `__init__`:
    `items`/`pairs` are its contents as a builtin container, `attributes` its instance `__dict__`, `slots` its slots.
    `value`: the number or text that it is, where `cls` derives from int, str and the like."""

    cls: ObjectRef
    attributes: tuple[tuple[str, Template], ...] = ()
    slots: tuple[tuple[str, Template], ...] = ()
    items: tuple[Template, ...] | None = None
    pairs: tuple[tuple[Template, Template], ...] | None = None
    value: Template | None = None


@record
class NewCell:
    contents: Template | None


@record
class NewFunction:
    """A function made in the region.

    `code` is written field by field when it is stored; `globals_of` names the module of its globals.
    """

    code: Any
    globals_of: Template
    name: str
    qualname: str
    defaults: Template | None
    kwdefaults: Template | None
    closure: tuple[Template, ...]
    attributes: tuple[tuple[str, Template], ...] = ()


@record
class NewMethod:
    """A bound method `function.__get__(instance)`."""

    function: Template
    instance: Template


@record
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


@record
class SetAttribute:
    """`target.__dict__[name] = value` (instance dict write, no `__setattr__`)."""

    target: Template
    name: str
    value: Template


@record
class DeleteAttribute:
    target: Template
    name: str


@record
class CallSetAttribute:
    """`setattr(target, name, value)` through C-level descriptors: slots, `tensor.grad`, `.requires_grad`, `.data`.

    `unseen`: the program did not look at what was there. `past`: not through a `__setattr__` of the program's, which
    has run: what it stored is stored.
    """

    target: Template
    name: str
    value: Template
    unseen: bool = False
    past: bool = False


@record
class ReplaceItems:
    """The list/deque at `target` keeps its first `keep` items; then come `items`.

    `keep` None: the items are appended to whatever is there, so `append` needs no guard on what was kept.
    """

    target: Template
    keep: int | None
    items: tuple[Template, ...]


@record
class SetItem:
    """`target[key] = value` by the builtin container's method (dict or list)."""

    target: Template
    key: Template
    value: Template


@record
class DeleteItem:
    target: Template
    key: Template


@record
class ReplaceDict:
    """The dict's contents become exactly `pairs`, in order."""

    target: Template
    pairs: tuple[tuple[Template, Template], ...]


@record
class ReplaceSet:
    target: Template
    items: tuple[Template, ...]


@record
class SetCell:
    """The closure cell `index` of the function at `function` gets `value` (None: becomes empty)."""

    function: Template
    index: int
    value: Template | None


@record
class SetState:
    """Process state `name` (see `ir.source.State`) becomes `value`: grad mode, default dtype, autocast, ..."""

    name: str
    value: Template


@record
class AdvanceIterator:
    """`next(target)` is called `steps` times; `exhausted`: until StopIteration."""

    target: Template
    steps: int
    exhausted: bool = False


@record
class Evaluate:
    """The items are computed before any effect, whether something names them or not: computing them may fail."""

    items: tuple[Template, ...]


@record
class Call:
    """`function(*args)`: what the program writes, logs or warns of."""

    function: ObjectRef
    args: tuple[Template, ...]


Effect = (
    SetAttribute | DeleteAttribute | CallSetAttribute | ReplaceItems | SetItem | DeleteItem | ReplaceDict | ReplaceSet
    | SetCell | SetState | AdvanceIterator | Evaluate | Call
)  # fmt: skip
