"""The tables of guards and steps are complete, and a new guard needs a record and a rule, nothing else."""

from __future__ import annotations

import math
import pickle

import pytest

from lampwork.debug.words import guard_words
from lampwork.ir import guard as guards_of_ir
from lampwork.ir import source as sources_of_ir
from lampwork.ir.guard import Guard, Test
from lampwork.ir.record import record
from lampwork.ir.source import Argument, Attribute, InstanceDict, Item, Root, Source
from lampwork.runtime.cache import schema
from lampwork.runtime.guards import memory_words, rules
from lampwork.runtime.guards.compile import compile_check, explain_failure
from lampwork.runtime.guards.failures import evaluate, short
from lampwork.runtime.guards.interpreter import Scope, read
from lampwork.runtime.guards.recompiles import recompile
from lampwork.runtime.guards.rules import GuardRule, StepRule, guard_rule
from lampwork.runtime.guards.static import Split, StaticGuards
from lampwork.runtime.guards.version_snapshots import VersionSnapshots


def kinds(module, base):
    return [
        each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base) and each is not base
    ]


def missing(rule, base, *methods):
    return [name for name in methods if getattr(type(rule), name) is getattr(base, name)]


@pytest.mark.parametrize("kind", kinds(guards_of_ir, Test), ids=lambda kind: kind.__name__)
def test_every_test_has_a_rule(kind):
    assert not missing(rules.GUARD_RULES[kind], GuardRule, "difference", "emit", "snapshot")
    assert kind.words is not Test.words
    assert kind.about in ("", *guards_of_ir.ABOUT) and kind.about_static in ("", *guards_of_ir.ABOUT)
    assert len(schema.RECORDS[kind]) == len(schema.names(kind))


@pytest.mark.parametrize("kind", kinds(sources_of_ir, Source), ids=lambda kind: kind.__name__)
def test_every_step_has_a_rule(kind):
    assert not missing(rules.STEP_RULES[kind], StepRule, "read", "text", "snapshot")
    assert kind.describe is not Source.describe
    assert len(schema.RECORDS[kind]) == len(schema.names(kind))


def test_sources_in_fields_are_told():
    """A source that a record holds beside `base` is one of `reads` or `keys`: else it would pass for static."""
    names = {"reads": (guards_of_ir, Test), "keys": (sources_of_ir, Source)}
    for method, (module, base) in names.items():
        for kind in kinds(module, base):
            fields = [name for name, text in kind.__annotations__.items() if name != "base"]
            holds = any(
                part in kind.__annotations__[name] for name in fields for part in ("Source", "Key", "NumberExpr")
            )
            assert holds is (method in vars(kind)), kind


def test_what_has_no_rule_is_refused():
    with pytest.raises(TypeError, match="not a test"):
        rules.rule_of(Test())
    with pytest.raises(TypeError, match="not a source"):
        rules.step_of(Source())


@record
class IsFinite(Test):
    """A float that is neither infinite nor NaN, if `finite`; one that is, if not."""

    finite: bool

    def words(self, where: str) -> str:
        return f"{where} is {'finite' if self.finite else 'infinite or NaN'}"


class IsFiniteRule(GuardRule[IsFinite]):
    def difference(self, test, source, scope: Scope) -> str:
        value = read(source, scope)
        if type(value) is float and math.isfinite(value) is test.finite:
            return ""
        return f"was {'finite' if test.finite else 'infinite or NaN'}, is now {short(value)}"

    def emit(self, writer, test, source) -> None:
        value = writer.load(source)
        is_finite = f"{writer.constant(math.isfinite)}({value})"
        writer.refuse(f"type({value}) is not {writer.constant(float)} or {is_finite} is not {test.finite}")

    def snapshot(self, snapshots: VersionSnapshots, test, source) -> None:
        snapshots.value(source)


@pytest.fixture
def is_finite(monkeypatch):
    monkeypatch.setattr(rules, "GUARD_RULES", dict(rules.GUARD_RULES))
    guard_rule(IsFinite)(IsFiniteRule)


class Model:
    def __init__(self, scale):
        self.scale = scale


SCALE = Item(InstanceDict(Root()), "scale")


def test_a_new_test_is_compiled_and_told(is_finite):
    guards = [Guard(Argument(0), IsFinite(True))]
    check = compile_check(guards, [Argument(0)])
    for value, holds in ((1.0, True), (math.inf, False), (math.nan, False), (1, False), ("1", False)):
        assert check(None, (value,), {}) == ((value,) if holds else None)
        assert evaluate(guards, [Argument(0)], None, (value,), {}) == ((value,) if holds else None)
    assert explain_failure(guards, None, (math.inf,), {}) == "argument 0 was finite, is now inf"
    assert guard_words(guards[0]) == "argument 0 is finite"
    assert recompile(guards, lambda x: x, (math.inf,), {}).remedy == rules.OWN_REMEDY
    assert guards_of_ir.about(guards[0]) == guards_of_ir.ARGUMENTS


def test_a_new_test_is_stored(is_finite):
    guard = pickle.loads(pickle.dumps(Guard(SCALE, IsFinite(True))))
    assert guard == Guard(SCALE, IsFinite(True))
    (finite,) = schema.fields_by_annotation(IsFinite)
    assert finite(True) and not finite(1)


@pytest.mark.skipif(not memory_words.supported(), reason="version snapshots are for CPython 3.11 and 3.12")
def test_a_new_test_is_in_snapshots(is_finite):
    guards = [Guard(SCALE, IsFinite(True))]
    model = Model(1.0)
    static = StaticGuards(guards, [SCALE], [0], 1, [])
    state = static.refresh(model)
    assert state.values == [1.0] and not memory_words.compare()(state.address)
    model.scale = math.inf
    assert memory_words.compare()(state.address) and static.refresh(model) is None
    model.scale = 2.0
    assert static.refresh(model).values == [2.0]


def test_a_new_test_is_placed(is_finite):
    guards = [Guard(Attribute(SCALE, str(number)), IsFinite(True)) for number in range(20)]
    split = Split([Guard(Argument(0), IsFinite(True)), *guards])
    assert split.call == [Guard(Argument(0), IsFinite(True))] and split.static == guards


@pytest.mark.parametrize("kind", kinds(sources_of_ir, Source), ids=lambda kind: kind.__name__)
def test_what_a_call_decides_is_never_static(kind):
    """Whatever the step starts at: guards are divided as `is_static` says."""
    values = {"base": Root(), "args": (Argument(0),), "kwargs": (), "key": Argument(0), "texts": ("s0",), "numbers": ()}
    source = kind(**{name: values.get(name, 0) for name in schema.names(kind)})
    assert Split([]).is_static(source) == sources_of_ir.is_static(source)
    assert not (kind.from_call and sources_of_ir.is_static(source))
