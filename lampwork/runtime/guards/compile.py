"""Compiles an entry's guards into ONE Python function.

    check(function, args, kwargs) -> tuple of the values at `reads` | None when some guard does not hold

Path loads are shared as local variables and made right before their first use; the type of a value is tested before
anything is read through it, so no code of the program runs. The text depends on the guards alone; constants are named
`c0, c1, ...` in order of use. What the text does not spell out is in `runtime/guards/interpreter.py`, which evaluates
guards one by one and is the definition of what each means.

Tests whose objects this process does not have (a module is not loaded, a function's code changed) raise `LookupError`
when the check is compiled: the entry cannot serve here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import copysign, isnan
from types import FunctionType
from typing import Any, ClassVar

import torch

from lampwork._torch import STATE, state_test
from lampwork.config import environment
from lampwork.ir.guard import (
    NUMBER_FUNCTIONS,
    ArgumentCount,
    ClassLookup,
    Distinct,
    Equals,
    FunctionIs,
    Guard,
    HasKey,
    IsObject,
    KeysAre,
    LengthIs,
    ModuleIsPlain,
    SameObject,
    SizeRelation,
    SizeSource,
    StorageGroups,
    TensorIs,
    TypeIs,
    size_text,
)
from lampwork.ir.reference import ClassWith, code_digest, decides_by_code, decides_by_contents, find, resolve
from lampwork.ir.source import (
    Argument,
    ArrayMemory,
    Attribute,
    Cell,
    ClassAttribute,
    InstanceDict,
    Item,
    KeyAt,
    Keyword,
    Named,
    Numbers,
    PythonModule,
    Referent,
    Remaining,
    Remembered,
    Root,
    Source,
    State,
    TypeOf,
    is_source,
)
from lampwork.ir.text import verify_text
from lampwork.runtime.guards import interpreter as reading
from lampwork.runtime.guards import native_tensors as alike
from lampwork.runtime.guards.failures import explain_failure
from lampwork.runtime.guards.interpreter import READ_ERRORS
from lampwork.runtime.guards.tensor_batch import TensorBatch

__all__ = ["Check", "CheckWriter", "compile_check", "explain_failure"]

Check = Callable[[Any, tuple, dict], "tuple | None"]

#: Longer text and bytes are constants of the check: the very object that was captured is compared by identity, and the
#: source of the check stays short.
LONGEST_LITERAL = 200
#: So many objects are compared with each other natively.
FEWEST_DISTINCT = 16

#: Types whose `x[k]`, `len(x)` and `k in x` are the builtin container's own.
_EXACT = (dict, list, tuple, set, frozenset, str, bytes, range)
_PLAIN_TENSORS = {"torch.Tensor": torch.Tensor, "torch.nn.parameter.Parameter": torch.nn.Parameter}


def compile_check(guards: Sequence[Guard], reads: Sequence[Source]) -> Check:
    """The check of `guards` which returns the values at `reads`. Raises `LookupError` as the module says."""
    writer = CheckWriter(guards, reads)
    return writer.function()


def source_text(guards: Sequence[Guard], reads: Sequence[Source]) -> str:
    """The Python text of the check, for `explain`."""
    return CheckWriter(guards, reads).text()


def root_of(source: Source) -> Source:
    """Where the path starts."""
    while True:
        base = getattr(source, "base", None)
        if base is None:
            return source
        source = base


def order_of(guard: Guard) -> int:
    """Cheapest and likeliest to fail first; the sort is stable, so paths keep the order in which they were read."""
    test = guard.test
    if isinstance(test, ArgumentCount):
        return 0
    if isinstance(guard.source, State):
        return 2
    if isinstance(test, (StorageGroups, Distinct)):
        return 5
    return 1 if isinstance(root_of(guard.source), (Argument, Keyword)) else 3


@dataclass
class CheckWriter:
    """Writes the text of one check. `preloaded`: variable names of sources that the caller has already read (by id)."""

    guards: Sequence[Guard]
    reads: Sequence[Source]
    signature: str = "function, args, kwargs"
    preloaded: dict[int, str] = field(default_factory=dict)
    #: Whether many tensors of the call are compared by one native function.
    batched: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[int, str] = dict(self.preloaded)
        self._constants: dict[str, Any] = {}
        self._constant_names: dict[Any, str] = {}
        self._keep: list[Any] = []
        self._types: dict[int, Guard] = {}
        self._known_types: dict[int, type] = {}
        self._done: set[int] = set()
        self._extents: dict[int, int | None] = {}
        self.find_types()
        self._size_names: dict[tuple, str] = {}
        self._key_tuples: dict[int, str] = {}
        self._written = ""
        self._batch: TensorBatch | None = None

    def find_types(self) -> None:
        """Looks for what `guards` say of types: these are tested as soon as a value is loaded."""
        for guard in self.guards:
            if isinstance(guard.test, (TypeIs, TensorIs)):
                self._types.setdefault(id(guard.source), guard)
            if isinstance(guard.test, TensorIs):
                self._extents[id(guard.source)] = reading.extent_bytes(guard.test)

    # The function ----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        if not self._written:
            guards = sorted(self.guards, key=order_of)
            if self.batched and not self.preloaded:
                self._compare_together(guards)
            for guard in guards:
                self._guard(guard)
            self._lines.append(f"return ({self._values()})")
            body = "\n".join("        " + line for line in self._lines)
            self._written = (
                f"def check({self.signature}):\n    try:\n{body}\n    except READ_ERRORS:\n        return None\n"
            )
        return self._written

    def _values(self) -> str:
        names = [self._load(source) for source in self.reads]
        if self._batch is not None:
            names = self._batch.joined(names)
        return "".join(f"{name}, " for name in names)

    def _compare_together(self, guards: Sequence[Guard]) -> None:
        """Writes one native comparison for the tensors of the call, where there are many of them."""
        batch = TensorBatch.of(guards)
        if batch is None:
            return
        for guard in guards:
            if isinstance(guard.test, ArgumentCount):
                self._guard(guard)
        parts: list[str] = []
        for base, members in batch.runs():
            if base is not None and self._is_all_of(base, len(members)):
                parts.append(f"*{self._load(base)}")
            else:
                parts += [self._expression(guard.source) for guard in members]
        self._lines.append(f"found = ({', '.join(parts)}, )")
        look = self.constant(batch.look)
        self._lines.append(f"places = {look}(found)")
        self.refuse("places is None")
        for position, guard in enumerate(batch.guards):
            self._names[id(guard.source)] = f"found[{position}]"
            self._known_types[id(guard.source)] = batch.type_of(guard)
            self._keep.append(guard.source)
            self._done.add(id(guard))
        self._batch = batch

    def _is_all_of(self, base: Source, count: int) -> bool:
        """Whether the list or tuple at `base` has `count` items and is a builtin one; its guards are written then."""
        if self._type(base) not in (list, tuple):
            return False
        for guard in self.guards:
            if guard.source is base and isinstance(guard.test, LengthIs) and guard.test.length == count:
                self._guard(guard)
                return True
        return False

    def namespace(self) -> dict[str, Any]:
        self.text()
        return {
            "READ_ERRORS": READ_ERRORS, "sys": sys, "reading": reading, "copysign": copysign, "isnan": isnan,
            "FunctionType": FunctionType, "class_lookup": reading.class_lookup, "same_value": reading.same_value,
            **self._constants,
        }  # fmt: skip

    def function(self) -> Check:
        namespace = self.namespace()
        if environment.verify:
            verify_text(self.text(), namespace)
        exec(compile(self.text(), "<lampwork guards>", "exec"), namespace)
        return namespace["check"]

    # Pieces ----------------------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        """The name of a constant of the namespace, one per object."""
        name = self._constant_names.get(id(value))
        if name is None:
            name = self._constant_names[id(value)] = f"c{len(self._constant_names)}"
            self._constants[name] = value
            self._keep.append(value)
        return name

    def require(self, condition: str) -> None:
        """The check fails unless `condition` holds."""
        self._lines.append(f"if not ({condition}): return None")

    def refuse(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return None")

    def _load(self, source: Source) -> str:
        """The local variable that holds the value at `source`."""
        name = self._names.get(id(source))
        if name is None:
            expression = self._expression(source)
            name = self._names[id(source)] = f"v{len(self._names)}"
            self._lines.append(f"{name} = {expression}")
            self._keep.append(source)
            guard = self._types.get(id(source))
            if guard is not None and id(guard) not in self._done:
                self._guard(guard)
        return name

    def _type(self, source: Source) -> type | None:
        """The type of the value at `source` where a guard has tested it."""
        self._load(source)
        return self._known_types.get(id(source))

    def _expression(self, source: Source) -> str:
        match source:
            case Root():
                return "function"
            case Argument(index):
                return f"args[{index}]"
            case Keyword(name):
                return f"kwargs[{name!r}]"
            case PythonModule(name):
                return f"sys.modules[{name!r}]"
            case Named(module, qualname):
                return self.constant(find(module, qualname))
            case InstanceDict(base):
                value = self._load(base)
                kind = self._type(base)
                if isinstance(base, PythonModule) or (kind is not None and _plain_dict_access(kind)):
                    return f"{value}.__dict__"
                return f"reading.instance_dict({value})"
            case Attribute(base, name):
                value = self._load(base)
                kind = self._type(base)
                if kind is FunctionType or kind in (torch.Tensor, torch.nn.Parameter):
                    return f"{value}.{name}"
                return f"reading.attribute({value}, {name!r})"
            case Item(base, key):
                value = self._load(base)
                position = self._load(key) if is_source(key) else self._literal(key)
                if isinstance(base, InstanceDict) or self._type(base) in _EXACT or _inherits_item(self._type(base)):
                    return f"{value}[{position}]"
                return f"reading.item({value}, {position})"
            case KeyAt(base, index):
                value = self._load(base)
                keys = self._key_tuples.get(id(base))
                if keys is None:  # once for all keys: an optimizer's state has one for each parameter
                    keys = self._key_tuples[id(base)] = f"q{len(self._key_tuples)}"
                    self._lines.append(f"{keys} = reading.keys_of({value})")
                return f"{keys}[{index}]"
            case Cell(base, index):
                return f"{self._load(base)}.__closure__[{index}].cell_contents"
            case TypeOf(base):
                return f"type({self._load(base)})"
            case Referent(base):
                return f"{self._load(base)}()"
            case Remaining(base):
                return f"reading.remaining({self._load(base)})"
            case ArrayMemory(base):
                return f"reading.array_memory({self._load(base)})"
            case Remembered(base, args, kwargs):
                part = lambda each: self._load(each) if is_source(each) else self.constant(each)
                shown = "".join(f"{part(each)}, " for each in args)
                named = "".join(f"{name!r}: {part(each)}, " for name, each in kwargs)
                return f"reading.remembered({self._load(base)}, ({shown}), {{{named}}})"
            case ClassAttribute(base, name):
                return f"reading.class_attribute({self._load(base)}, {name!r})"
            case Numbers(texts, numbers, device):
                by_name = {number.name: number for number in numbers}
                shown = ", ".join([self._expression_of_numbers(text, by_name) for text in texts])
                return f"reading.number_tensor(({shown}, ){f', {device!r}' if device else ''})"
            case State(name):
                return f"{self.constant(STATE[name])}()"
        raise TypeError(f"not a source: {source!r}")

    def _literal(self, value: Any) -> str:
        """Text that evaluates to `value`: spelled out for plain data, a namespace constant else."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        return self.constant(value)

    # One emitter per test --------------------------------------------------------------------------------------------

    def _guard(self, guard: Guard) -> None:
        if id(guard) in self._done:
            return
        test = guard.test
        if isinstance(test, (TypeIs, TensorIs)):
            self._types[id(guard.source)] = guard
            self._done.add(id(guard))  # loading the source must not come back here
        if isinstance(test, ArgumentCount):
            self._argument_count(test)
        elif isinstance(test, StorageGroups):
            self._storage_groups(test)
        elif (
            isinstance(guard.source, State) and isinstance(test, Equals) and self._state(guard.source.name, test.value)
        ):
            pass  # written by `_state`
        else:
            value = self._load(guard.source)
            emit = _EMITTERS[type(test)]
            emit(self, value, test, guard.source)
        self._done.add(id(guard))

    def _state(self, name: str, expected: Any) -> bool:
        """A quicker test of a process state, where there is one."""
        found = state_test(name, expected)
        if found is None:
            return False
        condition, names = found
        self._constants.update(names)
        self.refuse(condition)
        return True

    def _argument_count(self, test: ArgumentCount) -> None:
        if test.keywords:
            names = "".join(f" or {name!r} not in kwargs" for name in test.keywords)
            self.refuse(f"len(args) != {test.positional} or len(kwargs) != {len(test.keywords)}{names}")
        else:
            self.refuse(f"len(args) != {test.positional} or kwargs")

    def _type_is(self, value: str, test: TypeIs, source: Source) -> None:
        if decides_by_contents(test.ref):
            self.require(f"{self.constant(ClassWith(test.ref.digest))}(type({value}))")
            return
        cls = resolve(test.ref)
        self.refuse(f"type({value}) is not {self.constant(cls)}")
        self._known_types[id(source)] = cls

    def _equals(self, value: str, test: Equals, source: Source) -> None:
        expected = test.value
        kind = type(expected)
        if expected is None or kind is bool:
            self.refuse(f"{value} is not {expected}")
        elif kind in (str, bytes) and len(expected) > LONGEST_LITERAL:
            known = self.constant(expected)
            self.refuse(
                f"{value} is not {known} and (type({value}) is not {self.constant(kind)} or {value} != {known})"
            )
        elif kind in (int, str, bytes):
            self.refuse(f"type({value}) is not {self.constant(kind)} or {value} != {expected!r}")
        elif kind is float and expected != 0.0 and not isnan(expected):
            self.refuse(f"type({value}) is not {self.constant(float)} or {value} != {self.constant(expected)}")
        elif kind in (torch.dtype, torch.layout, torch.memory_format):
            self.refuse(f"{value} is not {self.constant(expected)}")
        elif kind in (torch.device, torch.Size):
            self.refuse(f"type({value}) is not {self.constant(kind)} or {value} != {self.constant(expected)}")
        else:
            self.require(f"same_value({value}, {self.constant(expected)})")

    def _is_object(self, value: str, test: IsObject, source: Source) -> None:
        if decides_by_contents(test.ref):
            self.require(f"reading.is_class_with({value}, {self.constant(ClassWith(test.ref.digest))})")
            return
        self.refuse(f"{value} is not {self.constant(resolve(test.ref))}")

    def _function_is(self, value: str, test: FunctionIs, source: Source) -> None:
        code = self._code_of(test.ref)
        self.refuse(
            f"type({value}) is not FunctionType or "
            f"({value}.__code__ is not {code} and not reading.function_is({value}, {test.ref.digest!r}))"
        )
        self._known_types[id(source)] = FunctionType

    def _code_of(self, ref: Any) -> str:
        """The name of the constant code object that has the digest of `ref`; None where this process has none yet."""
        try:
            function = ref.live if ref.live is not None else find(ref.module, ref.qualname)
            code = function.__code__
            return self.constant(code if code_digest(code) == ref.digest else None)
        except (LookupError, AttributeError):
            return self.constant(None)

    def _tensor_is(self, value: str, test: TensorIs, source: Source) -> None:
        kind = _PLAIN_TENSORS.get(test.tensor_type)
        if kind is None:  # a subclass: its attributes may run code of the program
            self.refuse(f"reading.tensor_is({value}, {self.constant(test)})")
            return
        self._known_types[id(source)] = kind
        conditions = [f"type({value}) is not {self.constant(kind)}"]
        conditions.append(f"{value}.dtype is not {self.constant(getattr(torch, test.dtype))}")
        conditions.append(_shape_differs(f"{value}.shape", test.shape, self))
        if test.layout == "strided":
            conditions.append(_shape_differs(f"{value}.stride()", test.strides, self))
        conditions.append(f"{value}.requires_grad is not {test.requires_grad}")
        device = torch.device(test.device)
        if device == torch.device("cpu"):
            conditions.append(f"not {value}.is_cpu")
        else:
            conditions.append(f"{value}.device != {self.constant(device)}")
        conditions.append(f"{value}.layout is not {self.constant(getattr(torch, test.layout))}")
        conditions.append(f"{value}.is_inference() is not {test.is_inference}")
        if test.is_leaf is not None:
            conditions.append(f"{value}.is_leaf is not {test.is_leaf}")
        if test.dtype.startswith("complex"):
            conditions.append(f"{value}.is_conj() is not {test.is_conj}")
        conditions.append(f"{value}.is_neg() is not {test.is_neg}")
        self.refuse(" or ".join(condition for condition in conditions if condition))

    def _length_is(self, value: str, test: LengthIs, source: Source) -> None:
        length = "len" if self._type(source) in _EXACT else "reading.builtin_length"
        self.refuse(f"{length}({value}) != {test.length}")

    def _keys_are(self, value: str, test: KeysAre, source: Source) -> None:
        if self._type(source) is dict and test.ordered and all(type(key) is str for key in test.keys):
            # A key equal to a str but of another type would have to be a str subclass: tested by identity of type.
            self.require(f"len({value}) == {len(test.keys)} and same_value(tuple({value}), {self.constant(test.keys)})")
        else:
            self.require(f"reading.keys_are({value}, {self.constant(test.keys)}, {test.ordered})")

    def _has_key(self, value: str, test: HasKey, source: Source) -> None:
        if isinstance(source, InstanceDict) or self._type(source) in (dict, set, frozenset):
            self.refuse(f"{self._literal(test.key)} {'not in' if test.present else 'in'} {value}")
        else:
            self.refuse(f"reading.has_key({value}, {self._literal(test.key)}) is not {test.present}")

    def _class_lookup(self, value: str, test: ClassLookup, source: Source) -> None:
        if test.found is None:
            self.refuse(f"class_lookup({value}, {test.name!r}) is not None")
            return
        if decides_by_code(test.found):
            actual = f"class_lookup({value}, {test.name!r})"
            self.require(f"reading.has_code({actual}, {test.found.digest!r}, {test.wrapper!r})")
            return
        found = resolve(test.found)
        if test.found.kind != "function":
            self.refuse(f"class_lookup({value}, {test.name!r}) is not {self.constant(found)}")
        elif isinstance(found, FunctionType) and not test.found.digest:
            self.refuse(f"class_lookup({value}, {test.name!r}) is not {self.constant(found)}")
        else:
            actual = f"class_lookup({value}, {test.name!r})"
            self.require(
                f"reading.lookup_is({actual}, {self.constant(found)}, {test.found.digest!r}, {test.wrapper!r})"
            )

    def _same_object(self, value: str, test: SameObject, source: Source) -> None:
        self.refuse(f"{value} is not {self._load(test.other)}")

    def _distinct(self, value: str, test: Distinct, source: Source) -> None:
        others = [self._load(other) for other in test.others]
        if len(others) == 1:
            self.refuse(f"{value} is {others[0]}")
        elif len(others) >= FEWEST_DISTINCT and alike.supported():
            names = [value, *others]
            objects = names if self._batch is None else self._batch.joined(names)
            self.require(f"{self.constant(alike.DistinctObjects(len(names)))}(({', '.join(objects)}, ))")
        elif others:
            identities = ", ".join(f"id({name})" for name in [value, *others])
            self.refuse(f"len({{{identities}}}) != {len(others) + 1}")

    def _storage_groups(self, test: StorageGroups) -> None:
        names = [self._load(source) for source in test.sources]
        extents = [self._extents.get(id(source)) for source in test.sources]
        if len(names) == 2 and not test.groups and None not in extents:
            if 0 in extents:
                return
            left, right = (f"{name}.data_ptr()" for name in names)
            self.refuse(f"-{extents[1]} < {right} - {left} < {extents[0]}")
            return
        if len(names) < 2:
            return
        if not test.groups and self._batch is not None and self._batch.holds(test.sources):
            self.refuse(f"not {self.constant(self._batch.apart(test.sources))}(places)")
            return
        pointers = ", ".join(f"{name}.data_ptr()" for name in names)
        if None in extents:
            sizes = "(" + ", ".join(f"reading.tensor_extent_bytes({name})" for name in names) + ")"
        else:
            sizes = self.constant(tuple(extents))
        self.require(f"reading.aliasing_is(({pointers}), {sizes}, {self.constant(test.groups)})")

    def _size_relation(self, value: str, test: SizeRelation, source: Source) -> None:
        self.require(self._expression_of_numbers(test.text, test.sizes))

    def _expression_of_numbers(self, text: str, sizes: Sequence[SizeSource] | dict[str, SizeSource]) -> str:
        self._constants.update(NUMBER_FUNCTIONS)
        named = sizes if isinstance(sizes, dict) else {size.name: size for size in sizes}
        return re.sub(r"\b[a-z]+\d+\b", lambda found: self._number(named, found.group()), text)

    def _number(self, named: dict[str, SizeSource], name: str) -> str:
        size = named.get(name)
        if size is None:
            return name
        key = (id(size.source), size.kind, size.axis)
        local = self._size_names.get(key)
        if local is None:
            local = self._size_names[key] = f"n{len(self._size_names)}"
            self._lines.append(f"{local} = {size_text(size, self._load(size.source))}")
        return local

    def _module_is_plain(self, value: str, test: ModuleIsPlain, source: Source) -> None:
        kind = self._type(source)
        plain = kind is not None and _plain_dict_access(kind)
        attributes = f"{value}.__dict__" if plain else f"reading.instance_dict({value})"
        name = f"d{len(self._lines)}"
        self._lines.append(f"{name} = {attributes}")
        conditions = [f"{name}[{key!r}]" for key in test.empty] + [f"{key!r} in {name}" for key in test.names]
        if conditions:
            self.refuse(" or ".join(conditions))


