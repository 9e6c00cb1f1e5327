"""Accesses of buffers whose extents are sums: which parts become symbols, and what is proved of them then."""

from __future__ import annotations

from lampwork.ir.extents import in_extents
from lampwork.ir.offsets import Access
from lampwork.ir.size import Product, Symbol, add, floordiv, mul, product, substitute, symbols

N, S, T = Symbol("n", 1), Symbol("s", 2), Symbol("t", 2)
I, J, K, L = (Symbol(name) for name in "ijkl")


def rows(size):
    """What a convolution of 3, by steps of 2, leaves of `size`."""
    return add(floordiv(add(size, 1), 2), -1)


def window(height, width):
    """Rows 2*j + k and columns 2*l of an image, which masks keep inside of it."""
    row, column = add(mul(J, 2), K), mul(L, 2)
    facts = (add(add(height, -1), mul(row, -1)), add(add(width, -1), mul(column, -1)))
    ranges = {"i": add(N, -1), "j": height, "k": 2, "l": width}
    return add(add(product([I, height, width]), mul(row, width)), column), product([N, height, width]), facts, ranges


def test_sums_become_symbols_and_others_stay():
    index, numel, facts, ranges = window(rows(S), rows(T))
    new_index, new_numel, new_facts, new_ranges = in_extents(index, numel, facts, ranges)
    one, other = (f"extent of {floordiv(add(size, 1), 2)}" for size in (S, T))
    assert symbols(new_numel) == {"n", one, other} and isinstance(new_numel, Product)
    assert in_extents(index, product([N, S, T]), facts, ranges) is None
    assert len(new_facts) == len(facts) and new_ranges.keys() == ranges.keys()
    assert substitute(new_index, {one: 5, other: 7}) == substitute(index, {"s": 11, "t": 15})


def test_quotients_that_are_rounded_up_have_extents_too():
    up = lambda size: add(mul(floordiv(add(mul(size, -1), 1), 2), -1), 1)
    for height, width in ((rows(S), rows(T)), (add(S, -2), rows(T)), (up(S), up(T)), (up(S), T)):
        index, numel, facts, ranges = window(height, width)
        assert Access("", index, numel, ranges, facts).proved()
        assert not Access("", add(index, 1), numel, ranges, facts).proved()
        assert not Access("", index, numel, ranges, facts[:1]).proved()
