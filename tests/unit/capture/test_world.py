"""What reading each family of values costs in guards, where values came from, and how guards are shared."""

from __future__ import annotations

import collections
import functools

import pytest
import torch
from torch import nn

from lampwork.errors import GraphBreak
from lampwork.ir.guard import (
    ClassLookup,
    Distinct,
    Equals,
    FunctionIs,
    HasKey,
    IsObject,
    KeysAre,
    LengthIs,
    ModuleIsPlain,
    SameObject,
    StorageGroups,
    TensorIs,
    TypeIs,
)
from lampwork.ir.source import Argument, Attribute, Item, State, describe
from tests.capture_support import capture_call


class Holder:
    def __init__(self, value):
        self.value = value
        self.unread = [1, 2]


def read_guards(program, *args):
    """Guards by the printed path of their source; process state, the root and library names left out."""
    region = capture_call(program, torch.ones(2), *args)
    found = {}
    for guard in region.guards:
        path = describe(guard.source)
        if isinstance(guard.source, State) or not path.startswith("argument 1"):
            continue
        found.setdefault(path, []).append(type(guard.test))
    return found


def test_plain_data_is_equal():
    assert read_guards(lambda x, n: x * n, 3) == {"argument 1": [Equals]}


def test_plain_tuple_is_one_guard():
    assert read_guards(lambda x, t: x * t[0] + t[1][0], (1, (2, "a"))) == {"argument 1": [Equals]}


def test_list_element_guards_no_length():
    guards = read_guards(lambda x, v: x * v[1], [1, 2, 3])
    assert guards == {"argument 1": [TypeIs], "argument 1[1]": [Equals]}


def test_iterated_list_guards_length_and_elements():
    guards = read_guards(lambda x, v: x * sum(v), [1, 2])
    assert guards == {"argument 1": [TypeIs, LengthIs], "argument 1[0]": [Equals], "argument 1[1]": [Equals]}


def test_append_guards_nothing_but_the_type():
    assert read_guards(lambda x, v: v.append(x), [1, 2]) == {"argument 1": [TypeIs]}


def test_dict_entry_guards_that_entry():
    guards = read_guards(lambda x, v: x * v["a"] * v.get("zz", 1), {"a": 1, "b": 2})
    assert guards == {"argument 1": [TypeIs, HasKey], "argument 1['a']": [Equals]}


def test_iterated_dict_guards_keys_once():
    guards = read_guards(lambda x, v: (list(v), len(v), list(v)), {"a": 1, "b": 2})
    assert guards["argument 1"].count(KeysAre) == 1
    assert "argument 1['a']" not in guards


def test_attribute_guards_type_and_value():
    guards = read_guards(lambda x, h: x * h.value + h.value, Holder(2))
    assert guards == {"argument 1": [TypeIs], "argument 1.value": [Equals]}


def test_returned_objects_are_not_read():
    assert read_guards(lambda x, h: (x, h), Holder(2)) == {"argument 1": [TypeIs]}


@pytest.mark.parametrize("kind", [list, collections.deque])
def test_stored_containers_are_not_read(kind):
    guards = read_guards(lambda x, v: {"v": v}, kind([1]))
    assert set(guards["argument 1"]) == {TypeIs}


def test_same_object_at_two_paths():
    holder = Holder(2)
    region = capture_call(lambda a, b: torch.ones(1) * a.value * b.value, holder, holder)
    assert [guard.source for guard in region.guards if isinstance(guard.test, SameObject)] == [Argument(1)]


def test_tensors_are_inputs_once():
    x = torch.ones(2)
    region = capture_call(lambda a, b, c: a + b + c["k"], x, x, {"k": torch.ones(2)})
    assert region.inputs == (Argument(0), Item(Argument(2), "k"))
    kinds = [type(guard.test) for guard in region.guards]
    assert kinds.count(TensorIs) == 2 and kinds.count(Distinct) == 1
    assert StorageGroups not in kinds  # nothing is written


def test_overlapping_inputs_are_grouped():
    whole = torch.zeros(6)
    region = capture_call(lambda a, b, c: a.add_(1) + b + c.sum(), whole[:4], whole[2:], torch.ones(2))
    (groups,) = [guard.test.groups for guard in region.guards if isinstance(guard.test, StorageGroups)]
    assert groups == (((0, 0), (1, 8)),)


def test_functions_are_guarded_by_code():
    region = capture_call(lambda x, f: f(x), torch.ones(2), lambda x: x * 2)
    (test,) = [guard.test for guard in region.guards if guard.source == Argument(1)]
    assert isinstance(test, FunctionIs) and test.ref.digest


def test_partials_are_read_by_part():
    region = capture_call(lambda x, f: f(x), torch.ones(2), functools.partial(torch.mul, other=3.0))
    assert Equals(3.0) in [guard.test for guard in region.guards]
    assert Attribute(Argument(1), "func") in [guard.source for guard in region.guards]


def test_names_of_torch_builtins_are_portable():
    region = capture_call(lambda x: torch.conv1d(x, x), torch.ones(1, 1, 4))
    references = [guard.test.ref for guard in region.guards if isinstance(guard.test, IsObject)]
    assert references and all(reference.portable for reference in references)


class Layers(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(count)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_modules_cost_few_guards_each():
    counts = []
    for count in (2, 3):
        with torch.no_grad():
            counts.append(len(capture_call(Layers(count), torch.ones(2)).guards))
    # A Linear: its type, its plainness, the type of its parameter dict, two tensors.
    assert counts[1] - counts[0] == 5


def test_modules_of_a_class_share_class_guards():
    with torch.no_grad():
        region = capture_call(Layers(3), torch.ones(2))
    lookups = [(guard.source, guard.test.name) for guard in region.guards if isinstance(guard.test, ClassLookup)]
    assert len(lookups) == len(set(lookups))
    assert sum(isinstance(guard.test, ModuleIsPlain) for guard in region.guards) == 4  # those that are called


def test_nodes_know_their_line_and_module():
    with torch.no_grad():
        region = capture_call(Layers(2), torch.ones(2))
    locations = [node.meta["location"] for node in region.graph.nodes if node.op == "call_function"]
    assert {location.file for location in locations} == {__file__}
    assert [location.module for location in locations if location.module] and locations[-1].module.startswith(
        "layers.1"
    )


def test_interpreted_functions_are_listed_by_digest():
    region = capture_call(lambda x: x + 1, torch.ones(2))
    assert any(name.endswith("<lambda>") for name in region.code_digests)


def test_foreign_iterators_break():
    with pytest.raises(GraphBreak, match="callable_iterator"):
        capture_call(lambda x, it: next(it), torch.ones(2), iter(int, 1))


def test_break_names_line_and_function():
    def program(x):
        return torch.seed()

    with pytest.raises(GraphBreak) as stop:
        capture_call(program, torch.ones(2))
    assert stop.value.diagnostic.location.line == program.__code__.co_firstlineno + 1
