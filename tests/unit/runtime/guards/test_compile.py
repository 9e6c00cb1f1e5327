"""Each test of a guard: holds where it was made, fails when the program changes, in the compiled check and in words."""

from __future__ import annotations

import collections
import pickle
import sys
import types

import pytest
import torch

from lampwork.ir.guard import (
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
    MroIs,
    NumberRelation,
    ObjectRef,
    Registered,
    SameObject,
    StorageGroups,
    TensorIs,
    TypeIs,
)
from lampwork.ir.number import applied, both, compared, constant, leaf
from lampwork.ir.reference import reference
from lampwork.ir.source import (
    Argument,
    Attribute,
    Cell,
    ClassAttribute,
    InstanceDict,
    Item,
    KeyAt,
    Keyword,
    Named,
    PythonModule,
    Root,
    State,
    TypeOf,
)
from lampwork.runtime.guards.compile import compile_check, explain_failure, source_text

A, B = Argument(0), Argument(1)
ROWS, COLUMNS, NUMBER, STEP = leaf(A, "shape", 0), leaf(A, "shape", 1), leaf(A, "value"), leaf(B, "stride", 0)
NAN = float("nan")


class Box:
    limit = 3

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        return 1


class Sly:
    """Would fool a check that runs the program's own code."""

    def __eq__(self, other):
        raise AssertionError("a guard ran __eq__ of the program")

    def __getattribute__(self, name):
        raise AssertionError("a guard ran __getattribute__ of the program")

    __hash__ = None


class SlyDict(dict):
    def __getitem__(self, key):
        raise AssertionError("a guard ran __getitem__ of the program")

    def __len__(self):
        raise AssertionError("a guard ran __len__ of the program")


def other_function():
    return 2


def make_counter(start):
    def counter():
        return start

    return counter


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(2, 3)


FLOATS = TensorIs("torch.Tensor", "float32", (2, 3), (3, 1), "cpu", False)
SAMPLE = types.ModuleType("lampwork_guard_sample")
SAMPLE.value = 1
sys.modules["lampwork_guard_sample"] = SAMPLE

