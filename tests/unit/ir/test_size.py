"""Size expressions against enumeration: whatever the simplifier does, the value at every point stays the same."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from lampwork.ir import size
from lampwork.ir.size import FloorDiv, Mod, Symbol, add, evaluate, floordiv, mod, mul

SYMBOLS = (Symbol("a", 0, 3), Symbol("b", 0, 4), Symbol("c", 0, 0), Symbol("d", -2, 2), Symbol("n", 1, 3))
POINTS = [
    dict(zip("abcdn", point, strict=True))
    for point in itertools.product(range(4), range(5), range(1), range(-2, 3), range(1, 4))
]

#: Programs: a leaf, or an operator with programs. Evaluated twice: by the simplifier and by Python.
leaves = st.one_of(st.integers(-12, 12), st.sampled_from(SYMBOLS))


def _divisor(strategy):
    n = SYMBOLS[4]
    positive = [
        n,
        ("add", n, SYMBOLS[0]),
        ("add", ("mul", n, 2), -1),
        ("mul", n, n),
        ("mul", n, ("add", n, SYMBOLS[0])),
    ]
    return st.one_of(st.integers(1, 12), st.sampled_from(positive))


programs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "mul", "minimum", "maximum"]), inner, inner),
        st.tuples(st.sampled_from(["floordiv", "mod"]), inner, _divisor(inner)),
        st.tuples(st.just("mul"), inner, st.sampled_from([2, 3, 4, 6, 8, 12, -1, -4])),
    ),
    max_leaves=9,
)


def build(program):
    if not isinstance(program, tuple):
        return program
    return getattr(size, program[0])(build(program[1]), build(program[2]))


def value(program, point):
    if isinstance(program, Symbol):
        return point[program.name]
    if isinstance(program, int):
        return program
    left, right = value(program[1], point), value(program[2], point)
    match program[0]:
        case "add":
            return left + right
        case "mul":
            return left * right
        case "minimum":
            return min(left, right)
        case "maximum":
            return max(left, right)
        case "floordiv":
            return left // right
    return left % right


@settings(max_examples=600, deadline=None)
@given(programs)
def test_simplifying_keeps_the_value(program):
    expression = build(program)
    low, high = size.bounds(expression)
    for point in POINTS[::3]:
        expected = value(program, point)
        assert size.evaluate(expression, point) == expected, f"{program} became {expression}"
        assert eval(str(expression), {}, point) == expected, f"{program} is written {expression}"
        assert low <= expected <= high, f"bounds {low}..{high} of {expression} miss {expected}"


@settings(max_examples=200, deadline=None)
@given(programs, st.sampled_from(SYMBOLS[:2]), programs)
def test_substitution(program, symbol, replacement):
    expression, inner = build(program), build(replacement)
    low, high = size.bounds(inner)
    if low < symbol.lower or high > symbol.upper:
        return  # substitution is defined inside the symbol's bounds
    replaced = size.substitute(expression, {symbol.name: inner})
    for point in POINTS[::5]:
        at = {**point, symbol.name: value(replacement, point)}
        assert size.evaluate(replaced, point) == value(program, at)


@settings(max_examples=200, deadline=None)
@given(programs, st.sampled_from(SYMBOLS))
def test_coefficient(program, symbol):
    expression = build(program)
    step = size.coefficient(expression, symbol.name)
    if step is None:
        return
    for point in POINTS[::7]:
        moved = {**point, symbol.name: point[symbol.name] + 1}
        difference = size.evaluate(expression, moved) - size.evaluate(expression, point)
        assert difference == size.evaluate(step, point), f"{expression} along {symbol}"


@settings(max_examples=300, deadline=None)
@given(programs, programs)
def test_equal_sums_are_equal_objects(left, right):
    a, b = build(left), build(right)
    assert size.add(a, b) == size.add(b, a)
    assert hash(size.add(a, b)) == hash(size.add(b, a))


def test_reshapes_undo_each_other():
    i = Symbol("i", 0, 23)
    row, column = size.floordiv(i, 4), size.mod(i, 4)
    assert size.add(size.mul(row, 4), column) == i
    a, b = Symbol("x", 0, 5), Symbol("y", 0, 3)
    flat = size.add(size.mul(a, 4), b)
    assert (size.floordiv(flat, 4), size.mod(flat, 4)) == (a, b)
    # Three dimensions from one and back.
    outer, middle, inner = size.floordiv(i, 12), size.mod(size.floordiv(i, 4), 3), size.mod(i, 4)
    assert size.add(size.mul(size.add(size.mul(outer, 3), middle), 4), inner) == i


def test_common_factors_leave_quotients():
    i, j = Symbol("i", 0, 11), Symbol("j", 0, 3)
    flat = size.add(size.mul(i, 4), j)
    assert size.floordiv(flat, 8) == FloorDiv(i, 2)
    assert size.mod(flat, 8) == size.add(size.mul(Mod(i, 2), 4), j)


def test_division_by_a_sum_is_exact_where_it_divides():
    a, b = Symbol("a", 2), Symbol("b", 2)
    rest = size.add(b, size.mul(size.floordiv(b, 2), -1))
    assert size.floordiv(size.mul(a, rest), rest) == a and size.mod(size.mul(a, rest), rest) == 0
    assert size.floordiv(size.mul(size.add(a, -1), size.add(a, b)), size.add(a, b)) == size.add(a, -1)
    assert size.mod(size.add(size.mul(a, rest), 1), rest) != 0


def test_quotients_and_remainders_of_sums():
    """`(g*x + r + c) // (g*d)` and its remainder, for every value in the bounds: what is left out must be nothing."""
    for factor, times in itertools.product((2, 3, 4), (1, 2, 3)):
        for most in range(2 * factor + 1):
            for constant in (-factor, -1, 0, 1, factor + 1):
                x, rest = Symbol("x", 0, 5), Symbol("r", 0, most)
                total = add(add(mul(x, factor), rest), constant)
                divisor = factor * times
                quotient, remainder = floordiv(total, divisor), mod(total, divisor)
                for first, second in itertools.product(range(6), range(most + 1)):
                    values = {"x": first, "r": second}
                    expected = divmod(factor * first + second + constant, divisor)
                    assert (evaluate(quotient, values), evaluate(remainder, values)) == expected, (total, divisor)
