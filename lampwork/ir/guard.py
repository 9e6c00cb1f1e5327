"""`Guard`: a test of the value at a `Source`, under which a captured region stays valid. Data only.

Objects are named, never addressed: a class or function by module, qualified name and a digest of its code. `live`
objects speed up the check inside the process that captured and are dropped when stored; a test whose object has no
importable name is `portable = False`, and its entry stays in memory.

The runtime compiles an entry's guards into one check (`runtime/guards/tests/` has one rule for each kind of test).
Capture adds a guard whenever it READS a value, never when it copies one.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, ClassVar

from lampwork.ir.location import Location
from lampwork.ir.number import Compare, Constant, Leaf, NumberExpr, words
from lampwork.ir.record import record
from lampwork.ir.source import Argument, Keyword, Root, Source, State, describe, is_source, is_static, root_of, shown
from lampwork.ir.stored import Data, Dropped, Key, OneOf


@record
class ObjectRef:
    """A class, function, module or other importable object.

    `kind`: "class" | "function" | "property" | "builtin" | "module" | "object". `digest`: of what another process must
    find there: the code of a Python function, the base classes of a class (see `ir/reference.py`).
    `live` is the object itself, absent of a stored entry; `portable` says whether module + qualname finds it again.
    """

    kind: Annotated[str, OneOf("class", "function", "property", "builtin", "module", "object")]
    module: str
    qualname: str
    digest: str = ""
    portable: bool = True
    live: Dropped = field(default=None, compare=False, repr=False, hash=False)

    def __getstate__(self) -> tuple:
        return (self.kind, self.module, self.qualname, self.digest, self.portable)

    def __setstate__(self, state: tuple) -> None:
        for name, value in zip(("kind", "module", "qualname", "digest", "portable"), state, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "live", None)


# Tests --------------------------------------------------------------------------------------------


class Test:
    """What is asked of a value. Each kind is one class: its fields, and what can be said without the value. How it is
    checked is one class of `runtime/guards/tests/`."""

    #: What it is about, of `ABOUT`. Empty: what its source says; `about_static` where that is static.
    about: ClassVar[str] = ""
    about_static: ClassVar[str] = ""
    #: Kinds of `references` that the test recognises by their digest, where no name leads to them.
    by_digest: ClassVar[tuple[str, ...]] = ()

    def words(self, where: str) -> str:
        """What it says of the value at `where`, as the user would put it."""
        raise TypeError(f"not a test: {self!r}")

    def reads(self) -> tuple[Source, ...]:
        """The sources beside the guard's own whose values the test looks at."""
        return ()

    def references(self) -> tuple[ObjectRef, ...]:
        """The objects that another process must find, by name or as `by_digest` says."""
        return ()


#: What guards are about, in the order they are told.
ABOUT = (
    "arguments",
    "sizes that may vary",
    "sharing among tensors and objects",
    "process state",
    "weights and buffers",
    "modules and objects",
    "globals, classes and functions",
)
ARGUMENTS, SIZES, SHARING, STATE, WEIGHTS, MODULES, GLOBALS = ABOUT


def about(guard: Guard) -> str:
    """What the guard is about, of `ABOUT`."""
    if guard.test.about:
        return guard.test.about
    root = root_of(guard.source)
    if isinstance(root, (Argument, Keyword)):
        return ARGUMENTS
    if isinstance(root, State):
        return STATE
    if guard.test.about_static:
        return guard.test.about_static
    return MODULES if isinstance(root, Root) and is_static(guard.source) else GLOBALS


@record
class TypeIs(Test):
    """`type(value) is ref`."""

    ref: ObjectRef

    by_digest = ("class",)

    def words(self, where: str) -> str:
        return f"type of {where} is {self.ref.module}.{self.ref.qualname}"

    def references(self) -> tuple[ObjectRef, ...]:
        return (self.ref,)


