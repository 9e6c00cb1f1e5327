"""Version snapshots notice every change that the guards they stand for would notice."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import platform
import sys
import types

import pytest
import torch

from lampwork.ir.guard import (
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
    StorageGroups,
    TypeIs,
)
from lampwork.ir.reference import reference
from lampwork.ir.source import (
    Argument,
    Attribute,
    Cell,
    ClassAttribute,
    InstanceDict,
    Item,
    PythonModule,
    Root,
    TypeOf,
)
from lampwork.runtime.guards import memory_words, version_snapshots
from lampwork.runtime.guards.overlap import Overlap
from lampwork.runtime.guards.static import Split, StaticGuards
from tests.unit.runtime.handmade import tensor_guard

pytestmark = pytest.mark.skipif(not memory_words.supported(), reason="version snapshots are for CPython 3.11 and 3.12")

ROOT = Root()
OWN = InstanceDict(ROOT)
SAMPLE = types.ModuleType("lampwork_stamp_sample")
SAMPLE.value = 1
sys.modules["lampwork_stamp_sample"] = SAMPLE


class Base:
    __slots__ = ("__dict__",)

    def method(self):
        return 1


class Thing(Base):
    limit = 3
    __slots__ = ("slot",)


def own(name):
    return Item(OWN, name)


def function_a():
    return 1


def function_b():
    return 2


def closure_over(value):
    def inner():
        return value

    def change(new):
        nonlocal value
        value = new

    inner.change = change
    return inner


def make_thing():
    thing = Thing()
    thing.number = 3
    thing.items = [1, 2, 3]
    thing.table = {"a": 1, "b": 2}
    thing.ordered = collections.OrderedDict(a=1, b=2)
    thing.weight = torch.nn.Parameter(torch.zeros(4, 4))
    thing.other = torch.zeros(4)
    thing.function = closure_over(5)
    thing.plain = function_a
    thing.child = Thing()
    thing.child.number = 7
    thing.slot = "in a slot"
    return thing


def set_code(thing):
    copy = types.FunctionType(function_a.__code__, globals())
    return copy


#: name -> (guards that hold for a new thing, a change after which they do not)
CHANGES = {
    "attribute": ([Guard(own("number"), Equals(3))], lambda t: setattr(t, "number", 4)),
    "attribute through the dict": ([Guard(own("number"), Equals(3))], lambda t: t.__dict__.update(number=4)),
    "attribute deleted": ([Guard(own("number"), Equals(3))], lambda t: delattr(t, "number")),
    "attribute added": ([Guard(OWN, HasKey("extra", False))], lambda t: setattr(t, "extra", 1)),
    "instance dict replaced": (
        [Guard(own("number"), Equals(3))], lambda t: setattr(t, "__dict__", {**t.__dict__, "number": 4}),
    ),
    "nested attribute": (
        [Guard(Item(InstanceDict(own("child")), "number"), Equals(7))], lambda t: setattr(t.child, "number", 8),
    ),
    "child replaced": ([Guard(own("child"), TypeIs(reference(Thing)))], lambda t: setattr(t, "child", Base())),
    "class of an object": ([Guard(own("child"), TypeIs(reference(Thing)))], lambda t: setattr(t.child, "__class__", Like)),
    "list item": ([Guard(Item(own("items"), 1), Equals(2))], lambda t: t.items.__setitem__(1, 9)),
    "list item by insertion": ([Guard(Item(own("items"), 1), Equals(2))], lambda t: t.items.insert(0, 9)),
    "list length": ([Guard(own("items"), LengthIs(3))], lambda t: t.items.append(4)),
    "list emptied and filled": (
        [Guard(Item(own("items"), 1), Equals(2))], lambda t: (t.items.clear(), t.items.extend([1, 9, 3])),
    ),
    "dict item": ([Guard(Item(own("table"), "a"), Equals(1))], lambda t: t.table.update(a=5)),
    "dict length": ([Guard(own("table"), LengthIs(2))], lambda t: t.table.update(c=5)),
    "dict keys": ([Guard(own("table"), KeysAre(("a", "b")))], lambda t: t.table.update(a=t.table.pop("a"))),
    "ordered dict order": ([Guard(own("ordered"), KeysAre(("a", "b")))], lambda t: t.ordered.move_to_end("a")),
    "tensor data": ([Guard(own("weight"), tensor_guard(torch.nn.Parameter(torch.zeros(4, 4))))],
                    lambda t: setattr(t.weight, "data", torch.zeros(2, 8))),
    "tensor dtype": ([Guard(own("weight"), tensor_guard(torch.nn.Parameter(torch.zeros(4, 4))))],
                     lambda t: setattr(t.weight, "data", torch.zeros(4, 4).double())),
    "tensor strides": ([Guard(own("weight"), tensor_guard(torch.nn.Parameter(torch.zeros(4, 4))))],
                       lambda t: torch.no_grad()(t.weight.t_)()),
    "requires grad": ([Guard(own("weight"), tensor_guard(torch.nn.Parameter(torch.zeros(4, 4))))],
                      lambda t: t.weight.requires_grad_(False)),
    "grad of a plain tensor": ([Guard(own("other"), tensor_guard(torch.zeros(4)))], lambda t: t.other.requires_grad_()),
    "tensor resized": ([Guard(own("other"), tensor_guard(torch.zeros(4)))], lambda t: t.other.resize_(8)),
    "tensor squeezed in place": ([Guard(own("other"), tensor_guard(torch.zeros(4)))], lambda t: t.other.unsqueeze_(0)),
    "history": ([Guard(own("other"), dataclasses.replace(tensor_guard(torch.zeros(4)), is_leaf=True))],
                lambda t: t.other.mul_(torch.ones(4, requires_grad=True))),
    "history of a leaf": ([Guard(own("weight"), dataclasses.replace(tensor_guard(torch.nn.Parameter(torch.zeros(4, 4))), is_leaf=True))],
                          lambda t: (t.weight.requires_grad_(False), t.weight.mul_(torch.ones(1, requires_grad=True)))),
    "parameter replaced": ([Guard(own("weight"), TypeIs(reference(torch.nn.Parameter)))],
                           lambda t: setattr(t, "weight", torch.zeros(4, 4))),
    "closure": ([Guard(Cell(own("function"), 0), Equals(5))], lambda t: t.function.change(6)),
    "function code": ([Guard(own("copy"), FunctionIs(reference(function_a)))],
                      lambda t: setattr(t.copy, "__code__", function_b.__code__)),
    "function replaced": ([Guard(own("plain"), FunctionIs(reference(function_a)))],
                          lambda t: setattr(t, "plain", function_b)),
    "defaults": (
        [Guard(Item(Attribute(own("copy"), "__defaults__"), 0), Equals(1))],
        lambda t: setattr(t.copy, "__defaults__", (2,)),
    ),
    "keyword defaults": (
        [Guard(Attribute(own("copy"), "__kwdefaults__"), Equals(None))],
        lambda t: setattr(t.copy, "__kwdefaults__", {"a": 1}),
    ),
    "class dict": (
        [Guard(InstanceDict(TypeOf(ROOT)), HasKey("method", False))],
        lambda t: setattr(Thing, "method", lambda self: 2),
    ),
    "class dict item": (
        [Guard(Item(InstanceDict(TypeOf(ROOT)), "limit"), Equals(3))],
        lambda t: setattr(Thing, "limit", 4),
    ),
    "slot": ([Guard(Attribute(ROOT, "slot"), Equals("in a slot"))], lambda t: setattr(t, "slot", "else")),
    "class attribute": ([Guard(ClassAttribute(TypeOf(ROOT), "limit"), Equals(3))], lambda t: setattr(Thing, "limit", 4)),
    "method of a base": ([Guard(TypeOf(ROOT), ClassLookup("method", reference(Base.method)))],
                         lambda t: setattr(Base, "method", lambda self: 2)),
    "method code": ([Guard(TypeOf(ROOT), ClassLookup("method", reference(Base.method)))],
                    lambda t: setattr(Base.method, "__code__", function_b.__code__)),
    "method hidden": ([Guard(TypeOf(ROOT), ClassLookup("method", reference(Base.method)))],
                      lambda t: setattr(Thing, "method", lambda self: 2)),
    "global": ([Guard(Item(InstanceDict(PythonModule("lampwork_stamp_sample")), "value"), Equals(1))],
               lambda t: setattr(SAMPLE, "value", 2)),
    "module replaced": ([Guard(PythonModule("lampwork_stamp_sample"), IsObject(reference(SAMPLE)))],
                        lambda t: sys.modules.update(lampwork_stamp_sample=types.ModuleType("new"))),
    "made the same object": ([Guard(own("weight"), Distinct((own("other"),)))], lambda t: setattr(t, "other", t.weight)),
}  # fmt: skip


class Like(Base):
    limit = 3
    __slots__ = ("slot",)


@pytest.fixture(autouse=True)
def restored():
    method, code = Base.__dict__["method"], Base.__dict__["method"].__code__
    yield
    Base.method, Base.method.__code__ = method, code
    Thing.limit = 3
    Thing.__dict__.get("method") and delattr(Thing, "method")
    SAMPLE.value = 1
    sys.modules["lampwork_stamp_sample"] = SAMPLE


def static_guards(guards, reads=(), others=()):
    return StaticGuards(guards, reads, tuple(range(len(reads))), len(reads), others)


def unchanged(static, function):
    """As an entry's function asks: the snapshots, then what is left."""
    state = static.state
    if state is None or memory_words.compare()(state.address):
        return False
    return state.whole or state.now(function, ()) is not None


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name):
    guards, change = CHANGES[name]
    thing = make_thing()
    thing.copy = types.FunctionType(function_a.__code__, globals(), None, (1,))
    static = static_guards(guards)
    assert static.refresh(thing) is not None
    assert unchanged(static, thing) and unchanged(static, thing)
    change(thing)
    assert not unchanged(static, thing)
    assert static.refresh(thing) is None


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_where_entries_stand_for_dicts(name):
    guards, change = CHANGES[name]
    thing = make_thing()
    thing.copy = types.FunctionType(function_a.__code__, globals(), None, (1,))
    first = static_guards(guards)
    first.refresh(thing)
    static = static_guards(guards)
    static._avoid = set(first._snapshots._cheap)  # every dict of which a version was taken
    assert static.refresh(thing) is not None
    assert unchanged(static, thing)
    thing.unrelated = object()
    assert unchanged(static, thing) or name in KEYS
    change(thing)
    assert not unchanged(static, thing)
    assert static.refresh(thing) is None


