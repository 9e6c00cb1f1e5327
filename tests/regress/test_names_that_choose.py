"""A text that names what the program reads (`self.layers[self.chosen]`) may change without a compile for each name.

What lies at the name is guarded as it is found on each call; any other use of the text fixes it.
"""

from __future__ import annotations

import collections
import itertools
import json
import re
import types

import pytest
import torch
from torch import nn

import lampwork


class Text(str):
    def __eq__(self, other):
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Reads:
    def __init__(self, table):
        self.table = table

    def __getitem__(self, name):
        return self.table[name] * 2

    def __contains__(self, name):
        return name in self.table


class Missing(dict):
    def __missing__(self, name):
        return torch.full((3,), 7.0)


class State:
    """What the programs below read: made anew for each run of them."""

    def __init__(self, name="a"):
        self.name = name
        self.names = [name, "b"]
        self.table = {"a": torch.ones(3), "b": torch.full((3,), 2.0), "c": torch.full((3,), 3.0)}
        self.ordered = collections.OrderedDict(self.table)
        self.scales = {"a": 0.5, "b": 0.25, "c": 3.0}
        self.counts = {"a": 1, "b": 2, "c": 3}
        self.few = {"a": torch.ones(3)}
        self.notes = {"a": {"v": 1.0}, "b": {"v": 2.0}, "c": {"v": 3.0}}
        self.lists = {"a": [1.0], "b": [], "c": [2.0, 3.0]}
        self.missing = Missing(self.few)
        self.default = collections.defaultdict(lambda: torch.full((3,), 9.0), self.few)
        self.proxy = types.MappingProxyType(self.table)
        self.reads = Reads(self.table)
        self.last = None
        self.kinds = {"a": 1, "b": 2.0, "c": None}
        self.words = {"a": "b", "b": "c", "c": "a"}
        self.mixed = {"a": torch.ones(3), 1: torch.zeros(3), ("b",): torch.zeros(3)}


state = State()


def looks_up(x):
    return x * state.table[state.name] + state.scales[state.name] + state.counts[state.name]


def asks_first(x):
    return x * state.few[state.name] if state.name in state.few else x


def asks_keys(x):
    return x * state.few[state.name] if state.name in state.few.keys() else x


def gets(x):
    return x * state.scales.get(state.name, 8.0) + (state.few.get(state.name) is None)


def takes_each(x):
    for name in state.names:
        x = x * state.table[name]
    return x


def writes_to_two(x):
    first, second = state.table[state.names[0]], state.table[state.names[1]]
    first.add_(x)
    return second * 2


def writes_beside_a_constant(x):
    state.table[state.name].mul_(2)
    return x + state.table["b"]


def writes_into_a_dict(x):
    state.notes[state.name]["v"] = 5.0
    return x + state.notes["b"]["v"]


def writes_into_dicts(x):
    state.notes[state.names[0]]["v"] += 5.0
    return x + state.notes[state.names[1]]["v"]


def appends(x):
    state.lists[state.name].append(4.0)
    return x + len(state.lists["b"]) + sum(state.lists[state.name])


def puts(x):
    state.table[state.name] = x + 1
    return state.table["a"] * state.table[state.name]


def puts_another(x):
    state.scales["b"] = 100.0
    return x * state.scales[state.name]


def takes_out(x):
    return x + state.table.pop(state.name) + len(state.table)


def deletes(x):
    del state.table[state.name]
    return x + len(state.table) + ("a" in state.table)


def puts_if_absent(x):
    return x + state.few.setdefault(state.name, x) + len(state.few)


def goes_on(x):
    state.name = state.words[state.name]
    return x * state.table[state.name]


def goes_once(x):
    return x * state.table[state.words[state.name]]


def goes_twice(x):
    return x * state.table[state.words[state.words[state.name]]]


def compares(x):
    return x + 1 if state.name == "b" else x - state.scales[state.name]


