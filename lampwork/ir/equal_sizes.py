"""Sizes that are equal however they are written: `(s + 1) // 2`, `-(-s // 2)` and `s - s // 2` are one number.

An expression of sums, products, and quotients and remainders by integers is a quasi-polynomial: along each symbol it is
one polynomial for each rest of the symbol by some period (Beck and Robins, "Computing the Continuous Discretely",
section 3.4). So two of them are equal everywhere where they are at as many points of each rest as their degree asks
for.
"""

from __future__ import annotations

import functools
import itertools
from math import lcm

from lampwork.ir.size import FloorDiv, Mod, Product, Size, Sum, Symbol, evaluate, symbols

#: No more points are looked at.
_MOST_POINTS = 2048


@functools.lru_cache(4096)
def are_equal(left: Size, right: Size) -> bool:
    """Whether both are the same number whatever the symbols are. False where that was not found out."""
    if left == right:
        return True
    names = sorted(symbols(left) | symbols(right))
    kinds = _kind(left), _kind(right)
    if not names or None in kinds:
        return False
    (period, degree), (other_period, other_degree) = kinds  # type: ignore[misc]
    period, degree = lcm(period, other_period), max(degree, other_degree)
    places = range(period * (degree + 1))  # each rest, as many times as a polynomial of that degree asks for
    if len(places) ** len(names) > _MOST_POINTS:
        return False
    return all(
        evaluate(left, values) == evaluate(right, values)
        for each in itertools.product(places, repeat=len(names))
        for values in [dict(zip(names, each))]
    )


def _kind(value: Size) -> tuple[int, int] | None:
    """Period along each symbol and degree; None for what is no quasi-polynomial."""
    if isinstance(value, int):
        return 1, 0
    if isinstance(value, Symbol):
        return 1, 1
    if isinstance(value, (Sum, Product)):
        parts = [atom for _, atom in value.terms] if isinstance(value, Sum) else list(value.factors)
        kinds = [_kind(each) for each in parts]
        if None in kinds:
            return None
        degrees = [degree for _, degree in kinds]  # type: ignore[misc]
        return (
            lcm(*(period for period, _ in kinds)),  # type: ignore[misc]
            max(degrees, default=0) if isinstance(value, Sum) else sum(degrees),
        )
    if isinstance(value, (FloorDiv, Mod)):
        inner = _kind(value.value)
        if inner is None or inner[1] > 1 or not isinstance(value.divisor, int) or value.divisor == 0:
            return None
        # After a period the value has grown by a whole number, after as many as the divisor by a multiple of it.
        return inner[0] * abs(value.divisor), inner[1]
    return None