#: What no other key may come to.
KEYS = {"attribute added"}


#: Everything above but what snapshots leave to a check on every call.
LEFT = {"ordered dict order"}


@pytest.mark.parametrize("name", sorted(set(CHANGES) - LEFT))
def test_unchanged_and_not_checked_again(name):
    guards, _ = CHANGES[name]
    thing = make_thing()
    thing.copy = types.FunctionType(function_a.__code__, globals(), None, (1,))
    static = static_guards(guards)
    assert static.refresh(thing).left is None


def test_hooks_of_a_module():
    layer = torch.nn.Linear(2, 2)
    empty = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    static = static_guards(
        [Guard(ROOT, TypeIs(reference(torch.nn.Linear))), Guard(ROOT, ModuleIsPlain(("forward",), empty))]
    )
    static.refresh(layer)
    assert unchanged(static, layer)
    handle = layer.register_forward_pre_hook(lambda *_: None)
    assert not unchanged(static, layer)
    handle.remove()
    layer.forward = lambda x: x
    assert not unchanged(static, layer)


def test_replaced_memory_is_noticed_without_a_guard_on_it():
    """A weight that is read has the address of its data taken: pointer tables keep it."""
    thing = make_thing()
    source = own("weight")
    static = static_guards([Guard(source, tensor_guard(thing.weight))], [source])
    assert static.refresh(thing).values[0] is thing.weight
    thing.weight.data = torch.zeros(4, 4)
    assert not unchanged(static, thing)
    static.refresh(thing)
    thing.weight.untyped_storage().resize_(1 << 20)
    assert not unchanged(static, thing)


