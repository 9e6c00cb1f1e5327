"""Symbolic sizes: arithmetic stays symbolic, questions leave the fewest guards that are sound."""

from __future__ import annotations

import itertools
import operator
import random
from functools import partial

import pytest
import torch

from lampwork.fakes.symbolic import SymbolicSizes, hint_of, size_of
from lampwork.ir.number import text
from lampwork.ir.source import Argument


def make(*hints: int, lower: int = 2) -> tuple:
    sizes = SymbolicSizes()
    made = [sizes.symbol(Argument(index), "shape", 0, hint, lower) for index, hint in enumerate(hints)]
    return sizes, *made


def texts(sizes: SymbolicSizes) -> list[str]:
    names = {leaf: name for name, leaf in sizes.sources.items()}
    return [text(guard.test.holds, names.__getitem__) for guard in sizes.guards()]


def hold(sizes: SymbolicSizes, **values: int) -> bool:
    """Whether a call with these sizes passes the guards."""
    return all(eval(text, {"min": min, "max": max}, dict(values)) for text in texts(sizes))


def test_arithmetic_stays_symbolic():
    sizes, a, b = make(7, 12)
    value = (a * 2 + b - 3) * 4
    assert str(size_of(value)) == "(8*s0 + 4*s1 + -12)"
    assert hint_of(value) == (14 + 12 - 3) * 4
    assert texts(sizes) == ["2 <= s0", "2 <= s1"]


def test_what_bounds_prove_leaves_no_guard():
    sizes, a, b = make(7, 12)
    assert a > 1 and a >= 2 and a != 0 and a != 1 and not a == 0 and a * b > 3 and -a < 0
    assert a + b >= 4 and (a * 64) % 8 == 0 and (a * b * 64) // (b * 16) == a * 4
    assert b < a * b and 0 < a * b * 4 and a % 5 < 5
    assert texts(sizes) == ["2 <= s0", "2 <= s1"]


def test_comparison_with_a_number_narrows_the_bounds():
    sizes, a = make(7)
    assert a <= 100 and a > 4 and not a >= 60 and a < 100 and a > 3
    assert texts(sizes) == ["5 <= s0 <= 59"]


def test_inequality_at_the_edge_narrows_and_elsewhere_is_kept():
    sizes, a = make(7)
    assert a != 2 and a != 20
    assert texts(sizes) == ["3 <= s0", "s0 != 20"]


def test_equality_with_a_number_specialises():
    sizes, a, b = make(7, 9)
    assert a == 7
    assert size_of(a * b) == size_of(b * 7) and size_of(a) == 7
    assert texts(sizes) == ["2 <= s1", "s0 == 7"]


def test_equal_symbols_become_one():
    sizes, a, b = make(7, 7)
    before = a + b
    assert a == b
    assert size_of(before) == size_of(a * 2) and a - b == 0 and b <= a
    assert texts(sizes) == ["2 <= s0", "s0 == s1"]


def test_linear_equality_is_solved():
    sizes, a, b = make(7, 15)
    assert b == a * 2 + 1
    assert size_of(b - a) == size_of(a + 1)
    assert not hold(sizes, s0=7, s1=14) and hold(sizes, s0=3, s1=7)