def differs(x):
    return x + 1 if state.name != state.names[1] else x


def is_the_same(x):
    return x + (state.name is state.names[0]) + (state.name is None)


def reads_letters(x):
    return x + len(state.name) + ord(state.name[0]) + ord(max(state.name)) + state.name.count("a")


def iterates(x):
    return x + sum(ord(letter) for letter in state.name)


def writes_text(x):
    made = f"{state.name}!" + "-" + state.name + "%s" % state.name + "".join([state.name, "z"]) + state.name * 2
    made += "{}".format(state.name) + repr(state.name) + str(state.name) + state.name.upper() + str([state.name])
    return x + sum(map(ord, made))


def lies_in_text(x):
    return x + (state.name in "abz") + ("a" in state.name) + ("cab".find(state.name)) + "cab".startswith(state.name)


def is_a_key_of_its_own(x):
    own = {state.name: 2.0, "b": 3.0}
    return x * own["b"] + len({state.name, "a"}) + {"a": 1}.get(state.name, 0) + sum(dict([(state.name, 4)]).values())


def makes_by_comprehension(x):
    return x + sum({name: 1.0 for name in state.names}.values()) + len({name for name in state.names})


def finds_in_lists(x):
    return x + (state.name in ["a", "b"]) + ("b" in state.names) + state.names.index("b") + state.names.count("b")


def walks(x):
    for name, value in state.table.items():
        if name == state.name:
            x = x * value
    return x


def is_passed_on(x):
    return _with_keywords(x, **{state.name: 2.0}) + (lambda name: state.table[name])(state.name)


def _with_keywords(x, a=0.0, b=0.0, **others):
    return x + a + 2 * b + len(others)


def goes_natively(x):
    pattern = bool(re.match("[ab]", state.name))
    return x + pattern + len(json.dumps([state.name, {state.name: 1}])) + hash(state.name) - hash(state.name)


def sorts(x):
    return x + ord(sorted([*state.names, "aa"])[0][0]) + ord(min(state.names)) + (state.names < ["b"])


def looks_at_attributes(x):
    values = types.SimpleNamespace(a=1.0, b=2.0, c=3.0)
    return x + getattr(values, state.name) + hasattr(state, state.name) + getattr(state, state.name, 2)


def returns_it(x):
    return x, state.name, [state.name], {"name": state.name}


def keeps_it(x):
    state.last = state.name
    state.names.append(state.name)
    return x * state.table[state.name]


def is_checked(x):
    kind = type(state.name) is str and isinstance(state.name, str)
    return x * state.table[state.name] + kind + callable(state.name) if state.name is not None else x


def divides(x):
    y = x * state.table[state.name]
    torch._dynamo.graph_break()
    return y * state.scales[state.name]


def reads_through_python(x):
    return x * state.reads[state.name] + (state.name in state.reads)


def reads_ordered(x):
    return x * state.ordered[state.name]


def reads_missing(x):
    return x * state.missing[state.name]


def reads_default(x):
    return x * state.default[state.name] + len(state.default)


def reads_proxy(x):
    return x * state.proxy[state.name]


def reads_kinds(x):
    found = state.kinds[state.name]
    return x if found is None else x * found


def reads_mixed(x):
    return x * state.mixed[state.name] if state.name in state.mixed else x


def raises(x):
    return x * state.few[state.name]


def prints(x):
    assert state.name, f"{state.name} is empty"
    return x if not state.name else x + bool(state.name)


PROGRAMS = [each for each in list(globals().values()) if isinstance(each, types.FunctionType) and
            each.__code__.co_varnames[:1] == ("x",) and not each.__name__.startswith("_")]  # fmt: skip


def _changed(name):
    made = State(name)
    return made


def _aliased(name):
    made = State(name)
    made.names = [name, name]
    made.table["c"] = made.table["a"]
    made.notes["c"] = made.notes["a"]
    return made


