"""Bytes of artifacts, and artifacts of bytes: data alone, of the types in `schema.py`, verified as it is read.

    header line (JSON): texts, numbers, sizes of what follows
    floats              8 bytes each
    rows                32-bit words: kind, then for containers the number of parts, then the parts
    blobs               machine code and the like

The values of the header come first, then each row makes one more, of values that came before it: so there are no
cycles, nothing is looked up by a name from the file but members of enumerations, and reading needs no recursion. Equal
rows are written once. `encode` may be given several roots; rows that the first ones do not need come after
theirs, and are read when they are asked for.

Code objects of functions that a program makes are written field by field. Their byte code, like the machine code, does
what it says: no check of data makes a file safe that somebody else may have written (see `lampwork/files.py`).
"""

from __future__ import annotations

import enum
import functools
import importlib
import json
import operator
import re
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.ir.guard import ObjectRef
from lampwork.ir.reference import find
from lampwork.runtime.cache import schema
from lampwork.runtime.guards.plain_data import same_value
from lampwork.turns import give_way

_FIXED: tuple[Any, ...] = (None, False, True, Ellipsis, NotImplemented)
_FIXED_INDICES = {id(value): index for index, value in enumerate(_FIXED)}
_CODE_FIELDS = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_stacksize", "co_flags", "co_code",
    "co_consts", "co_names", "co_varnames", "co_filename", "co_name", "co_qualname", "co_firstlineno", "co_linetable",
    "co_exceptiontable", "co_freevars", "co_cellvars",
)  # fmt: skip
_CODE_CHECKS = (
    *[schema.INT] * 6, schema.BYTES, schema.many(schema.CODE | schema.DATA), schema.TEXTS, schema.TEXTS,
    *[schema.STR] * 3, schema.INT, schema.BYTES, schema.BYTES, schema.TEXTS, schema.TEXTS,
)  # fmt: skip
_NUMPY_NAMES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)
_LARGEST_WORD = 0xFFFFFFFF


class NotStorable(TypeError):
    """An artifact holds a value that no stored entry may consist of. The text names it."""


class Malformed(ValueError):
    """The bytes are no encoded artifact."""


# Writing -------------------------------------------------------------------------------------------------------------


def encode(*roots: object) -> bytes:
    """The bytes of `roots`; see `Decoder`. Raises `NotStorable` for what cannot be written."""
    return _Encoder().encode(roots)


