"""Expressions of numbers against Python's own arithmetic: the text, the walk and the simplifier give the same bits."""

from __future__ import annotations

import math
import operator
import struct

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lampwork.ir import number as numbers
from lampwork.ir import number_algebra as algebra
from lampwork.ir import size as sizes
from lampwork.ir.number import Compare, Constant, Integer, Leaf, applied, both, compared, constant, integer, leaf
from lampwork.ir.number_operations import KINDS, NAMES, OPERATIONS, RELATION_OF, RELATIONS, operation_of, single
from lampwork.ir.size import Symbol
from lampwork.ir.source import Argument
from lampwork.ir.text import UnboundName

SOURCES = [Argument(index) for index in range(7)]
#: Numbers of a call: three floats, two integers, and two sizes of at least 1.
FLOATS = [leaf(SOURCES[index], "value", 0, "float") for index in range(3)]
INTEGERS = [leaf(SOURCES[index], "value", 0, "int") for index in (3, 4)]
SIZES = {"s0": leaf(SOURCES[5], "shape", 0), "s1": leaf(SOURCES[6], "shape", 1)}
LEAVES = [*FLOATS, *INTEGERS, *SIZES.values()]
NAMES_OF_LEAVES = {each: f"n{index}" for index, each in enumerate(LEAVES)}
S0, S1 = (integer(Symbol(name, 1), SIZES) for name in ("s0", "s1"))

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, 2.0**53 + 1]
floats = st.one_of(st.sampled_from(SPECIAL), st.floats(), st.floats(-8, 8))
integers = st.one_of(st.integers(-9, 9), st.integers(), st.sampled_from([1 << 53, (1 << 53) + 1, 1 << 1100]))
calls = st.fixed_dictionaries(
    {each: floats if each in FLOATS else integers if each in INTEGERS else st.integers(1, 40) for each in LEAVES}
)

BINARY = [each for each in OPERATIONS.values() if each.python.count("{}") == 2]
UNARY = ["neg", "pos", "abs", "float", "int", "round", "math.floor", "math.sqrt", "math.exp", "math.log", "math.tanh",
         "math.isnan", "math.isfinite", "math.fabs", "math.sin", "math.trunc"]  # fmt: skip
PAIRS = ["min", "max", "math.pow", "math.copysign", "math.hypot", "math.fmod", "math.atan2"]

leaf_of = st.one_of(
    st.sampled_from([*FLOATS, *INTEGERS, S0, S1]), st.one_of(floats, integers, st.booleans()).map(constant)
)


expressions = st.recursive(
    leaf_of,
    lambda inner: st.one_of(
        st.builds(lambda name, left, right: (name, left, right), st.sampled_from([each.name for each in BINARY]), inner,
                  inner),
        st.builds(lambda name, left, right: (name, left, right), st.sampled_from(PAIRS), inner, inner),
        st.builds(lambda name, value: (name, value), st.sampled_from(UNARY), inner),
    ),
    max_leaves=6,
)  # fmt: skip
conditions = st.recursive(
    st.builds(lambda name, *parts: ("compare", name, *parts), st.sampled_from([*RELATIONS]), expressions, expressions)
    | st.builds(lambda a, b, c: ("compare", "<=", a, b, c), expressions, expressions, expressions),
    lambda inner: st.builds(lambda a, b: ("and", a, b), inner, inner) | st.builds(lambda a: ("not", a), inner)
    | st.builds(lambda a: ("is_float", a), expressions),
    max_leaves=3,
)  # fmt: skip


def build(program, apply=applied, compare=compared):
    if not isinstance(program, tuple):
        return program
    name, *parts = program
    if name == "compare":
        made = compare(parts[0], *[build(each, apply, compare) for each in parts[1:]])
    elif name == "and":
        made = both(*[build(each, apply, compare) for each in parts])
    else:
        made = apply(name, *[build(each, apply, compare) for each in parts])
    return algebra.expression(made)