def test_values_written_in_place_change_nothing():
    thing = make_thing()
    source = own("weight")
    static = static_guards([Guard(source, tensor_guard(thing.weight))], [source])
    static.refresh(thing)
    with torch.no_grad():
        thing.weight.add_(1)
    thing.weight.grad = torch.ones(4, 4)
    assert unchanged(static, thing)


def test_what_is_written_beside_what_is_read_is_found_out():
    """The version of the dict changes on each call; after the first failure the entry that is read stands for it."""
    thing = make_thing()
    static = static_guards([Guard(own("number"), Equals(3))])
    assert static.refresh(thing) is not None
    thing.counter = object()
    assert not unchanged(static, thing)
    assert static.refresh(thing) is not None
    for _ in range(5):
        thing.counter = object()
        assert unchanged(static, thing)
    thing.number = 4
    assert not unchanged(static, thing) and static.refresh(thing) is None


def test_snapshots_that_keep_failing_are_given_a_rest(monkeypatch):
    monkeypatch.setattr(version_snapshots.VersionSnapshots, "differing", lambda self: {})
    monkeypatch.setattr("lampwork.runtime.guards.static.ATTEMPTS", 2)
    thing = make_thing()
    static = static_guards([Guard(own("number"), Equals(3))])
    same = 0
    for _ in range(20):
        thing.counter = object()
        assert static.refresh(thing) is not None
        same += unchanged(static, thing)
    assert 1 <= same <= 4