class _Encoder:
    """Rows refer to values by numbers, which are known when all texts and numbers are: until then, a text or number is
    a negative number."""

    def __init__(self) -> None:
        self.atoms: dict[tuple[type, Any], int] = {}
        self.known: dict[int, int] = _FIXED_INDICES.copy()
        self.kept: list[Any] = []  # what `known` names by address
        self.rows: dict[tuple[int, ...], int] = {}
        self.written: list[tuple[int, ...]] = []
        #: Of classes of records: their number, their fields' values as a tuple, and the checks of those.
        self.records: dict[type, tuple[int, Callable[[Any], tuple[Any, ...]], Sequence[schema.Check]] | None] = {}
        #: The fields that have to be looked at, of records of a class whose fields are of these types.
        self.doubtful: dict[tuple[type, ...], list[int]] = {}

    def encode(self, roots: Sequence[object]) -> bytes:
        ends = []
        for root in roots:
            place = self.put(root)
            ends.append((place, len(self.written)))
        kinds: dict[type, list[Any]] = {int: [], float: [], str: [], bytes: []}
        for kind, value in self.atoms:
            kinds[kind].append(value)
        # By the number that a value has meanwhile: those of atoms are negative, and count from the end of the list.
        final = [*range(len(_FIXED) + len(self.written) + len(self.atoms))]
        position = len(_FIXED)
        for kind, values in kinds.items():
            for value in values:
                final[self.atoms[kind, value]] = position
                position += 1
        rows = slice(len(_FIXED), len(_FIXED) + len(self.written))
        final[rows] = range(position, position + len(self.written))

        words, places, numbered = array("I"), [], final.__getitem__
        for number, *parts in self.written:
            fixed = _ARITIES[number] >= 0
            words.extend((number, *map(numbered, parts)) if fixed else (number, len(parts), *map(numbered, parts)))
            places.append(len(words))
        if len(words) > _LARGEST_WORD:
            raise NotStorable("an artifact of more than 2**32 words")
        if sys.byteorder == "big":
            words.byteswap()
        blobs = kinds[bytes]
        header = {
            "integers": kinds[int],
            "texts": kinds[str],
            "floats": len(kinds[float]),
            "blobs": [len(blob) for blob in blobs],
            "words": len(words),
            "roots": [(final[place], places[end - 1] if end else 0) for place, end in ends],
        }
        try:
            line = json.dumps(header, separators=(",", ":")).encode()
        except ValueError as error:  # an integer of more than 4300 digits
            raise NotStorable(str(error)) from error
        return b"".join((line, b"\n", *kinds[float], words.tobytes(), *blobs))

    def add(self, row: tuple[int, ...], shared: bool = True) -> int:
        found = self.rows.get(row) if shared else None
        if found is None:
            found = len(_FIXED) + len(self.written)
            self.written.append(row)
            if shared:
                self.rows[row] = found
        return found

    def put(self, value: object) -> int:
        """The number of `value`, which is written if it is new."""
        kind = type(value)
        if kind is str or kind is int or kind is bytes:
            return self.atoms.setdefault((kind, value), -1 - len(self.atoms))
        if kind is float:
            return self.atoms.setdefault((float, struct.pack("<d", value)), -1 - len(self.atoms))
        found = self.known.get(id(value))
        if found is None:
            found = self.known[id(value)] = self.row(kind, value)
            self.kept.append(value)
        return found

    def row(self, kind: type, value: Any) -> int:
        record = self.records[kind] if kind in self.records else self.record_of(kind)
        if record is not None:
            return self.record(kind, *record, value)
        if kind is list or kind is dict:  # can be changed: never one object for two
            parts = value if kind is list else [each for pair in value.items() for each in pair]
            return self.add((_LIST if kind is list else _DICT, *map(self.put, parts)), shared=False)
        for name, types, _, take, _ in _OTHERS:
            if kind in types:
                return self.add((_NUMBERS[name], *map(self.put, take(value))))
        if isinstance(value, enum.Enum):
            return self.add((_NUMBERS["enum"], *map(self.put, _enum_parts(value))))
        if isinstance(value, (numpy.number, numpy.bool_)) and value.dtype.name in _NUMPY_NAMES:
            return self.add((_NUMBERS["numpy"], self.put(value.dtype.name), self.put(value.tobytes())))
        raise NotStorable(f"a {kind.__module__}.{kind.__qualname__} is no part of stored entries")

    def record_of(self, kind: type) -> tuple[int, Callable[[Any], tuple[Any, ...]], Sequence[schema.Check]] | None:
        """How instances of the class are written; None for a class of no records."""
        checks = schema.checks(kind)
        if checks is None:
            found = None
        else:
            found = _RECORD_KINDS[kind.__module__, kind.__name__], _fields(schema.names(kind)), checks
        self.records[kind] = found
        return found

    def record(
        self,
        kind: type,
        number: int,
        fields: Callable[[Any], tuple[Any, ...]],
        checks: Sequence[schema.Check],
        value: object,
    ) -> int:
        give_way()
        parts = fields(value)
        if kind is ObjectRef:  # the object itself is found by its name
            parts = (*parts[:-1], None)
        types = (kind, *map(type, parts))
        doubtful = self.doubtful.get(types)
        if doubtful is None:
            each = enumerate(zip(checks, types[1:], strict=True))
            doubtful = self.doubtful[types] = [index for index, (check, part) in each if part not in check.sure]
        for index in doubtful:
            if not checks[index](parts[index]):
                raise NotStorable(f"{kind.__qualname__}.{schema.names(kind)[index]} is {parts[index]!r:.200}")
        return self.add((number, *map(self.put, parts)))