def python(program, call):
    """What Python makes of the program."""
    if isinstance(program, Leaf):
        return call[program]
    if isinstance(program, Constant):
        return program.value
    if isinstance(program, Integer):
        return call[program.leaves[0]]
    name, *parts = program
    if name == "compare":
        values = [python(each, call) for each in parts[1:2]]
        for each in parts[2:]:
            values.append(python(each, call))
            if not RELATIONS[parts[0]](*values[-2:]):
                return False
        return True
    if name == "and":
        return python(parts[0], call) and python(parts[1], call)
    return OPERATIONS[name].function(*[python(each, call) for each in parts])


def outcome(compute):
    """The class and the bits of a number, or the class of what is raised."""
    try:
        value = compute()
    except (ArithmeticError, ValueError, TypeError) as error:  # complex numbers have no order
        return type(error)
    if type(value) is float:
        return float, "nan" if math.isnan(value) else struct.pack("<d", value)
    return type(value), value


def by_text(expression, call):
    names = {NAMES_OF_LEAVES[each]: value for each, value in call.items()}
    return eval(numbers.text(expression, NAMES_OF_LEAVES.__getitem__), {"__builtins__": NAMES}, names)


def is_small(program):
    """Whether computing it takes no time: powers of large integers do."""
    if not isinstance(program, tuple):
        return True
    name, *parts = program
    return name != "pow" and all(map(is_small, parts[1:] if name == "compare" else parts))


@settings(max_examples=400, deadline=None)
@given(expressions | conditions, calls)
def test_the_text_and_the_walk_are_what_python_computes(program, call):
    assume(is_small(program))
    expected = outcome(lambda: python(program, call))
    made = build(program)
    assert outcome(lambda: numbers.evaluate(made, call.__getitem__)) == expected
    assert outcome(lambda: by_text(made, call)) == expected


@settings(max_examples=400, deadline=None)
@given(expressions, calls)
def test_what_is_simplified_is_the_same_number(program, call):
    assume(is_small(program))
    expected = outcome(lambda: python(program, call))
    made = build(program, algebra.apply, algebra.compare)
    assert outcome(lambda: numbers.evaluate(made, call.__getitem__)) == expected
    assert outcome(lambda: by_text(made, call)) == expected


@settings(max_examples=200, deadline=None)
@given(floats, st.sampled_from([0, 1, -1, 3]) | st.sampled_from([0.5, -0.5, 2.0, -2.0, 0.0]))
def test_powers(base, exponent):
    """They raise, overflow, and are complex where Python's are."""
    made = applied("pow", FLOATS[0], constant(exponent))
    expected = outcome(lambda: base**exponent)
    assert outcome(lambda: numbers.evaluate(made, {FLOATS[0]: base}.__getitem__)) == expected
    assert made.kind is None
    checked = applied("is_float", made)
    if not isinstance(expected, type):
        assert numbers.evaluate(checked, {FLOATS[0]: base}.__getitem__) is (expected[0] is float)


@settings(max_examples=300, deadline=None)
@given(expressions, calls)
def test_the_class_that_an_expression_says_is_the_class_of_its_number(program, call):
    made = build(program)
    assume(made.kind is not None and is_small(program))
    try:
        value = numbers.evaluate(made, call.__getitem__)
    except (ArithmeticError, ValueError):
        return
    assert type(value) is KINDS[made.kind]


@settings(max_examples=200, deadline=None)
@given(expressions | conditions)
def test_equal_expressions_are_one_object(program):
    assert build(program) is build(program)


@given(floats, floats)
def test_that_a_number_is_another_by_bits(value, other):
    asked = numbers.equals(FLOATS[0], value)
    same = struct.pack("<d", value) == struct.pack("<d", other) or (math.isnan(value) and math.isnan(other))
    assert numbers.evaluate(asked, {FLOATS[0]: other}.__getitem__) is same
    assert by_text(asked, {FLOATS[0]: other}) is same