_EMITTERS: dict[type, Callable[[CheckWriter, str, Any, Source], None]] = {
    TypeIs: CheckWriter._type_is,
    Equals: CheckWriter._equals,
    IsObject: CheckWriter._is_object,
    FunctionIs: CheckWriter._function_is,
    TensorIs: CheckWriter._tensor_is,
    LengthIs: CheckWriter._length_is,
    KeysAre: CheckWriter._keys_are,
    HasKey: CheckWriter._has_key,
    ClassLookup: CheckWriter._class_lookup,
    SameObject: CheckWriter._same_object,
    Distinct: CheckWriter._distinct,
    ModuleIsPlain: CheckWriter._module_is_plain,
    SizeRelation: CheckWriter._size_relation,
}


def _shape_differs(text: str, dims: tuple[int | None, ...], writer: CheckWriter) -> str:
    """A condition that is true when the tuple at `text` differs from `dims`."""
    if None not in dims:
        return f"{text} != {writer.constant(dims)}" if dims else f"len({text}) != 0"
    parts = [f"len({text}) != {len(dims)}"]
    parts += [f"{text}[{index}] != {size}" for index, size in enumerate(dims) if size is not None]
    return " or ".join(parts)


def _plain_dict_access(cls: type) -> bool:
    """`x.__dict__` on instances of `cls` reads the C slot and runs nothing of the program."""
    return cls.__getattribute__ is object.__getattribute__ and not any(
        isinstance(base.__dict__.get("__dict__"), property) for base in cls.__mro__
    )


def _inherits_item(cls: type | None) -> bool:
    """`x[k]` on instances of `cls` is the builtin container's own method."""
    if cls is None:
        return False
    own = getattr(cls, "__getitem__", None)
    if issubclass(cls, dict):
        return own is dict.__getitem__ and not hasattr(cls, "__missing__")
    return (issubclass(cls, list) and own is list.__getitem__) or (issubclass(cls, tuple) and own is tuple.__getitem__)