def _fields(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of those attributes of what it is given."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _enum_parts(value: enum.Enum) -> tuple[object, ...]:
    """Module and name of the class, what is known of the members that make up `value`, and their names. Makes none."""
    cls: Any = type(value)
    members: list[str] = []
    if cls._member_map_.get(getattr(value, "_name_", None) or "") is value:
        members = [value._name_]
    elif isinstance(value, enum.Flag) and cls._value2member_map_.get(value._value_) is value:
        inside = [(name, each._value_) for name, each in cls._member_map_.items()]
        members = [name for name, bits in inside if bits and bits & value._value_ == bits]
        if functools.reduce(operator.or_, (bits for name, bits in inside if name in members), 0) != value._value_:
            members = []
    if (members or (isinstance(value, enum.Flag) and not value._value_)) and _enumeration(cls) is cls:
        return (cls.__module__, cls.__qualname__, _enum_contents(cls, members), *members)
    raise NotStorable(f"{cls.__module__}.{cls.__qualname__} has no importable name, or {value!r} is no member of it")


def _enum_contents(cls: Any, members: Sequence[str]) -> tuple[object, ...]:
    """The plain data in these members, by member and name: programs read it with the members as constants."""
    return tuple(
        (name, key, value)
        for name in members
        for key, value in sorted(vars(cls._member_map_[name]).items())
        if key != "_sort_order_" and schema.is_data(value) and not isinstance(value, enum.Enum)
    )


def _enumeration(cls: type) -> Any:
    try:
        return find(cls.__module__, cls.__qualname__)
    except LookupError:
        return None


# Reading -------------------------------------------------------------------------------------------------------------


class Decoder:
    """Reads the roots that were encoded, in order, each when it is asked for by `next`.

    Raises `Malformed` for bytes that `encode` cannot have written; LookupError where this process has no such class of
    an enumeration, or member.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._start(data)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error

    def _start(self, data: bytes) -> None:
        end = data.index(b"\n")
        header = json.loads(data[:end])
        integers, texts, sizes, roots = header["integers"], header["texts"], header["blobs"], header["roots"]
        floats, count = header["floats"], header["words"]
        numbers = (*integers, *sizes, floats, count, *(each for root in roots for each in root))
        if not {int}.issuperset(map(type, numbers)) or not {str}.issuperset(map(type, texts)):
            raise Malformed("the header is of other types")
        if floats < 0 or count < 0 or min(sizes, default=0) < 0:
            raise Malformed("a size is negative")
        at = end + 1 + 8 * floats
        words = array("I")
        rows_end = at + words.itemsize * count
        if len(data) != rows_end + sum(sizes):
            raise Malformed("the size is another one")
        words.frombytes(data[at:rows_end])
        if sys.byteorder == "big":
            words.byteswap()
        blobs = []
        for size in sizes:
            blobs.append(data[rows_end : rows_end + size])
            rows_end += size
        decoded = struct.unpack_from(f"<{floats}d", data, end + 1)
        self._objects: list[Any] = [*_FIXED, *integers, *decoded, *map(sys.intern, texts), *blobs]
        self._words = words.tolist()
        self._roots = iter(roots)
        self._at = 0

    def next(self) -> Any:
        """The next root."""
        try:
            place, end = next(self._roots)
            self._read(end)
            return self._objects[place]
        except (Malformed, LookupError) as error:
            if isinstance(error, (IndexError, Malformed)):
                raise Malformed(str(error)) from error
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error

    def _read(self, end: int) -> None:
        words, objects = self._words, self._objects
        get, add = objects.__getitem__, objects.append
        makers, arities = _MAKERS, _ARITIES
        if end > len(words):
            raise Malformed("a root lies outside")
        at = self._at
        while at < end:
            kind = words[at]
            at += 1
            parts = arities[kind]
            if parts < 0:
                parts = words[at]
                at += 1
            following = at + parts
            if following > end:
                raise Malformed("a row is too long")
            add(makers[kind]([*map(get, words[at:following])]))
            at = following
        self._at = at


def _record_maker(find: Callable[[], tuple[type, tuple[schema.Check, ...]]]) -> Callable[[list], object]:
    """Makes an instance of a class of its fields' values, which are checked. `find`: the class and the checks, asked
    for when the first instance is made.

    Which checks have to look at values is known by the types of all fields: it is found out once for each combination.
    """
    deep_of: dict[tuple[type, ...], list[tuple[int, Callable[[Any], bool]]]] = {}
    names: tuple[str, ...] = ()
    cls: type = object
    new = object.__new__

    def meet(types: tuple[type, ...]) -> list[tuple[int, Callable[[object], bool]]]:
        nonlocal names, cls
        cls, checks = find()
        names = schema.names(cls)
        deep = []
        for index, (check, kind) in enumerate(zip(checks, types, strict=True)):
            if kind not in check.sure:
                if check.others is not None and kind not in check.others:
                    raise Malformed(f"{cls.__qualname__}.{names[index]} is a {kind.__qualname__}")
                deep.append((index, check.deep))
        deep_of[types] = deep
        return deep

    def make(values: list) -> Any:
        types = tuple(map(type, values))
        deep = deep_of.get(types)
        if deep is None:
            deep = meet(types)
        for index, check in deep:
            if not check(values[index]):
                raise Malformed(f"{cls.__qualname__}.{names[index]} holds what it may not")
        made: Any = new(cls)
        made.__dict__.update(zip(names, values))
        return made

    return make


def _dict(values: list) -> dict:
    return dict(zip(values[::2], values[1::2], strict=True))


def _of_type(values: list, *types: type) -> list:
    for value, kind in zip(values, types, strict=True):
        if type(value) is not kind:
            raise Malformed(f"a {type(value).__qualname__} where a {kind.__qualname__} was expected")
    return values


def _torch_constant(kind: type) -> Callable[[list], object]:
    def make(values: list) -> Any:
        (name,) = _of_type(values, str)
        found = vars(torch).get(name)
        if type(found) is not kind:
            raise Malformed(f"torch has no {kind.__name__} {name}")
        return found

    return make


def _torch_name(value: object) -> tuple[str]:
    name = str(value).removeprefix("torch.")
    if vars(torch).get(name) is not value:
        raise NotStorable(f"{value!r} has no name")
    return (name,)


def _device(values: list) -> torch.device:
    (name,) = _of_type(values, str)
    return torch.device(name)


def _backend(values: list) -> Any:
    (name,) = _of_type(values, str)
    found = _torch.AttentionBackend.__members__.get(name)
    if found is None:
        raise LookupError(f"torch has no attention back end {name}")
    return found


def _pattern(values: list) -> re.Pattern:
    source, flags = values
    if type(source) not in (str, bytes) or type(flags) is not int:
        raise Malformed("no pattern")
    return re.compile(source, flags)


def _slice(values: list) -> slice:
    if len(values) != 3:
        raise Malformed("no slice")
    return slice(*values)


def _size(values: list) -> torch.Size:
    if not {int}.issuperset(map(type, values)):
        raise Malformed("a size that is no integer")
    return torch.Size(values)


def _enum(values: list) -> enum.Enum:
    """A member of an enumeration of this process, or several flags joined."""
    module, qualname, contents, *members = values
    if not {str}.issuperset(map(type, (module, qualname, *members))):
        raise Malformed("no member of an enumeration")
    found: Any = find(module, qualname)
    if not isinstance(found, enum.EnumMeta):
        raise LookupError(f"{module}.{qualname} is no enumeration")
    each = [found._member_map_[name] for name in members if name in found._member_map_]
    if len(each) < len(members):
        raise LookupError(f"{module}.{qualname} has no {', '.join(members)}")
    if not same_value(_enum_contents(found, members), contents):
        raise LookupError(f"{module}.{qualname} has changed")
    if len(each) == 1:
        return each[0]
    if not issubclass(found, enum.Flag):
        raise Malformed("several members of an enumeration that is none of flags")
    bits = functools.reduce(operator.or_, (member._value_ for member in each), 0)
    known = found._value2member_map_.get(bits)
    return found(bits) if known is None else known


def _numpy(values: list) -> Any:
    name, data = _of_type(values, str, bytes)
    if name not in _NUMPY_NAMES or len(data) != numpy.dtype(name).itemsize:
        raise Malformed("no number of numpy's")
    return numpy.frombuffer(data, name)[0]


def _code(values: list) -> CodeType:
    for check, value in zip(_CODE_CHECKS, values, strict=True):
        if not check(value):
            raise Malformed("no code")
    return CodeType(*values)


#: What is no record: name, types, parts (-1: any number), the parts of a value, and the value of its parts.
_OTHERS: tuple[tuple[str, tuple[type, ...], int, Callable[[Any], Any], Callable[[list], Any]], ...] = (
    ("tuple", (tuple,), -1, lambda value: value, tuple),
    ("frozenset", (frozenset,), -1, lambda value: value, frozenset),
    ("list", (), -1, lambda value: value, list),
    ("dict", (), -1, lambda value: value, _dict),
    ("complex", (complex,), 2, lambda value: (value.real, value.imag), lambda v: complex(*_of_type(v, float, float))),
    ("range", (range,), 3, lambda v: (v.start, v.stop, v.step), lambda v: range(*_of_type(v, int, int, int))),
    ("slice", (slice,), 3, lambda value: (value.start, value.stop, value.step), _slice),
    ("size", (torch.Size,), -1, lambda value: value, _size),
    ("dtype", (torch.dtype,), 1, _torch_name, _torch_constant(torch.dtype)),
    ("layout", (torch.layout,), 1, _torch_name, _torch_constant(torch.layout)),
    ("memory format", (torch.memory_format,), 1, _torch_name, _torch_constant(torch.memory_format)),
    ("device", (torch.device,), 1, lambda value: (str(value),), _device),
    ("attention", (_torch.AttentionBackend,), 1, lambda value: (value.name,), _backend),
    ("pattern", (re.Pattern,), 2, lambda value: (value.pattern, value.flags), _pattern),
    ("code", (CodeType,), len(_CODE_FIELDS), lambda v: [getattr(v, name) for name in _CODE_FIELDS], _code),
    ("enum", (), -1, lambda value: value, _enum),
    ("numpy", (), 2, lambda value: value, _numpy),
)


def _known(cls: type) -> Callable[[], tuple[type, tuple[schema.Check, ...]]]:
    return lambda: (cls, schema.RECORDS[cls])


def _late(module: str, name: str) -> Callable[[], tuple[type, tuple[schema.Check, ...]]]:
    """A class of a module that is imported when the first of its instances is read."""
    return lambda: (vars(importlib.import_module(module))[name], schema.LATE[module][name])


_LATE = [(module, name, checks) for module, found in schema.LATE.items() for name, checks in found.items()]
_NUMBERS = {name: index for index, (name, *_) in enumerate(_OTHERS)}
_LIST, _DICT = _NUMBERS["list"], _NUMBERS["dict"]
_RECORD_KINDS = {
    named: index
    for index, named in enumerate(
        [*((cls.__module__, cls.__name__) for cls in schema.RECORDS), *((module, name) for module, name, _ in _LATE)],
        len(_OTHERS),
    )
}
_ARITIES = [
    *(parts for _, _, parts, _, _ in _OTHERS), *map(len, schema.RECORDS.values()), *(len(each) for *_, each in _LATE),
]  # fmt: skip
_MAKERS: list[Callable[[list], Any]] = [
    *(make for *_, make in _OTHERS), *(_record_maker(_known(cls)) for cls in schema.RECORDS),
    *(_record_maker(_late(module, name)) for module, name, _ in _LATE),
]  # fmt: skip