def test_arguments_that_overlap_weights_are_noticed():
    weights = torch.zeros(16)
    others = [weights[:4], weights[8:12]]
    overlap = Overlap(others)
    assert overlap.disjoint(weights[4:8].data_ptr(), 16)
    assert not overlap.disjoint(weights[3:7].data_ptr(), 16)
    assert not overlap.disjoint(weights[10:].data_ptr(), 4)
    assert overlap.disjoint(weights[12:].data_ptr(), 16)
    assert overlap.disjoint(weights[8:].data_ptr(), 0)
    assert not overlap.disjoint(weights.data_ptr() - 8, 1000)


def test_guards_are_parted():
    sources = (Argument(0), own("weight"), Argument(1), own("other"))
    split = Split([Guard(sources[0], Distinct(sources[1:])), Guard(sources[0], StorageGroups(sources, ()))])
    assert {type(guard.test) for guard in split.call} == {Distinct, StorageGroups}
    assert split.different == [Argument(0), Argument(1)] and split.disjoint == [Argument(0), Argument(1)]
    assert split.others == [own("weight"), own("other")]
    mixed = Guard(sources[0], StorageGroups(sources, (((0, 0), (1, 4)),)))
    assert Split([mixed]).call == [mixed]


COMPARE = """
define i64 @compare(ptr %table) nounwind {
entry:
  br label %record
record:
  %p = phi ptr [ %table, %entry ], [ %q, %next.record ]
  %count = load i64, ptr %p
  %done = icmp eq i64 %count, 0
  br i1 %done, label %equal, label %start
start:
  %address.place = getelementptr i64, ptr %p, i64 1
  %address = load ptr, ptr %address.place
  %words = getelementptr i64, ptr %p, i64 2
  br label %word
word:
  %i = phi i64 [ 0, %start ], [ %i1, %next.word ]
  %expected.place = getelementptr i64, ptr %words, i64 %i
  %expected = load i64, ptr %expected.place
  %found.place = getelementptr i64, ptr %address, i64 %i
  %found = load i64, ptr %found.place
  %same = icmp eq i64 %expected, %found
  br i1 %same, label %next.word, label %differs
next.word:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %word, label %next.record
next.record:
  %q = getelementptr i64, ptr %words, i64 %count
  br label %record
equal:
  ret i64 0
differs:
  ret i64 1
}
"""


def test_machine_code_compares_as_its_source_says():
    """The bytes in memory_words.py and LLVM's compilation of the loop above agree on tables of every shape."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(COMPARE), machine)
    engine.finalize_object()
    reference_compare = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("compare"))
    import random
    from array import array

    random.seed(0)
    for _ in range(200):
        memory = array("Q", [random.randrange(1 << 64) for _ in range(32)])
        base = memory.buffer_info()[0]
        table = array("Q")
        for _ in range(random.randrange(5)):
            start = random.randrange(28)
            count = random.randrange(1, 5)
            table.extend([count, base + 8 * start, *memory[start : start + count]])
        table.append(0)
        if len(table) > 1 and random.random() < 0.5:
            memory[random.randrange(32)] ^= 1 << random.randrange(64)
        address = table.buffer_info()[0]
        assert memory_words.compare()(address) == reference_compare(address)


def test_there_is_code_for_this_machine():
    assert platform.machine() in memory_words._MACHINE_CODE