@record
class Equals(Test):
    """Same type and equal: None, bool, int, float (NaN equals NaN, 0.0 differs from -0.0), complex, str, bytes, enum
    members, torch dtypes/devices/layouts/memory formats, torch.Size, regular expressions, numpy's numbers (by their
    bytes), slices, ranges, and tuples/frozensets of these."""

    value: Data

    def words(self, where: str) -> str:
        return f"{where} == {self.value!r}"


@record
class IsObject(Test):
    """`value is ref` (classes, modules, builtins, importable singletons)."""

    ref: ObjectRef

    by_digest = ("class",)

    def words(self, where: str) -> str:
        return f"{where} is {self.ref.module}.{self.ref.qualname}".rstrip(".")

    def references(self) -> tuple[ObjectRef, ...]:
        return (self.ref,)


@record
class FunctionIs(Test):
    """A Python function with the code `ref.digest`. Its closure and defaults have guards of their own. One without an
    importable name has its code alone as `ref.live`: its closure is no business of the artifact's.

    `namespace`: the module whose `__dict__` its globals are; empty where they are no module's, and are guarded where
    they are read of the function.
    """

    ref: ObjectRef
    namespace: str = ""

    about_static = GLOBALS

    def words(self, where: str) -> str:
        return f"{where} is a function with the code of {self.ref.module}.{self.ref.qualname}"


@record
class TensorIs(Test):
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

    about_static = WEIGHTS

    def words(self, where: str) -> str:
        grad = ", requires grad" if self.requires_grad else ""
        kind = self.tensor_type.rpartition(".")[2]
        layout = f"{_dims(self.shape)} strides {_dims(self.strides)}"
        return f"{where} is a {kind} {self.dtype}{layout} on {self.device}{grad}"


