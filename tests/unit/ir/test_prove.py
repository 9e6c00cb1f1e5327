"""The prover against enumeration: what it proves holds at every point, and the usual offsets of kernels are proved."""

from __future__ import annotations

import itertools
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from lampwork.ir.prove import Prover
from lampwork.ir.size import INFINITY, Size, Symbol, add, bounds, evaluate, floordiv, maximum, minimum, mod, mul

N, M = Symbol("n", 1), Symbol("m", 2)
I, J = Symbol("i"), Symbol("j")

leaves = st.one_of(st.integers(-6, 6), st.sampled_from([N, M, I, J, I, J]))


def _grow(inner):
    divisors = st.one_of(st.integers(1, 6), st.sampled_from([N, M, mul(N, M), add(M, 1)]))
    return st.one_of(
        st.builds(add, inner, inner),
        st.builds(mul, inner, st.one_of(st.integers(-4, 4), st.sampled_from([N, M]))),
        st.builds(floordiv, inner, divisors),
        st.builds(mod, inner, divisors),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
    )


expressions = st.recursive(leaves, _grow, max_leaves=7)
lasts = st.sampled_from([add(N, -1), add(M, -1), add(mul(N, M), -1), 3, add(add(N, M), -4), add(floordiv(N, 2), -1)])


#: Of the inner loop: they may depend on the outer index.
inner_lasts = st.one_of(
    lasts,
    st.sampled_from([I, add(N, mul(I, -1)), add(minimum(3, add(N, mul(I, -2))), -1), add(minimum(M, add(mul(N, M), mul(mul(I, M), -1))), -1)]),
)  # fmt: skip
#: What guards say: comparisons and divisibility among them.
guards = st.one_of(
    expressions, st.sampled_from([mul(mod(N, M), -1), mul(mod(M, 2), -1), mul(mod(N, 3), -1), add(N, mul(M, -1)), add(M, mul(N, -1))])
)  # fmt: skip


def points(first: Size, second: Size, facts: list[Size]):
    """Values of all symbols within the ranges, for small sizes under which the facts hold."""
    for n, m in itertools.product(range(1, 5), range(2, 5)):
        sizes = {"n": n, "m": m}
        for i in range(evaluate(first, sizes) + 1):
            for j in range(evaluate(second, {**sizes, "i": i}) + 1):
                point = {**sizes, "i": i, "j": j}
                if all(evaluate(fact, point) >= 0 for fact in facts):
                    yield point


@settings(max_examples=600, deadline=None)
@given(expressions, lasts, inner_lasts, st.lists(guards, max_size=3))
def test_what_is_proved_holds(value, first, second, facts):
    prover = Prover(facts, {"i": first, "j": second})
    if prover.holds(value):
        for point in points(first, second, facts):
            assert evaluate(value, point) >= 0, (str(value), point)


def test_offsets_of_kernels_are_proved():
    rows = Prover((), {"i": add(N, -1), "j": add(M, -1)})
    assert rows.inside(add(mul(I, M), J), mul(N, M))
    assert rows.inside(add(mul(J, N), I), mul(N, M))
    assert not rows.inside(add(mul(I, N), J), mul(N, M))
    one = Prover((), {"i": add(mul(N, M), -1)})
    assert one.inside(add(mul(mod(I, M), N), floordiv(I, M)), mul(N, M))
    assert one.inside(floordiv(I, M), N) and not one.inside(mul(I, M), mul(N, M))
    # a remainder of a remainder, and a division that is exact by a guard
    K = Symbol("k", 2)
    nested = add(mul(floordiv(mod(I, mul(N, M)), M), M), add(mod(I, M), mul(mul(floordiv(I, mul(N, M)), N), M)))
    assert Prover((), {"i": add(mul(mul(K, N), M), -1)}).inside(nested, mul(mul(K, N), M))
    shuffled = add(mul(mod(I, M), floordiv(N, M)), floordiv(I, M))
    assert Prover([mul(mod(N, M), -1)], {"i": add(N, -1)}).inside(shuffled, N)
    assert not Prover((), {"i": add(N, -1)}).inside(add(shuffled, mod(I, M)), N)
    # rows of M elements that lie 10 apart, counted by one index
    apart = add(mul(floordiv(I, M), 10), mod(I, M))
    assert Prover((), {"i": add(mul(N, M), -1)}).inside(apart, add(add(mul(N, 10), M), -10))
    assert not Prover((), {"i": add(mul(N, M), -1)}).inside(apart, add(add(mul(N, 10), M), -11))
    # tiles of two loops, and of three
    tiles = {"i": add(floordiv(add(N, 23), 24), -1), "j": add(minimum(24, add(N, mul(I, -24))), -1)}
    assert Prover((), tiles).inside(add(mul(add(mul(I, 24), J), M), add(M, -1)), mul(N, M))
    chunks = Prover((), {"i": add(floordiv(add(N, 15), 16), -1), "j": add(minimum(16, add(N, mul(I, -16))), -1)})
    assert chunks.inside(add(mul(I, 16), J), N) and not chunks.inside(add(mul(I, 16), add(J, 1)), N)