#: (guards, arguments they hold for, arguments they fail for)
CASES = {
    "count": ([Guard(Root(), ArgumentCount(2, ()))], (1, 2), (1,)),
    "int": ([Guard(A, Equals(3))], (3,), (4,)),
    "int is no bool": ([Guard(A, Equals(1))], (1,), (True,)),
    "int is no float": ([Guard(A, Equals(1))], (1,), (1.0,)),
    "bool": ([Guard(A, Equals(True))], (True,), (1,)),
    "none": ([Guard(A, Equals(None))], (None,), (0,)),
    "str": ([Guard(A, Equals("a"))], ("a",), ("b",)),
    "nan": ([Guard(A, Equals(NAN))], (float("nan"),), (0.0,)),
    "zero keeps its sign": ([Guard(A, Equals(0.0))], (0.0,), (-0.0,)),
    "minus zero": ([Guard(A, Equals(-0.0))], (-0.0,), (0.0,)),
    "float": ([Guard(A, Equals(1.5))], (1.5,), (2.5,)),
    "float is no int": ([Guard(A, Equals(2.0))], (2.0,), (2,)),
    "float is no bool": ([Guard(A, Equals(1.0))], (1.0,), (True,)),
    "complex": ([Guard(A, Equals(1j))], (1j,), (1 + 1j,)),
    "tuple": ([Guard(A, Equals((1, (2.0, "x"))))], ((1, (2.0, "x")),), ((1, (2, "x")),)),
    "frozenset": ([Guard(A, Equals(frozenset({1, 2})))], (frozenset({2, 1}),), (frozenset({True, 2}),)),
    "slice": ([Guard(A, Equals(slice(1, None)))], (slice(1, None),), (slice(1, 2),)),
    "range": ([Guard(A, Equals(range(3)))], (range(3),), (range(4),)),
    "dtype": ([Guard(A, Equals(torch.float32))], (torch.float32,), (torch.float64,)),
    "device": ([Guard(A, Equals(torch.device("cpu")))], (torch.device("cpu"),), (torch.device("meta"),)),
    "size": ([Guard(A, Equals(torch.Size([2])))], (torch.Size([2]),), ((2,),)),
    "memory format": ([Guard(A, Equals(torch.channels_last))], (torch.channels_last,), (torch.contiguous_format,)),
    "equality is never the program's": ([Guard(A, Equals(3))], (3,), (Sly(),)),
    "type": ([Guard(A, TypeIs(reference(Box)))], (Box(),), ({},)),
    "subclass": ([Guard(A, TypeIs(reference(dict)))], ({},), (collections.OrderedDict(),)),
    "object": ([Guard(A, IsObject(reference(Box)))], (Box,), (Sly,)),
    "function": ([Guard(A, FunctionIs(reference(other_function)))], (other_function,), (make_counter,)),
    "closures share code": ([Guard(A, FunctionIs(reference(make_counter(1))))], (make_counter(2),), (other_function,)),
    "tensor dtype": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.ones(2, 3).double(),)),
    "tensor shape": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.ones(2, 4),)),
    "tensor strides": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.ones(3, 2).t(),)),
    "tensor grad": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.ones(2, 3, requires_grad=True),)),
    "tensor class": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.nn.Parameter(torch.ones(2, 3)),)),
    "tensor device": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.ones(2, 3, device="meta"),)),
    "tensor layout": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (torch.ones(2, 3).to_sparse(),)),
    "tensor of inference mode": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (inference_tensor(),)),
    "relation of sizes": (
        [Guard(A, NumberRelation(compared("==", ROWS, applied("mul", constant(2), COLUMNS))))],
        (torch.ones(6, 3),), (torch.ones(6, 4),),
    ),
    "relation of a number and a stride": (
        [Guard(A, NumberRelation(both(compared("<=", constant(2), NUMBER), compared("<", NUMBER, STEP))))],
        (2, torch.ones(2, 3)), (3, torch.ones(2, 3)),
    ),
    "no tensor": ([Guard(A, FLOATS)], (torch.ones(2, 3),), (Sly(),)),
    "negative bit": (
        [Guard(A, TensorIs("torch.Tensor", "float32", (2,), (2,), "cpu", False))],
        (torch.ones(4)[::2],), (torch.ones(2, dtype=torch.complex64).conj().imag,),
    ),
    "conjugate bit": (
        [Guard(A, TensorIs("torch.Tensor", "complex64", (2,), (1,), "cpu", False))],
        (torch.ones(2, dtype=torch.complex64),), (torch.ones(2, dtype=torch.complex64).conj(),),
    ),
    "dynamic dimension": (
        [Guard(A, TensorIs("torch.Tensor", "float32", (None, 3), (3, 1), "cpu", False))],
        (torch.ones(7, 3),), (torch.ones(7, 4),),
    ),
    "length": ([Guard(A, TypeIs(reference(list))), Guard(A, LengthIs(2))], ([1, 2],), ([1],)),
    "length of a subclass": ([Guard(A, LengthIs(0))], (SlyDict(),), (SlyDict(a=1),)),
    "keys": ([Guard(A, TypeIs(reference(dict))), Guard(A, KeysAre(("a", "b")))], ({"a": 1, "b": 2},), ({"b": 1, "a": 2},)),
    "keys of their types": ([Guard(A, KeysAre((1,)))], ({1: 2},), ({True: 2},)),
    "elements": ([Guard(A, KeysAre((1, 2), ordered=False))], ({2, 1},), ({1, 3},)),
    "has key": ([Guard(A, TypeIs(reference(dict))), Guard(A, HasKey("a", True))], ({"a": 1},), ({},)),
    "has no key": ([Guard(InstanceDict(A), HasKey("x", False))], (Box(),), (Box(x=1),)),
    "attribute": ([Guard(Item(InstanceDict(A), "x"), Equals(1))], (Box(x=1),), (Box(x=2),)),
    "attribute gone": ([Guard(Item(InstanceDict(A), "x"), Equals(1))], (Box(x=1),), (Box(),)),
    "item": ([Guard(Item(A, 0), Equals(1))], ([1],), ([2],)),
    "item of a subclass": ([Guard(Item(A, "a"), Equals(1))], (SlyDict(a=1),), (SlyDict(a=2),)),
    "key object": ([Guard(KeyAt(A, 1), Equals("b"))], ({"a": 1, "b": 2},), ({"a": 1, "c": 2},)),
    "closure": ([Guard(Cell(A, 0), Equals(1))], (make_counter(1),), (make_counter(2),)),
    "type of": ([Guard(TypeOf(A), IsObject(reference(int)))], (1,), (True,)),
    "slot": ([Guard(Attribute(A, "start"), Equals(1))], (range(1, 3),), (range(2, 3),)),
    "class attribute": ([Guard(ClassAttribute(TypeOf(A), "limit"), Equals(3))], (Box(),), (Sly(),)),
    "class lookup": ([Guard(TypeOf(A), ClassLookup("method", reference(Box.method)))], (Box(),), (Sly(),)),
    "class lookup of nothing": ([Guard(TypeOf(A), ClassLookup("method", None))], (Sly(),), (Box(),)),
    "bases": ([Guard(A, MroIs(tuple(map(reference, bool.__mro__[1:]))))], (bool,), (float,)),
    "registered": ([Guard(A, Registered(reference(collections.abc.Mapping), True))], (dict,), (Box,)),
    "not registered": ([Guard(A, Registered(reference(collections.abc.Mapping), False))], (Box,), (dict,)),
    "same object": ([Guard(A, SameObject(B))], ((one := Box()), one), (one, Box())),
    "distinct": ([Guard(A, Distinct((B,)))], (Box(), Box()), (one, one)),
    "named": ([Guard(ClassAttribute(Named(__name__, "Box"), "limit"), Equals(3))], (), None),
    "module global": ([Guard(Item(InstanceDict(PythonModule("lampwork_guard_sample")), "value"), Equals(1))], (), None),
    "state": ([Guard(State("grad_mode"), Equals(True))], (), None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_holds_and_fails(name):
    guards, good, bad = CASES[name]
    check = compile_check(guards, [Argument(index) for index in range(len(good))])
    found = check(None, good, {})
    assert found is not None and all(left is right for left, right in zip(found, good, strict=True))
    assert explain_failure(guards, None, good, {}) == ""
    if bad is not None:
        assert check(None, bad, {}) is None
        assert explain_failure(guards, None, bad, {}) != ""


@pytest.mark.parametrize("name", CASES)
def test_stored_guards_hold_in_another_process(name):
    """Unpickled guards have no live objects: everything is found again by name."""
    guards, good, bad = CASES[name]
    stored = pickle.loads(pickle.dumps(guards))
    assert source_text(stored, ()) == source_text(guards, ())
    if name == "closures share code":  # its name cannot be found, and need not be: the digest decides
        assert compile_check(stored, ())(None, good, {}) == ()
        return
    check = compile_check(stored, ())
    assert check(None, good, {}) == ()
    if bad is not None:
        assert check(None, bad, {}) is None


def test_a_global_changes():
    guards = CASES["module global"][0]
    check = compile_check(guards, ())
    SAMPLE.value = 2
    try:
        assert check(None, (), {}) is None
        assert explain_failure(guards, None, (), {}) == "lampwork_guard_sample.value was 1, is now 2"
    finally:
        SAMPLE.value = 1
    assert check(None, (), {}) == ()


def test_process_state_changes():
    check = compile_check(
        [Guard(State("grad_mode"), Equals(True)), Guard(State("default_dtype"), Equals(torch.float32))], ()
    )
    assert check(None, (), {}) == ()
    with torch.no_grad():
        assert check(None, (), {}) is None
    torch.set_default_dtype(torch.float64)
    try:
        assert check(None, (), {}) is None
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_method_is_replaced():
    class Local:
        def method(self):
            return 1

    guards = [Guard(TypeOf(A), ClassLookup("method", reference(Local.method)))]
    check = compile_check(guards, ())
    assert check(None, (Local(),), {}) == ()
    Local.method = lambda self: 2
    assert check(None, (Local(),), {}) is None


def test_code_of_a_function_is_replaced():
    def changing():
        return 1

    guards = [Guard(A, FunctionIs(reference(changing)))]
    check = compile_check(guards, ())
    assert check(None, (changing,), {}) == ()
    changing.__code__ = other_function.__code__
    assert check(None, (changing,), {}) is None


def test_module_is_plain():
    layer = torch.nn.Linear(2, 2)
    guards = [Guard(A, TypeIs(reference(torch.nn.Linear))), Guard(A, ModuleIsPlain(("forward",), ("_forward_hooks",)))]
    check = compile_check(guards, ())
    assert check(None, (layer,), {}) == ()
    handle = layer.register_forward_hook(lambda *_: None)
    assert check(None, (layer,), {}) is None
    assert "_forward_hooks was empty, has now 1 entries" in explain_failure(guards, None, (layer,), {})
    handle.remove()
    assert check(None, (layer,), {}) == ()
    layer.forward = lambda x: x
    assert check(None, (layer,), {}) is None


def test_keywords_that_no_guard_knows():
    for count in (0, 1):
        check = compile_check([Guard(Root(), ArgumentCount(count, ()))], ())
        assert check(None, (1,) * count, {}) == ()
        assert check(None, (1,) * count, {"a": 1}) is None
        assert check(None, (1,) * (count + 1), {}) is None


def test_keyword_names_in_any_order():
    guards = [Guard(Root(), ArgumentCount(0, ("a", "b"))), Guard(Keyword("a"), Equals(1))]
    check = compile_check(guards, [Keyword("b")])
    assert check(None, (), {"b": 2, "a": 1}) == (2,)
    assert check(None, (), {"a": 1}) is None
    assert check(None, (), {"a": 1, "c": 2}) is None


def aliasing(groups, *tensors):
    sources = tuple(Argument(index) for index in range(len(tensors)))
    guards = [
        Guard(source, TensorIs("torch.Tensor", "float32", tuple(each.shape), tuple(each.stride()), "cpu", False))
        for source, each in zip(sources, tensors)
    ]
    return compile_check([*guards, Guard(sources[0], StorageGroups(sources, groups))], ())


def test_overlap_among_inputs():
    base = torch.zeros(16)
    x, y = base[:8], base[8:]
    disjoint = aliasing((), x, y)
    assert disjoint(None, (x, y), {}) == ()
    assert disjoint(None, (torch.zeros(8), torch.zeros(8)), {}) == ()
    assert disjoint(None, (x, x), {}) is None
    assert disjoint(None, (x, base[4:12]), {}) is None
    assert disjoint(None, (base[4:12], x), {}) is None


def test_overlap_keeps_its_offsets():
    base = torch.zeros(16)
    shifted = aliasing((((0, 0), (1, 16)),), base[:8], base[4:12], torch.zeros(8))
    assert shifted(None, (base[:8], base[4:12], torch.zeros(8)), {}) == ()
    assert shifted(None, (base[1:9], base[5:13], torch.zeros(8)), {}) == ()
    assert shifted(None, (base[:8], base[3:11], torch.zeros(8)), {}) is None
    assert shifted(None, (base[:8], base[4:12], base[8:16]), {}) is None


def test_a_name_this_process_does_not_have():
    ref = ObjectRef("class", "no_such_module", "Thing")
    with pytest.raises(LookupError):
        compile_check([Guard(A, TypeIs(ref))], ())


def test_message_names_path_and_line():
    from lampwork.ir.loops import Location

    guards = [Guard(Item(InstanceDict(Root()), "hidden"), Equals(4), Location("model.py", 12))]
    assert explain_failure(guards, Box(hidden=8), (), {}) == "self.hidden was 4, is now 8 (read at model.py:12)"