def test_constants_are_told_by_class_and_bits():
    values = [0, 0.0, -0.0, False, 1, 1.0, True, math.nan]
    assert len({constant(each) for each in values}) == len(values)
    assert constant(math.nan) == constant(math.nan) and constant(0.0) != constant(-0.0)
    with pytest.raises(TypeError):
        constant("text")


def test_texts():
    f0, f1 = FLOATS[:2]
    show = lambda number: numbers.text(number, NAMES_OF_LEAVES.__getitem__)
    step = applied("sub", constant(1), applied("mul", f0, constant(0.01)))
    assert show(step) == "(1 - (n0 * 0.01))"
    assert show(applied("math.sqrt", step)) == "math.sqrt((1 - (n0 * 0.01)))"
    assert show(applied("add", f0, constant(-0.0))) == "(n0 + (-0.0))"
    assert show(applied("not", compared("<", f0, f1))) == "not n0 < n1"
    assert show(applied("not", both(compared("<", f0, f1), compared("<", f1, f0)))) == "not (n0 < n1 and n1 < n0)"
    assert show(applied("is_float", applied("pow", f0, f1))) == "type((n0 ** n1)) is float"
    assert show(numbers.equals(f0, 0.0)) == "n0 == 0.0 and math.copysign(1.0, n0) == 1.0"
    assert show(numbers.equals(f0, math.nan)) == "n0 != n0"
    twice = algebra.expression(algebra.apply("add", S0, algebra.apply("add", S0, 1)))
    assert show(compared("<=", constant(-2), twice, constant(9))) == "-2 <= 2*n5 + 1 <= 9"
    assert show(applied("truediv", twice, f0)) == "((2*n5 + 1) / n0)"
    third = integer(sizes.floordiv(Symbol("s0", 1), sizes.mul(Symbol("s1", 1), 3)), SIZES)
    assert show(third) == "n5 // (3*n6)"


def test_words_name_where_numbers_come_from():
    assert numbers.words(compared("<=", constant(2), S1)) == "2 <= argument 6.size(1)"
    counters = [leaf(each, "item", 0, "float") for each in SOURCES]
    told = numbers.words(compared("==", *counters))
    assert told == "argument 0.item() and 6 other numbers like argument 6.item() to be equal"
    assert numbers.words(compared("==", *counters[:2])) == "argument 0.item() == argument 1.item()"


def test_leaves_and_nodes():
    made = applied("add", applied("mul", FLOATS[1], FLOATS[0]), applied("mul", FLOATS[1], S1))
    assert made.leaves == (FLOATS[1], FLOATS[0], SIZES["s1"]) and made.nodes == 8
    assert compared("==", made, made).leaves == made.leaves


def test_a_size_whose_symbol_no_call_has():
    with pytest.raises(UnboundName, match="m0"):
        integer(sizes.add(Symbol("s0"), sizes.mul(Symbol("m0"), 2)), SIZES)


def test_symbols_of_one_name_that_are_other_numbers_stay_apart():
    other = integer(Symbol("s0", 1), {"s0": SIZES["s1"]})
    assert isinstance(algebra.apply("add", S0, other), numbers.Apply)
    assert isinstance(algebra.compare("<", S0, other), Compare)


def test_what_is_known_of_integers_is_answered():
    more = algebra.apply("add", S0, 1)
    assert algebra.compare("<", S0, more) is True and algebra.compare("==", S0, more) is False
    assert algebra.apply("sub", more, S0) == 1
    assert algebra.apply("floordiv", algebra.apply("mul", S0, 4), 2) == algebra.apply("mul", S0, 2)
    assert algebra.apply("floordiv", S0, 0) == applied("floordiv", S0, constant(0))
    assert algebra.apply("truediv", 1, 0) == applied("truediv", constant(1), constant(0))


def test_operations_by_function():
    for each in OPERATIONS.values():
        assert operation_of(each.function) is each
    assert operation_of(operator.iadd) is OPERATIONS["add"] and operation_of([]) is None
    assert RELATION_OF[operator.lt] == "<" and single(0.1) != 0.1