def test_facts_are_used():
    half = floordiv(add(N, 1), 2)
    last = {"i": add(half, -1)}
    assert not Prover((), last).inside(add(I, half), N)
    assert Prover([add(N, mul(half, -2))], last).inside(add(I, half), N)
    assert Prover([add(N, mul(M, -1))], {"i": add(M, -1)}).inside(I, N)
    assert Prover([add(N, mul(M, -1))], {"i": add(M, -1)}).inside(mul(I, M), mul(N, M))
    assert bounds(half)[0] == 1
    # windows: where each is inside is a fact of its own
    A, B = Symbol("a"), Symbol("b")
    row, column = add(add(mul(I, 2), A), -1), add(add(J, B), -2)
    inside = [row, add(add(N, -1), mul(row, -1)), column, add(add(M, -1), mul(column, -1))]
    windows = {"i": floordiv(N, 2), "j": M, "a": 2, "b": 3}
    assert Prover(inside, windows).inside(add(mul(row, M), column), mul(N, M))
    assert not Prover(inside[:3], windows).inside(add(mul(row, M), column), mul(N, M))


def test_facts_say_what_they_say_of_whole_numbers():
    x = Symbol("x", -INFINITY, INFINITY)
    bounded = [mul(x, 2), add(mul(x, -2), 3)]  # 0 <= 2*x <= 3
    assert Prover(bounded).inside(x, 2) and not Prover(bounded).inside(x, 1)
    even = [x, add(mul(x, -1), 7), mul(mod(x, 2), -1)]
    assert Prover(even).inside(floordiv(x, 2), 4) and not Prover(even).inside(floordiv(x, 2), 3)


def test_remainders_are_as_large_as_their_divisors_let_them():
    """Windows of 7 in an image of 56, shifted by 3, for any number of images."""
    K = Symbol("k")
    last = {"i": add(N, -1), "j": 55, "k": 55}
    places = [
        mul(floordiv(mod(add(J, 53), 56), 7), 392), mul(mod(add(J, 4), 7), 7), mul(floordiv(mod(add(K, 53), 56), 7), 49),
        mod(add(K, 4), 7),
    ]  # fmt: skip
    index = mul(I, 3136)
    for each in places:
        index = add(index, each)
    assert Prover((), last).inside(index, mul(N, 3136))
    assert not Prover((), last).inside(add(index, 1), mul(N, 3136))


def test_quotients_are_as_large_as_their_dividends_let_them():
    """Rows of 320 in tiles of 128, of which the last ends where the rows do."""
    total = mul(N, 320)
    tiles = {"i": add(floordiv(add(total, 127), 128), -1), "j": add(minimum(128, add(total, mul(I, -128))), -1)}
    place = add(mul(I, 128), J)
    index = add(add(mul(floordiv(place, 320), 320), mul(mod(J, 4), 80)), floordiv(mod(place, 320), 4))
    assert Prover((), tiles).inside(index, total) and not Prover((), tiles).inside(add(index, 1), total)


def test_bounds_of_quotients_bound_their_dividends():
    """The second and third of three blocks of 9 rows: what `cat` reads of its second operand."""
    last = {"i": add(N, -1), "j": 26, "k": 31}
    index = add(add(mul(I, 576), mul(add(J, -9), 32)), Symbol("k"))
    facts = [add(floordiv(J, 9), -1)]
    assert Prover(facts, last).inside(index, mul(N, 576)) and not Prover((), last).inside(index, mul(N, 576))
    below = [add(mul(mul(floordiv(J, 9), 2), -1), 3)]  # 2 * (j // 9) <= 3
    assert Prover(below, last).inside(J, 18) and not Prover(below, last).inside(J, 17)


def test_quotients_by_sizes():
    """Heads of 4 rows, of a number of chunks that varies and is 64 at most."""
    chunks = Symbol("chunks", 2, 64)
    last = {"i": add(mul(chunks, 8), -1)}
    head, row = floordiv(I, mul(chunks, 4)), floordiv(mod(I, mul(chunks, 4)), 4)
    index = add(add(mul(row, 8), mul(mod(I, 4), 512)), mul(head, 2048))
    assert Prover((), last).inside(index, 4096) and not Prover((), last).inside(add(index, 8), 4096)


def test_distances_are_not_negative():
    last = {"i": add(N, 2), "j": add(M, -1)}
    offset = add(I, -1)
    distance = maximum(offset, mul(offset, -1))
    beyond = add(add(N, -1), mul(distance, -1))
    reflected = add(add(N, -1), mul(maximum(beyond, mul(beyond, -1)), -1))
    assert Prover([add(N, -3)], last).inside(add(mul(reflected, M), J), mul(N, M))
    assert not Prover([add(N, -3)], last).inside(add(mul(reflected, M), add(J, 1)), mul(N, M))


def test_nothing_is_divided_by_a_divisor_of_nothing():
    x = Symbol("x", -INFINITY, INFINITY)
    size = maximum(x, 0)
    prover = Prover((), {"i": add(size, -1)})
    facts = prover.facts
    assert prover.inside(mod(add(I, 1), size), size) and not prover.inside(mod(add(I, 1), size), add(size, -1))
    assert prover.facts == facts


def test_remainders_of_remainders_are_given_up_soon():
    """Each quotient repeats all that it is of: goals grew to many thousands of parts, and a proof took a minute."""
    sizes = [Symbol(f"s{k}", 1) for k in range(6)]
    inner = add(mul(I, add(mul(sizes[1], sizes[2]), mul(sizes[3], -1))), add(mul(J, sizes[4]), -1))
    for _ in range(3):
        for k in (5, 4, 3, 2):
            whole = add(mul(sizes[k], sizes[k - 1]), mul(sizes[k - 2], -1))
            inner = add(mul(mod(inner, whole), sizes[k - 2]), floordiv(inner, whole))
    start = time.process_time()
    Prover([add(sizes[1], mul(sizes[2], -1))], {"i": sizes[0], "j": sizes[5]}).inside(inner, mul(sizes[0], sizes[1]))
    assert time.process_time() - start < 5