def test_multiples_are_known_as_such():
    sizes, a = make(24)
    assert a % 8 == 0
    assert a % 4 == 0 and (a * 3) % 24 == 0 and a // 8 * 8 == a
    assert str(size_of(a // 8)) == "m0"
    assert texts(sizes) == ["2 <= s0", "s0 % 8 == 0"]
    assert a // 8 < 10
    assert hold(sizes, s0=72) and not hold(sizes, s0=80) and not hold(sizes, s0=12)


@pytest.mark.parametrize(
    "hint, question, size, left",
    [
        (3, lambda a: (a + 1) // 2 == 2, lambda a: (a + 1) // 2, "2"),
        (5, lambda a: a - (a + 1) // 2 == 2, lambda a: a - (a + 1) // 2, "2"),
        (6, lambda a: a - (a + 1) // 2 == (a + 1) // 2, lambda a: (a + 1) // 2, "m0"),
        (7, lambda a: a % 4 == 3, lambda a: (a + 1) // 4 - a // 4, "1"),
        (9, lambda a: (a * a) // 4 == 20, lambda a: a * a // 4, "20"),
        (7, lambda a: min(a // 2, 3) == 3, lambda a: min(a // 2, 3), "3"),
    ],
)
def test_an_equality_of_divisions_is_in_every_expression(hint, question, size, left):
    sizes, a = make(hint)
    before = size(a)
    assert question(a)
    assert str(size_of(before)) == left == str(size_of(size(a)))
    assert hold(sizes, s0=hint) and not sizes.unsettled()


def test_equal_divisions_and_products_of_several_sizes_are_one():
    sizes, a, b, c = make(7, 8, 28)
    assert (a + 1) // 2 == (b + 1) // 2 + 0 and a * b == c * 2
    assert size_of((a + 1) // 2 - (b + 1) // 2) == 0
    assert size_of(a * b * 3) == size_of(c * 6)
    assert hold(sizes, s0=7, s1=8, s2=28) and not hold(sizes, s0=9, s1=8, s2=36)


def test_a_product_that_a_number_divides_is_a_multiple_of_it():
    sizes, a, b = make(7, 8)
    assert (a * b) % 4 == 0
    assert (a * b) // 4 * 4 == a * b and size_of(a * b // 4 * 12) == size_of(a * b * 3)
    assert texts(sizes) == ["2 <= s0", "2 <= s1", "s0*s1 % 4 == 0"]


def test_sizes_in_proportion_are_multiples_of_one():
    sizes, a, b = make(9, 6)
    assert a * 2 == b * 3
    assert str(size_of(a)) == "(3*m0)" and str(size_of(b)) == "(2*m0)"


def test_numbers_specialise_with_their_reason():
    sizes, a = make(7)
    assert int(a) == 7 and list(range(a)) == list(range(7))
    assert texts(sizes) == ["s0 == 7"]
    (found,) = sizes.specialised()
    assert (
        found.reason
        == "argument 0.size(0) is fixed at 7: the program needs it as a number (guard: argument 0.size(0) == 7)"
    )


def test_a_false_conjunction_guards_one_part():
    sizes, a, b = make(7, 9)
    assert not bool((a > 8) & (b > 3))
    assert texts(sizes) == ["2 <= s0 <= 8", "2 <= s1"]


def test_division_by_negative_numbers_follows_python():
    sizes, a = make(7)
    assert hint_of(a // -2) == 7 // -2 and hint_of(a % -2) == 7 % -2
    with pytest.raises(ZeroDivisionError):
        a // (a - a)


def test_guards_are_data():
    import pickle

    sizes, a, b = make(7, 9)
    assert a * b < 1000
    (*_, last) = pickle.loads(pickle.dumps(sizes.guards()))
    assert last.test == sizes.guards()[-1].test and last.source == Argument(0)
    assert texts(sizes)[-1] == "s0*s1 < 1000"


COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]


def expression(rng: random.Random, atoms: list, depth: int):
    """(the value on symbols, the same function on numbers)."""
    if depth == 0 or rng.random() < 0.25:
        if rng.random() < 0.6:
            index = rng.randrange(len(atoms))
            return atoms[index], lambda numbers: numbers[index]
        number = rng.choice([1, 2, 3, 4, 8, 16])
        return number, lambda numbers: number
    (left, at_left), (right, at_right) = expression(rng, atoms, depth - 1), expression(rng, atoms, depth - 1)
    kind = rng.choice(["add", "add", "mul", "mul", "sub", "floordiv", "mod"])
    if kind in ("floordiv", "mod"):
        number = rng.choice([2, 3, 4, 8])
        op = operator.floordiv if kind == "floordiv" else operator.mod
        return op(left, number), lambda numbers: op(at_left(numbers), number)
    op = getattr(operator, kind)
    return op(left, right), lambda numbers: op(at_left(numbers), at_right(numbers))


@pytest.mark.parametrize("seed", range(60))
def test_every_answer_holds_for_all_sizes_that_pass_the_guards(seed):
    """The whole contract: values and answers computed on symbols are right for any sizes that the guards let pass."""
    rng = random.Random(seed)
    hints = [rng.randrange(2, 14) for _ in range(3)]
    sizes, *atoms = make(*hints)
    questions, values = [], []
    for _ in range(6):
        (left, at_left), (right, at_right) = expression(rng, atoms, 3), expression(rng, atoms, 2)
        compare = rng.choice(COMPARISONS)
        if rng.random() < 0.4:  # what holds for the sizes seen, which equalities by chance seldom do
            compare, rest = operator.eq, at_left(hints) - at_right(hints)
            right, at_right = right + rest, partial(lambda at, more, numbers: at(numbers) + more, at_right, rest)
        questions.append((compare, at_left, at_right, bool(compare(left, right))))
        values.append((left, at_left))
    sizes.settle()
    assert not sizes.unsettled()
    passed = 0
    names = ("s0", "s1", "s2")
    conditions = [compile(text, "guard", "eval") for text in texts(sizes)]
    assert hold(sizes, **dict(zip(names, hints)))
    for numbers in itertools.product(range(1, 15), repeat=3):
        scope = dict(zip(names, numbers), min=min, max=max)
        if not all(eval(condition, scope) for condition in conditions):
            continue
        passed += 1
        for compare, at_left, at_right, answer in questions:
            assert compare(at_left(numbers), at_right(numbers)) == answer, (texts(sizes), numbers)
        made = {name: eval(str(sizes._with_sources(value)), scope) for name, value in sizes._made.items()}
        for value, at in values:
            resolved = size_of(value) if isinstance(value, torch.SymInt) else value
            assert eval(str(resolved), {**scope, **made}) == at(numbers), (str(resolved), numbers)
    assert passed