def _other(name):
    made = State(name)
    made.table = {"b": torch.full((5,), 4.0)[::2], "a": torch.full((3,), 6.0), "z": torch.zeros(3)}
    made.scales = {"b": 2, "a": 8.0, "c": 1.5}
    made.few = {}
    return made


def _as_class(name):
    made = State(Text(name))
    made.names = [Text(name), "a"]
    return made


def _run(function, make):
    """What a call gives and what it leaves behind."""
    global state
    state = make()
    x = torch.arange(3.0)
    try:
        found = ("value", function(x))
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        found = (type(error).__name__, str(error))
    return found, vars(state)


def _same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Reads):
        return _same(left.table, right.table)
    if isinstance(left, types.MappingProxyType):
        return _same(dict(left), dict(right))
    return left == right or callable(left)


@pytest.mark.parametrize("function", PROGRAMS)
def test_programs_do_what_eager_does_for_every_name(function):
    makers = (_changed, _changed, _aliased, _other, _as_class)
    compiled = lampwork.compile(function)
    for make, name in itertools.product(makers, ("a", "b", "c", "b", "aa", "a")):
        expected = _run(function, lambda: make(name))
        found = _run(compiled, lambda: make(name))
        assert _same(found[0], expected[0]), (name, make, found[0], expected[0])
        assert _same(found[1], expected[1]), (name, make)


@pytest.mark.parametrize(
    "function",
    [looks_up, takes_each, asks_first, asks_keys, goes_once, writes_beside_a_constant, is_checked, reads_ordered,
     reads_through_python],
)  # fmt: skip
def test_other_names_take_no_other_compile(function):
    """An entry for the first name, one for all names; and one more where a name says whether something is there."""
    global state
    compiled = lampwork.compile(function)
    x = torch.arange(3.0)
    names = [f"adapter {number}" for number in range(12)]
    for name in names:
        state = State(name)
        state.names = [name, names[0]] if name != names[0] else [name, names[1]]
        for place, each in enumerate(names):
            state.table[each] = torch.full((3,), place + 2.0)
            state.scales[each] = place + 0.5
            state.counts[each] = place + 5
            state.words[each] = names[place - 1]
        state.ordered = collections.OrderedDict(state.table)
        state.few = {name: torch.ones(3)}
        assert torch.equal(compiled(x), function(x))
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]
    assert stats["entries"] <= 2, [each.diagnostic.reason for each in stats["recompiles"]]


TABLE = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}


def test_a_name_may_be_an_argument():
    compiled = lampwork.compile(lambda x, name: x * TABLE[name])
    x = torch.ones(3)
    for name in "abcdab":
        assert torch.equal(compiled(x, name), x * TABLE[name])
    with pytest.raises(KeyError):
        compiled(x, "e")
    assert lampwork.stats(compiled)["entries"] <= 3