def _dims(values: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("any" if value is None else str(value) for value in values) + "]"


@record
class LengthIs(Test):
    """The builtin container has `length` items."""

    length: int

    def words(self, where: str) -> str:
        return f"len({where}) == {self.length}"


@record
class IsEmpty(Test):
    """The builtin container has no items, or, if not `empty`, some."""

    empty: bool

    def words(self, where: str) -> str:
        return f"not {where}" if self.empty else f"len({where}) > 0"


@record
class KeysAre(Test):
    """The dict's keys, in order (constant keys). The set's elements, in any order, when `ordered` is false."""

    keys: tuple[Data, ...]
    ordered: bool = True

    def words(self, where: str) -> str:
        return f"keys of {where} are {list(self.keys)!r}" + ("" if self.ordered else " in any order")


@record
class HasKey(Test):
    """`key in value` is `present`. For instance attributes the source is an `InstanceDict`. `key` is a constant, or the
    source of a text, or of an object with a name, that is the key."""

    key: Key
    present: bool

    def reads(self) -> tuple[Source, ...]:
        return (self.key,) if is_source(self.key) else ()

    def words(self, where: str) -> str:
        return f"{shown(self.key)} {'in' if self.present else 'not in'} {where}"


@record
class ClassLookup(Test):
    """Attribute `name` along the MRO of the class at the source: is `found` (None: nothing there). `wrapper`: the
    function `found` is in a "staticmethod" or "classmethod".

    For plain data in a class use a `ClassAttribute` source with `Equals` instead.
    """

    name: str
    found: ObjectRef | None
    wrapper: Annotated[str, OneOf("", "staticmethod", "classmethod")] = ""

    about_static = GLOBALS
    by_digest = ("function", "property")

    def words(self, where: str) -> str:
        return f"{where}.{self.name} is {'absent' if self.found is None else self.found.qualname}"

    def references(self) -> tuple[ObjectRef, ...]:
        return () if self.found is None else (self.found,)


@record
class MroIs(Test):
    """The method resolution order of the class at the source, from the class's first base on."""

    bases: tuple[ObjectRef, ...]

    about_static = GLOBALS
    by_digest = ("class",)

    def words(self, where: str) -> str:
        return f"bases of {where} are {', '.join(each.qualname for each in self.bases)}"

    def references(self) -> tuple[ObjectRef, ...]:
        return self.bases


@record
class Registered(Test):
    """Whether the class at the source, or a base of it, was registered with the abstract class `abstract` or with a
    class derived from that."""

    abstract: ObjectRef
    registered: bool

    about_static = GLOBALS

    def words(self, where: str) -> str:
        return f"{where} is {'' if self.registered else 'not '}registered with {self.abstract.qualname}"

    def references(self) -> tuple[ObjectRef, ...]:
        return (self.abstract,)


@record
class SameObject(Test):
    """`value is` the value at `other`."""

    other: Source

    about = SHARING

    def words(self, where: str) -> str:
        return f"{where} is {describe(self.other)}"

    def reads(self) -> tuple[Source, ...]:
        return (self.other,)


@record
class Distinct(Test):
    """The value and all `others` are pairwise different objects.

    Emitted once over all tensor inputs / mutable objects.
    """

    others: tuple[Source, ...]

    about = SHARING

    def words(self, where: str) -> str:
        return f"{len(self.others) + 1} objects are different: {where}, " + ", ".join(map(describe, self.others))

    def reads(self) -> tuple[Source, ...]:
        return self.others


@record
class StorageGroups(Test):
    """Aliasing among tensor inputs. `groups`: inputs that overlap in memory, with byte offsets relative to the first of
    the group; inputs in no group overlap with no other. The source is any of the inputs; `sources` lists all."""

    sources: tuple[Source, ...]
    groups: tuple[tuple[tuple[int, int], ...], ...]

    about = SHARING

    def words(self, where: str) -> str:
        if self.groups:
            return f"{len(self.sources)} tensors overlap in memory in {len(self.groups)} groups"
        return f"no two of {len(self.sources)} tensors overlap in memory"

    def reads(self) -> tuple[Source, ...]:
        return self.sources


@record
class ModuleIsPlain(Test):
    """The nn.Module at the source has no instance override of `forward`/`__call__` helpers and empty hook dicts.

    `names`: the instance attributes that must be absent; `empty`: those that must be empty dicts.
    """

    names: tuple[str, ...]
    empty: tuple[str, ...]

    def words(self, where: str) -> str:
        return f"{where} has no {', '.join(self.names)} of its own; {', '.join(self.empty)} are empty"


@record
class NumberRelation(Test):
    """`holds`, a comparison of numbers that the call has, is true: `2 <= s0`, `s1 == 2*s0`.

    The guard's source is that of one of them.
    """

    holds: NumberExpr

    about = SIZES

    def words(self, where: str = "") -> str:
        """The relation with its numbers named by where they come from: `2 <= argument 0.size(1)`."""
        return words(self.holds)

    def reads(self) -> tuple[Source, ...]:
        return tuple(leaf.source for leaf in self.holds.leaves)


def held_number(test: Test) -> Leaf | None:
    """The number in a tensor of which it asks that it is a certain one; None for other tests."""
    if not isinstance(test, NumberRelation) or not isinstance(test.holds, Compare) or test.holds.relation != "==":
        return None
    number, *values = test.holds.parts
    holds = isinstance(number, Leaf) and number.read == "item" and [type(each) for each in values] == [Constant]
    return number if holds else None  # type: ignore[return-value]


@record
class ArgumentCount(Test):
    """The call has `positional` positional arguments and exactly these keywords (source: Root). Those of them in
    `ordered`, which a function collects in its `**kwargs`, come in this order."""

    positional: int
    keywords: tuple[str, ...]
    ordered: tuple[str, ...] = ()

    about = ARGUMENTS

    def words(self, where: str) -> str:
        named = f" and {', '.join(self.keywords)}" if self.keywords else ""
        order = f", {', '.join(self.ordered)} in this order" if self.ordered else ""
        return f"called with {self.positional} positional arguments{named}{order}"


@record
class Guard:
    """`test` holds for the value at `source`. `location`: the user's line that read it (for messages)."""

    source: Source
    test: Test
    location: Location = field(default=Location(), compare=False)
