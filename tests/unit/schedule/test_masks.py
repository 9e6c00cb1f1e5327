"""Masks and selects that make no difference: which go, which must stay, and generated expressions with all kinds."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lampwork.ir import interpret
from lampwork.ir.loops import Axis, Compute, Expr, Index, Load, nodes
from lampwork.ir.print import expression_text
from lampwork.ir.scalar_operators import SCALARS
from lampwork.ir.size import Size, Symbol, evaluate
from lampwork.schedule.expressions import Pool, rewriter
from lampwork.schedule.masks import simplify_masks
from tests.unit.schedule.programs import constant, op

I, J = Symbol("i", 0, 7), Symbol("j", 0, 9)
AXES = (Axis("i", 8), Axis("j", 10))
ZERO = constant(0.0)


def compare(name: str, left: Size, right: Size) -> Compute:
    return Compute(name, (Index(left), Index(right)), "bool")


def both(*conditions: Expr) -> Expr:
    found = conditions[0]
    for other in conditions[1:]:
        found = op("and", found, other)
    return found


def where(condition: Expr, value: Expr, other: Expr = ZERO) -> Expr:
    return op("where", condition, value, other)


def load(buffer: str, *index: Size, mask: Expr | None = None, dtype: str = "float32", **options) -> Load:
    return Load(buffer, index, dtype, mask=mask, **options)


def pooled(pool: Pool, value: Expr) -> Expr:
    """`value` with equal parts as one object."""
    kept = lambda load, index, indirect, mask: pool.load(load.buffer, index, load.dtype, indirect, mask, load.other)
    return rewriter(pool, {}, kept)(value)


def simplified(value: Expr, axes: tuple[Axis, ...] = AXES) -> str:
    pool = Pool()
    (found,) = simplify_masks(pool, [pooled(pool, value)], axes)
    return expression_text(found)


def simplified_nodes(value: Expr) -> int:
    pool = Pool()
    return len(nodes(simplify_masks(pool, [pooled(pool, value)], AXES)))


def text(value: Expr) -> str:
    return expression_text(pooled(Pool(), value))


NEAR = compare("lt", J, 7)
FLAG = load("flag", 0, mask=NEAR, dtype="bool")


def test_a_chain_has_one_select_at_its_end():
    x = where(NEAR, load("x", I, J, mask=NEAR))
    assert simplified(where(NEAR, op("exp", where(NEAR, op("neg", x))))) == text(
        where(NEAR, op("exp", op("neg", load("x", I, J, mask=NEAR))))
    )


def test_what_lies_in_a_row_is_loaded_for_the_row():
    row = op("log", where(NEAR, load("m", I, mask=NEAR)))
    assert simplified(where(NEAR, op("sub", load("x", I, J, mask=NEAR), row))) == text(
        where(NEAR, op("sub", load("x", I, J, mask=NEAR), op("log", load("m", I))))
    )


def test_only_the_part_of_a_mask_that_says_nothing_of_the_address_goes():
    inside = compare("lt", I, 5)
    mask = both(NEAR, inside)
    value = where(NEAR, op("exp", load("m", I, mask=mask)))
    assert simplified(value) == text(where(NEAR, op("exp", load("m", I, mask=inside))))


def test_what_a_mask_of_its_own_guards_is_freed_with_it():
    """A flag that was read behind the condition, and guards the row."""
    mask = both(NEAR, FLAG)
    flag = load("flag", 0, dtype="bool")
    value = where(mask, op("sub", load("x", I, J, mask=mask), load("m", I, mask=mask)))
    assert simplified(value) == text(
        where(both(NEAR, flag), op("sub", load("x", I, J, mask=both(NEAR, flag)), load("m", I, mask=flag)))
    )


def test_a_load_that_is_seen_without_the_condition_keeps_its_mask():
    row = load("m", I, mask=NEAR)
    value = op("add", where(NEAR, op("exp", row)), row)
    assert simplified(value) == text(value)


def test_a_value_that_is_also_seen_outside_stays_one_value():
    inner = op("exp", where(NEAR, load("x", I, J, mask=NEAR), constant(1.0)))
    value = op("add", where(NEAR, inner), inner)
    assert simplified(value) == text(value)


@pytest.mark.parametrize(
    "condition",
    [
        compare("lt", J, 0),
        both(compare("ge", J, 5), compare("lt", J, 5)),
        compare("ge", J, 10),
        compare("lt", J, Symbol("s0", 0, 99)),
        compare("lt", J, Symbol("s0", 0, 99) - 7),
        op("not", op("or", compare("ge", J, Symbol("s0", 0, 99)), compare("lt", J, 0))),
    ],
)
def test_a_condition_that_may_never_hold_stays(condition):
    """The row may then be outside: nobody has ever read it."""
    value = where(condition, op("exp", load("m", I, mask=condition)))
    assert simplified(value) == text(value)


@pytest.mark.parametrize(
    "condition",
    [
        both(compare("ge", J, 4), compare("lt", J, 5)),
        both(compare("gt", J, 3), compare("le", J, 4)),
        both(compare("ge", J - 9, 0), compare("lt", J, 10)),
        op("not", compare("lt", J, 9)),
        op("or", compare("lt", J, 0), compare("ge", J, 9)),
        compare("lt", J, Symbol("s0", 1, 99)),
        compare("lt", J, Symbol("s0", 0, 99) + 2),
        compare("ge", J + 1, 10),
    ],
)
def test_a_condition_that_holds_somewhere_goes(condition):
    value = where(condition, op("exp", load("m", I, mask=condition)))
    assert simplified(value) == text(where(condition, op("exp", load("m", I))))


def test_conditions_on_an_axis_that_another_one_needs_stay():
    """j < 3 holds wherever the row is seen, j < 7 might keep what the rest lets in from being read."""
    close = compare("lt", J, 3)
    mask = both(close, NEAR)
    value = where(close, op("exp", load("m", I, mask=mask)))
    assert simplified(value) == text(value)


def test_conditions_on_two_axes_go_where_no_axis_is_of_the_address():
    corner = compare("lt", I + J, 5)
    value = where(corner, op("exp", op("add", load("m", I, mask=corner), load("c", 0, mask=corner))))
    assert simplified(value) == text(where(corner, op("exp", op("add", load("m", I, mask=corner), load("c", 0)))))


def test_data_keep_masking():
    flag = load("flags", J, dtype="bool")
    value = where(flag, op("exp", load("m", I, mask=flag)))
    assert simplified(value) == text(value)


def test_an_axis_that_bounds_another_moves_nothing():
    value = where(NEAR, op("exp", load("m", I, mask=NEAR)))
    axes = (Axis("j", 10), Axis("i", Symbol("j", 0, 9)))
    assert simplified(value, axes) == text(value)


@pytest.mark.parametrize("name", ["floordiv", "truncdiv", "mod", "fmod"])
def test_an_integer_is_never_divided_by_what_nobody_sees(name):
    divisor = where(NEAR, load("k", I, J, dtype="int64", mask=NEAR), constant(1, "int64"))
    value = where(NEAR, op(name, constant(9, "int64"), divisor), constant(0, "int64"))
    assert simplified(value) == text(value)
    exact = op("fmod", ZERO, where(NEAR, load("x", I, J, mask=NEAR), constant(1.0)))
    assert simplified(where(NEAR, exact)) == text(where(NEAR, op("fmod", ZERO, load("x", I, J, mask=NEAR))))


def test_what_is_asserted_is_what_was_asserted():
    number = where(NEAR, load("k", I, J, dtype="int64", mask=NEAR), constant(1, "int64"))
    checked = op("asserted", number, op("lt", number, constant(5, "int64"), dtype="bool"), dtype="int64")
    value = where(NEAR, checked, constant(1, "int64"))
    assert simplified(value) == text(value)


def test_what_asserts_something_is_not_left_out():
    """Not even where nobody sees it: eager fails there, too."""
    number = load("k", I, dtype="int64")
    checked = op("asserted", number, op("lt", number, constant(5, "int64"), dtype="bool"), dtype="int64")
    gathered = load("m", Symbol("x", 0, 2), indirect=(("x", checked),))
    for value in (
        where(NEAR, where(NEAR, load("x", I, J, mask=NEAR), gathered)),
        where(NEAR, load("x", I, J, mask=NEAR), where(both(NEAR, op("gt", gathered, ZERO, dtype="bool")), ZERO, ZERO)),
    ):
        assert "asserted" in simplified(value)


def test_a_gather_reads_nowhere_else():
    number = where(NEAR, load("k", I, dtype="int64", mask=NEAR), constant(0, "int64"))
    row = Symbol("x", 0, 2)
    value = where(NEAR, op("exp", load("m", row, mask=NEAR, indirect=(("x", number),))))
    found = where(NEAR, op("exp", load("m", row, mask=NEAR, indirect=(("x", load("k", I, dtype="int64")),))))
    assert simplified(value).replace("x1", "x0") == text(found)


def test_a_select_of_what_the_load_gives_anyway_goes():
    assert simplified(where(NEAR, load("x", I, J, mask=NEAR, other=2.0), constant(2.0))) == text(
        load("x", I, J, mask=NEAR, other=2.0)
    )
    for other in (-0.0, 1.0):
        value = where(NEAR, load("x", I, J, mask=NEAR, other=0.0), constant(other))
        assert simplified(value) == text(value)


def test_the_other_side_of_a_select_is_seen_where_the_condition_does_not_hold():
    far = op("not", NEAR)
    x, y = load("x", I, J, mask=NEAR), load("y", I, J - 7, mask=far)
    inner = op("exp", where(NEAR, x, where(far, y, constant(3.0))))
    assert simplified(inner) == text(op("exp", where(NEAR, x, y)))
    either = op("or", NEAR, compare("ge", I, 5))
    nested = where(either, x, op("exp", where(NEAR, x, where(op("not", either), x, ZERO))))
    assert simplified(nested) == text(where(either, x, op("exp", x)))


def test_a_condition_is_a_number_where_it_does_not_hold():
    """In the other branch the condition is false."""
    number = op("cast", op("and", NEAR, FLAG), dtype="float32")
    never = op("cast", constant(False, "bool"), dtype="float32")
    assert simplified(where(NEAR, load("x", I, J), number)) == text(where(NEAR, load("x", I, J), never))


def test_conditions_that_share_parts_are_looked_at_once():
    first, second = load("flags", I, dtype="bool"), load("flags", J, dtype="bool")
    condition: Expr = NEAR
    for _ in range(60):
        condition = op("or", op("and", condition, first), op("and", op("not", condition), second))
    inner = where(condition, load("x", I, J, mask=condition))
    assert simplified_nodes(where(condition, op("exp", inner))) < simplified_nodes(op("exp", inner)) + 3


# -- Generated expressions --------------------------------------------------------------------------------------------

#: Shapes of the inputs. "none" is empty: whatever may read it must be masked off everywhere.
BUFFERS = {"x": (4, 5), "r": (4,), "c": (5,), "one": (1,), "short": (2,), "flags": (4,), "none": (0,)}
SIZE = Symbol("s0", 0, 6)


class Chooser:
    """Draws expressions of few conditions, so that they meet again below each other."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.extents = draw(st.integers(1, 6)), draw(st.integers(1, 7))
        self.axes = [Symbol(name, 0, extent - 1) for name, extent in zip("ij", self.extents)]
        self.conditions: list[Expr] = []
        for _ in range(draw(st.integers(1, 4))):
            self.conditions.append(self.condition())

    def position(self) -> Size:
        i, j = self.axes
        return self.draw(st.sampled_from([i, j, i + j, j - 1, 2 * j]))

    def comparison(self) -> Expr:
        limit = self.draw(st.one_of(st.integers(-1, 7), st.just(SIZE)))
        return compare(self.draw(st.sampled_from(["lt", "le", "gt", "ge"])), self.position(), limit)

    def condition(self) -> Expr:
        kind = self.draw(st.sampled_from(["plain", "plain", "and", "or", "not", "flag"]))
        known = lambda: self.draw(st.sampled_from(self.conditions)) if self.conditions else self.comparison()
        if kind in ("and", "or"):
            return op(kind, known(), self.comparison() if self.draw(st.booleans()) else self.flag(known()))
        if kind == "not":
            return op("not", known())
        return self.flag(known()) if kind == "flag" else self.comparison()

    def flag(self, mask: Expr) -> Expr:
        return self.read("flags", "bool", mask)

    def read(self, name: str, dtype: str, mask: Expr | None) -> Expr:
        """A load whose mask keeps it inside, and asks for `mask`."""
        index = [self.position() for _ in BUFFERS[name]]
        if self.draw(st.booleans()):
            index = [0 for _ in index]
        conditions = [] if mask is None else [mask]
        # Now and then it is for `mask` to keep it inside, on whatever grounds; where it does not, the example is dropped.
        alone = mask is not None and self.draw(st.integers(0, 3)) == 0
        for position, extent in zip(index, BUFFERS[name]) if not alone else ():
            values = self.values(position)
            if min(values) < 0:
                conditions.append(compare("ge", position, 0))
            if max(values) >= extent:
                conditions.append(compare("lt", position, extent))
        conditions = self.draw(st.permutations(conditions))
        other = self.draw(st.sampled_from([0, 1])) if dtype != "float32" else 0.0
        return load(name, *index, dtype=dtype, mask=both(*conditions) if conditions else None, other=other)

    def values(self, position: Size) -> list[int]:
        return [evaluate(position, {"i": i, "j": j}) for i in range(self.extents[0]) for j in range(self.extents[1])]

    def masked(self) -> Expr | None:
        return self.draw(st.sampled_from([None, *self.conditions, *self.conditions]))

    def value(self, depth: int) -> Expr:
        kind = self.draw(
            st.sampled_from(["read", "const", "flag"] if depth == 0 else ["where"] * 3 + ["unary", "add", "div"])
        )
        if kind == "const":
            return constant(self.draw(st.sampled_from([0.0, 1.0])))
        if kind == "read":
            return self.read(
                self.draw(st.sampled_from(["x", "r", "c", "one", "short", "none"])), "float32", self.masked()
            )
        if kind == "flag":  # a condition as a number, whatever is known of it here
            return op("cast", self.draw(st.sampled_from(self.conditions)), dtype="float32")
        if kind == "where":
            condition = self.draw(st.sampled_from(self.conditions))
            return where(condition, self.value(depth - 1), self.value(self.draw(st.integers(0, depth - 1))))
        if kind == "unary":
            return op("neg", self.value(depth - 1))
        if kind == "add":
            return op("add", self.value(depth - 1), self.value(depth - 1))
        number = op("cast", self.value(depth - 1), dtype="int64")
        condition = self.draw(st.sampled_from(self.conditions))
        divisor = where(condition, op("cast", self.value(0), dtype="int64"), constant(1, "int64"))
        return op("cast", op("floordiv", number, divisor), dtype="float32")