class Adapted(nn.Module):
    """A layer with low-rank adapters of several names and ranks."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(16, 16)
        self.down, self.up = nn.ModuleDict(), nn.ModuleDict()
        self.scaling = {}
        self.active = []

    def add(self, name, rank, scale):
        self.down[name] = nn.Linear(16, rank, bias=False)
        self.up[name] = nn.Linear(rank, 16, bias=False)
        self.scaling[name] = scale

    def forward(self, x):
        result = self.base(x)
        names = self.down.keys()
        for name in self.active:
            if name not in names:
                continue
            result = result + self.up[name](self.down[name](x)) * self.scaling[name]
        return result


@pytest.mark.parametrize("grad", [False, True])
def test_adapters_of_any_rank_share_an_entry(grad):
    torch.manual_seed(0)
    model = nn.Sequential(Adapted(), nn.GELU(), Adapted())
    compiled = lampwork.compile(model)
    x = torch.randn(4, 16)
    for number, rank in enumerate([4, 8, 64, 5, 32, 2, 16, 8]):
        for layer in (model[0], model[2]):
            layer.add(f"adapter {number}", rank, 16 / rank)
            layer.active = [f"adapter {number}"]
        with torch.set_grad_enabled(grad):
            found, expected = compiled(x), model(x)
        assert torch.allclose(found, expected, atol=1e-5)
        if grad:
            weights = [each for each in model.parameters() if each.requires_grad]
            for mine, eager in zip(
                torch.autograd.grad(found.square().sum(), weights, allow_unused=True),
                torch.autograd.grad(expected.square().sum(), weights, allow_unused=True),
            ):
                assert (mine is None) == (eager is None)
                assert mine is None or torch.allclose(mine, eager, atol=1e-4)
    assert lampwork.stats(compiled)["entries"] <= 2
    entries = lampwork.stats(compiled)["entries"]
    for chosen in (["adapter 1", "adapter 4"], ["adapter 6", "adapter 0"], ["adapter 3", "none"]):
        model[0].active = model[2].active = chosen
        with torch.set_grad_enabled(grad):
            assert torch.allclose(compiled(x), model(x), atol=1e-5)
    assert lampwork.stats(compiled)["entries"] == entries + 2  # two at once, and one that no layer knows
    model[0].scaling["adapter 3"] = 0.1
    del model[0].down["adapter 5"]
    with torch.set_grad_enabled(grad):
        assert torch.allclose(compiled(x), model(x), atol=1e-5)
    assert lampwork.stats(compiled)["entries"] == entries + 2


def writes_what_is_chosen(x):
    state.table[state.name].add_(1)
    return x * 2 + (x is state.table[state.name])


def reads_what_is_chosen(x):
    return x * state.table[state.name] + (x is state.table["b"])


@pytest.mark.parametrize("function", [writes_what_is_chosen, reads_what_is_chosen])
def test_a_call_may_pass_what_a_name_leads_to(function):
    """Names that change with each call are left to checks of every call, which see what the call passes, too."""
    global state
    compiled = lampwork.compile(function)
    held, mine = State(), State()
    for turn in range(60):
        held.name = mine.name = "abc"[turn % 3]

        def passed(own, turn=turn):
            if turn < 30 or turn % 2:
                return torch.arange(3.0)
            whole = own.table["abca"[turn % 4]]
            return (whole, whole[:], whole[1:])[turn % 3 if function is writes_what_is_chosen else 0]

        results = []
        for run, own in ((function, held), (compiled, mine)):
            state = own
            x = passed(own)
            try:
                results.append(run(x))
            except RuntimeError:  # sizes that do not fit
                results.append(None)
        assert _same(*results), turn
        assert _same(held.table, mine.table), turn


class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)
        self.scale = 1.0

    def forward(self, x):
        return x + self.up(self.down(x)) * self.scale


@pytest.mark.parametrize("kind", ["module", "parameter", "tensor"])
def test_weights_of_any_rank_may_be_put_in_place(kind):
    torch.manual_seed(0)
    model = LowRank().requires_grad_(False)
    compiled = lampwork.compile(model)
    x = torch.randn(3, 16)
    for rank in (4, 8, 64, 5, 32, 2, 4):
        down, up = torch.randn(rank, 16), torch.randn(16, rank)
        if kind == "module":
            model.down, model.up = nn.Linear(16, rank, bias=False), nn.Linear(rank, 16, bias=False)
        elif kind == "parameter":
            model.down.weight, model.up.weight = nn.Parameter(down), nn.Parameter(up)
        else:
            del model.down.weight, model.up.weight
            model.down.weight, model.up.weight = down, up
        model.scale = 16 / rank
        assert torch.allclose(compiled(x), model(x), atol=1e-4)
    stats = lampwork.stats(compiled)
    assert stats["entries"] <= 4, [each.diagnostic.reason for each in stats["recompiles"]]
    assert not stats["fallbacks"]
