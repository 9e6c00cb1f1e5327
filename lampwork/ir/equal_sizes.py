"""Sizes that are equal however they are written: `(s + 1) // 2`, `-(-s // 2)` and `s - s // 2` are one number.

An expression of sums, products, and quotients and remainders by integers is a quasi-polynomial: along each symbol it is
one polynomial for each remainder of the symbol by some period (Beck and Robins, "Computing the Continuous Discretely",
section 3.4). So two of them are equal everywhere where they are at as many points of each remainder as their
degree asks for.
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
    try:
        (period, degree), (other_period, other_degree) = _shape(left), _shape(right)
    except _NotQuasiPolynomial:
        return False
    # Each remainder by the period, as many times as a polynomial of that degree asks for.
    places = range(lcm(period, other_period) * (max(degree, other_degree) + 1))
    if not names or len(places) ** len(names) > _MOST_POINTS:
        return False
    points = (dict(zip(names, each)) for each in itertools.product(places, repeat=len(names)))
    return all(evaluate(left, point) == evaluate(right, point) for point in points)


class _NotQuasiPolynomial(Exception):
    pass


def _shape(value: Size) -> tuple[int, int]:
    """The period along each symbol, and the degree."""
    if isinstance(value, int):
        return 1, 0
    if isinstance(value, Symbol):
        return 1, 1
    if isinstance(value, Sum):
        periods, degrees = zip(*(_shape(atom) for _, atom in value.terms))
        return lcm(*periods), max(degrees)
    if isinstance(value, Product):
        periods, degrees = zip(*map(_shape, value.factors))
        return lcm(*periods), sum(degrees)
    if isinstance(value, (FloorDiv, Mod)) and isinstance(value.divisor, int) and value.divisor:
        period, degree = _shape(value.value)
        if degree <= 1:
            # After a period the value has grown by a whole number, after so many as the divisor by a multiple of it.
            return period * abs(value.divisor), degree
    raise _NotQuasiPolynomial