@contextmanager
def nothing_is_divided_by_zero():
    def divide(a, b):
        if not np.all(b):
            raise ZeroDivisionError
        return np.floor_divide(a, b)

    with mock.patch.dict(SCALARS, floordiv=replace(SCALARS["floordiv"], arrays=divide)):
        yield


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=200, derandomize=True)
@given(st.data())
def test_generated_expressions_keep_their_values_and_read_nothing_outside(data):
    chooser = Chooser(data.draw)
    pool = Pool()
    roots = [pooled(pool, chooser.value(data.draw(st.integers(1, 5)))) for _ in range(data.draw(st.integers(1, 2)))]
    random = np.random.default_rng(data.draw(st.integers(0, 3)))
    arrays = {
        name: random.integers(0, 2, shape).astype(bool)
        if name == "flags"
        else random.integers(0, 3, shape).astype("f4")
        for name, shape in BUFFERS.items()
    }
    axes = tuple(Axis(axis.name, extent) for axis, extent in zip(chooser.axes, chooser.extents))
    found = simplify_masks(pool, roots, axes)
    i, j = np.meshgrid(*map(np.arange, chooser.extents), indexing="ij")
    environment = {"i": i, "j": j, "s0": data.draw(st.integers(0, 6))}
    with np.errstate(all="ignore"), nothing_is_divided_by_zero():
        try:
            expected = [interpret.evaluate_expression(root, environment, arrays) for root in roots]
        except (IndexError, ZeroDivisionError):
            assume(False)
        for ours, theirs in zip(found, expected):
            ours = interpret.evaluate_expression(ours, environment, arrays)
            np.testing.assert_array_equal(np.broadcast_to(ours, i.shape), np.broadcast_to(theirs, i.shape))
