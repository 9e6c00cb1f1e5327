"""`Guard`: a test of the value at a `Source`, under which a captured region stays valid. Data only.

Objects are named, never addressed: a class or function by module, qualified name and a digest of its code. `live`
objects speed up the check inside the process that captured and are dropped when stored; a test whose object has no
importable name is `portable = False`, and its entry stays in memory.

The runtime compiles an entry's guards into one check (`runtime/guards/compile.py` has one emitter per test type).
Capture adds a guard whenever it READS a value, never when it copies one.
"""

from __future__ import annotations

import ast
import ctypes
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from lampwork.ir.location import Location
from lampwork.ir.record import record
from lampwork.ir.source import Source
from lampwork.ir.text import UnboundName


@record
class ObjectRef:
    """A class, function, module or other importable object.

    `kind`: "class" | "function" | "property" | "builtin" | "module" | "object". `digest`: of what another process must
    find there: the code of a Python function, the base classes of a class (see `ir/reference.py`).
    `live` is the object itself, absent of a stored entry; `portable` says whether module + qualname finds it again.
    """

    kind: str
    module: str
    qualname: str
    digest: str = ""
    portable: bool = True
    live: Any = field(default=None, compare=False, repr=False, hash=False)

    def __getstate__(self) -> tuple:
        return (self.kind, self.module, self.qualname, self.digest, self.portable)

    def __setstate__(self, state: tuple) -> None:
        for name, value in zip(("kind", "module", "qualname", "digest", "portable"), state, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "live", None)


# Tests --------------------------------------------------------------------------------------------


@record
class TypeIs:
    """`type(value) is ref`."""

    ref: ObjectRef


@record
class Equals:
    """Same type and equal: None, bool, int, float (NaN equals NaN, 0.0 differs from -0.0), complex, str, bytes, enum
    members, torch dtypes/devices/layouts/memory formats, torch.Size, regular expressions, numpy's numbers (by their
    bytes), slices, ranges, and tuples/frozensets of these."""

    value: Any


@record
class IsObject:
    """`value is ref` (classes, modules, builtins, importable singletons)."""

    ref: ObjectRef


@record
class FunctionIs:
    """A Python function with the code `ref.digest`. Its closure, defaults and globals are guarded apart, when read."""

    ref: ObjectRef


@record
class TensorIs:
    """A tensor with exactly this metadata. Shapes and strides are ints, or None where the dimension is dynamic.

    `tensor_type`: qualified class name ("torch.Tensor", "torch.nn.parameter.Parameter", or a subclass).
    `offset_aligned`: the data pointer is a multiple of 64 bytes (None: not looked at).
    """

    tensor_type: str
    dtype: str
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    device: str
    requires_grad: bool
    layout: str = "strided"
    is_leaf: bool | None = None
    is_inference: bool = False
    is_conj: bool = False
    is_neg: bool = False


@record
class LengthIs:
    length: int


@record
class KeysAre:
    """The dict's keys, in order (constant keys). The set's elements, in any order, when `ordered` is false."""

    keys: tuple[Any, ...]
    ordered: bool = True


@record
class HasKey:
    """`key in value` is `present`. For instance attributes the source is an `InstanceDict`."""

    key: Any
    present: bool


@record
class ClassLookup:
    """Attribute `name` along the MRO of the class at the source: is `found` (None: nothing there). `wrapper`: the
    function `found` is in a "staticmethod" or "classmethod".

    For plain data in a class use a `ClassAttribute` source with `Equals` instead.
    """

    name: str
    found: ObjectRef | None
    wrapper: str = ""


@record
class SameObject:
    """`value is` the value at `other`."""

    other: Source


@record
class Distinct:
    """The value and all `others` are pairwise different objects.

    Emitted once over all tensor inputs / mutable objects.
    """

    others: tuple[Source, ...]


@record
class StorageGroups:
    """Aliasing among tensor inputs. `groups`: inputs that overlap in memory, with byte offsets relative to the first of
    the group; inputs in no group overlap with no other. The source is any of the inputs; `sources` lists all."""

    sources: tuple[Source, ...]
    groups: tuple[tuple[tuple[int, int], ...], ...]


@record
class ModuleIsPlain:
    """The nn.Module at the source has no instance override of `forward`/`__call__` helpers and empty hook dicts.

    `names`: the instance attributes that must be absent; `empty`: those that must be empty dicts.
    """

    names: tuple[str, ...]
    empty: tuple[str, ...]


@record
class SizeSource:
    """The number called `name` in a `SizeRelation`. `kind`: "shape" or "stride" of dimension `axis` of the tensor at
    `source`, its storage "offset", the "value" at `source` itself (an int or float), or the "item" of the tensor of one
    element there."""

    name: str
    source: Source
    kind: str
    axis: int = 0


def size_text(size: SizeSource, value: str) -> str:
    """The expression for the number, where the expression `value` is the tensor or number at its source."""
    if size.kind == "item":
        return f"{value}.item()"
    if size.kind == "shape":
        return f"{value}.shape[{size.axis}]"
    if size.kind == "stride":
        return f"{value}.stride({size.axis})"
    return f"{value}.storage_offset()" if size.kind == "offset" else value


def single(value: float) -> float:
    """`value` rounded to single precision, as a tensor of float32 stores it."""
    return ctypes.c_float(value).value


#: What expressions over numbers may name, beside the numbers.
NUMBER_FUNCTIONS: dict[str, Any] = {
    "math": math, "single": single, "min": min, "max": max, "abs": abs, "float": float, "int": int, "type": type,
    "round": round,
}  # fmt: skip


@record
class SizeRelation:
    """`text`, a Python expression over the integers named by `sizes`, is true: `2 <= s0`, `s1 == 2*s0`.

    The guard's source is that of the first of them.
    """

    text: str
    sizes: tuple[SizeSource, ...]


def unbound_names(text: str, sizes: Sequence[SizeSource]) -> list[str]:
    """Names in the expression `text` that are neither those of `sizes` nor in `NUMBER_FUNCTIONS`."""
    bound = {size.name for size in sizes}
    names = [each.id for each in ast.walk(ast.parse(text, mode="eval")) if isinstance(each, ast.Name)]
    return [name for name in dict.fromkeys(names) if name not in bound and name not in NUMBER_FUNCTIONS]


def relation_over(text: str, sizes: tuple[SizeSource, ...]) -> SizeRelation:
    """The `SizeRelation`. Raises `UnboundName` where `text` names a number that a call does not have."""
    unbound = unbound_names(text, sizes)
    if unbound:
        raise UnboundName(f"the relation {text!r} names {', '.join(unbound)}, which no call has")
    return SizeRelation(text, sizes)


@record
class ArgumentCount:
    """The call has `positional` positional arguments and exactly these keywords, in any order (source: Root)."""

    positional: int
    keywords: tuple[str, ...]


Test = (
    TypeIs | Equals | IsObject | FunctionIs | TensorIs | LengthIs | KeysAre | HasKey | ClassLookup | SameObject
    | Distinct | StorageGroups | ModuleIsPlain | ArgumentCount | SizeRelation
)  # fmt: skip


@record
class Guard:
    """`test` holds for the value at `source`. `location`: the user's line that read it (for messages)."""

    source: Source
    test: Test
    location: Location = field(default=Location(), compare=False)
