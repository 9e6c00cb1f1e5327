"""Sizes that are equal however they are written, and others that are equal at many numbers but not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lampwork.ir.equal_sizes import are_equal
from lampwork.ir.size import Symbol, add, evaluate, floordiv, maximum, mod, mul, symbols

s, t = Symbol("s", 2), Symbol("t", 2)
minus = lambda left, right: add(left, mul(right, -1))


@pytest.mark.parametrize(
    "left, right",
    [
        (floordiv(add(s, 1), 2), mul(floordiv(mul(s, -1), 2), -1)),
        (floordiv(add(s, 1), 2), minus(s, floordiv(s, 2))),
        (s, add(floordiv(add(s, 1), 2), floordiv(s, 2))),
        (s, add(add(floordiv(add(s, 2), 3), floordiv(add(s, 1), 3)), floordiv(s, 3))),
        (floordiv(add(s, 3), 4), floordiv(add(floordiv(add(s, 1), 2), 1), 2)),
        (mul(t, s), add(mul(t, floordiv(add(s, 1), 2)), mul(t, floordiv(s, 2)))),
        (s, add(mul(floordiv(s, 4), 4), mod(s, 4))),
    ],
)
def test_equal(left, right):
    assert are_equal(left, right) and are_equal(right, left)
    assert not are_equal(add(left, 1), right)


@pytest.mark.parametrize(
    "left, right",
    [
        (floordiv(add(s, 1), 2), floordiv(s, 2)),  # for even numbers
        (floordiv(s, 64), floordiv(add(s, 1), 64)),  # but for every 64th
        (s, t),
        (mul(s, s), s),  # at 0 and 1
        (floordiv(s, t), floordiv(add(s, 1), t)),  # not found out
        (maximum(s, 4), s),
    ],
)
def test_not_equal(left, right):
    assert not are_equal(left, right)


_sizes = st.recursive(
    st.sampled_from([s, t]) | st.integers(-3, 3),
    lambda inner: st.one_of(
        st.builds(add, inner, inner),
        st.builds(mul, inner, st.integers(-3, 3)),
        st.builds(floordiv, inner, st.integers(1, 4)),
        st.builds(mod, inner, st.integers(1, 4)),
    ),
    max_leaves=5,
)


@given(_sizes, _sizes)
def test_what_is_told_to_be_equal_is(left, right):
    if are_equal(left, right):
        names = symbols(left) | symbols(right)
        for number in range(2, 60):
            values = {name: number + 7 * place for place, name in enumerate(sorted(names))}
            assert evaluate(left, values) == evaluate(right, values)
