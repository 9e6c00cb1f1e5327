"""Stored data is of a closed list of types, is verified as it is read, and runs nothing."""

from __future__ import annotations

import dataclasses
import enum
import math
import random
import re
import typing

import numpy
import pytest
import torch

from lampwork import _torch
from lampwork.ir.guard import Equals, Guard, NumberRelation, ObjectRef, TypeIs
from lampwork.ir.location import Location
from lampwork.ir.number import Apply, Compare, Constant, Integer, Leaf, applied, both, compared, constant, integer, leaf
from lampwork.ir.program import Extern, TensorRef, TorchConstant
from lampwork.ir.replay import Call, Expression, Replay, Value
from lampwork.ir.size import Max, Symbol, add, floordiv
from lampwork.ir.source import Argument, Item, Numbers, Root
from lampwork.ir.template import ConstantValue, NewFunction
from lampwork.runtime.cache import codec, schema
from lampwork.runtime.cache.codec import Decoder, Malformed, NotStorable, encode
from lampwork.runtime.cache.entries import _slim
from lampwork.runtime.guards.plain_data import same_value
from tests.unit.runtime import handmade


class Color(enum.Enum):
    RED = "red"
    CRIMSON = "red"
    BLUE = "blue"


class Mode(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class Level(enum.IntEnum):
    LOW = 1


def again(value):
    return Decoder(encode(value)).next()


DATA = [
    None, True, False, 0, -1, 2**63, -(2**200), 0.0, -0.0, 1e-310, math.inf, math.nan, 1j, complex(-0.0, math.nan), "",
    "text", "\ud800 lone", "line\nfeed", b"", b"\x00\n\xff", ..., NotImplemented, range(1, 9, 2), slice(None, 3, None),
    torch.float16, torch.float8_e5m2, torch.device("cuda:1"), torch.device("cpu"), torch.strided, torch.sparse_coo,
    torch.channels_last, torch.Size([2, 3]), re.compile("a+", re.I), re.compile(b"b"), (1, (True, 1.0)), (),
    frozenset({1, "a"}), Color.CRIMSON, Color.BLUE, Mode.READ, Mode.READ | Mode.WRITE, Mode(0), Level.LOW,
    numpy.float32(1.5), numpy.int64(-3), numpy.bool_(True), _torch.AttentionBackend.MATH, (1, True, 1.0),
]  # fmt: skip


@pytest.mark.parametrize("value", DATA, ids=range(len(DATA)))
def test_plain_data_is_itself(value):
    found = again(Equals(value)).value
    assert same_value(found, value) or repr(found) == repr(value) and type(found) is type(value)
    if isinstance(value, enum.Enum):
        assert found is value


def test_records_code_and_sizes_are_themselves():
    def outer(a, *, b=2):
        return lambda: (a, b, "text", 1.5, (None, ...))

    size = Symbol("s0", 1, 2**40, 7)
    rows = leaf(Argument(0), "shape", 1)
    twice = integer(add(size, size), {"s0": rows})
    values = [
        Guard(Item(Item(Root(), "a"), 3), TypeIs(ObjectRef("class", "torch", "Tensor")), Location("file", 3)),
        NumberRelation(both(compared("<=", constant(2), rows), compared("==", rows, twice))),
        Numbers((applied("math.sqrt", leaf(Argument(2), "item", 0, "float")), constant(-0.0), constant(True)), "cuda:0"),
        Extern("aten::mm.default", (TensorRef("b0", "float32", (size, 4), (4, 1), Max(floordiv(size, 2), 1)), None,
                                    (1, 2), TorchConstant("dtype", "float32"))),
        Replay((0,), (("float32", (1,), b"1234"),), (Call("x", (Value(1), [Expression(size)], torch.float32)),), (2,)),
        NewFunction(outer.__code__, ConstantValue(None), "f", "g", None, None, ()),
        _slim(handmade.relu_plus_one()),
    ]  # fmt: skip
    for value in values:
        assert again(value) == value
    found = again(values[-2]).code
    assert [getattr(found, name) for name in codec._CODE_FIELDS[:7]] == [
        getattr(outer.__code__, name) for name in codec._CODE_FIELDS[:7]
    ]


def test_several_roots_share_what_they_hold():
    source = Item(Argument(0), "key")
    decoder = Decoder(encode((source, 1), (source, 2)))
    first, second = decoder.next(), decoder.next()
    assert first[0] is second[0] and (first[1], second[1]) == (1, 2)


def test_every_field_of_every_class_has_a_check():
    """A field that is added to a class has its check added in `schema.py`."""
    late = {cls for module in schema.LATE for cls in (typing.cast(type, each) for each in _late(module))}
    for cls in (*schema.RECORDS, *late):
        checks = schema.checks(cls)
        assert checks is not None and len(checks) == len(dataclasses.fields(cls)), cls


def _late(module):
    __import__(module)
    return schema.loaded(module)


class Unknown:
    pass


@pytest.mark.parametrize("value", [
    Equals(Unknown()), Equals([1]), Equals(Equals(1)), TypeIs("text"), Guard(Root(), Root()), Item(3, 3),
    NumberRelation("2 <= s0"), Apply("__import__", ()), Compare("is", ()), Constant("text"), Leaf(Root(), "other"),
    Integer(Symbol("a"), (("a b", leaf(Root(), "shape")),)), Integer(3, ()), Numbers(("f0",)),
    ObjectRef("other", "m", "q"), Unknown(), Equals(enum.Enum("Local", "A").A), torch.zeros(1),
], ids=range(18))  # fmt: skip
def test_what_is_not_on_the_list_is_not_written(value):
    with pytest.raises(NotStorable):
        encode(value)


def test_a_class_or_member_that_is_not_there_is_a_miss_and_nothing_is_imported(monkeypatch):
    data = encode(Equals(Color.RED))
    monkeypatch.delitem(Color._member_map_, "RED")
    with pytest.raises(LookupError):
        Decoder(data).next()
    with pytest.raises(LookupError, match="antigravity"):
        Decoder(data.replace(__name__.encode(), b"antigravity")).next()


def test_writing_flags_makes_no_members():
    class_of = enum.Flag("Rights", "READ WRITE", module=__name__)
    globals()["Rights"] = class_of
    try:
        both = class_of.READ | class_of.WRITE
        before = dict(class_of._value2member_map_)
        data = encode(Equals(both))
        assert class_of._value2member_map_ == before
        assert Decoder(data).next().value is both
    finally:
        del globals()["Rights"]


def test_no_damage_is_more_than_malformed():
    """Of damaged bytes come other data, or `Malformed`; never a crash, a hang, or another exception."""
    data = encode(_slim(handmade.relu_plus_one()))
    chosen = random.Random(0)
    for count in range(3000):
        damaged = bytearray(data)
        if count % 3 == 0:
            del damaged[chosen.randrange(len(data)) :]
        else:
            for _ in range(chosen.choice((1, 1, 4))):
                damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
        try:
            Decoder(bytes(damaged)).next()
        except (Malformed, LookupError):
            pass
