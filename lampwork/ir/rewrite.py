"""Expressions with whole parts replaced: what `substitute` does for symbols, for products, quotients and remainders.

    rewrite((n + 1) // 2 * 3 + k, {}, {(n + 1) // 2: k})     4*k

Equalities that no symbol can be solved for (`(n + 1) // 2 == (m + 1) // 2`) are put into expressions so.
"""

from __future__ import annotations

from collections.abc import Mapping

from lampwork.ir.size import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    SizeExpr,
    Sum,
    Symbol,
    add,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    product,
)

#: Replacements that each bring up the next. Equalities learnt one after the other end long before.
_MOST_ROUNDS = 8


def rewrite(value: Size, names: Mapping[str, Size], parts: Mapping[SizeExpr, Size]) -> Size:
    """`value` with symbols replaced by name, then parts by what they are equal to, until no part is left."""
    for _ in range(_MOST_ROUNDS):
        new = _once(value, names, parts)
        if new == value:
            return new
        value = new
    return value


def _once(value: Size, names: Mapping[str, Size], parts: Mapping[SizeExpr, Size]) -> Size:
    if isinstance(value, int):
        return value
    if isinstance(value, Symbol):
        return names.get(value.name, value)
    new: Size
    if isinstance(value, Sum):
        new = value.constant
        for k, atom in value.terms:
            new = add(new, _multiple(_once(atom, names, parts), k, parts))
        return new
    if isinstance(value, Product):
        new = product(_once(factor, names, parts) for factor in value.factors)
        return _part_of_product(new, parts)
    assert isinstance(value, (Min, Max, FloorDiv, Mod))
    left, right = (value.left, value.right) if isinstance(value, (Min, Max)) else (value.value, value.divisor)
    left, right = _once(left, names, parts), _once(right, names, parts)
    if isinstance(value, FloorDiv):
        new = floordiv(left, right)
    elif isinstance(value, Mod):
        new = mod(left, right)
    elif isinstance(value, Min):
        new = minimum(left, right)
    else:
        new = maximum(left, right)
    return parts.get(new, new) if isinstance(new, SizeExpr) else new


def _multiple(value: Size, times: int, parts: Mapping[SizeExpr, Size]) -> Size:
    """`value * times`, where `d * (x // d)` is `x - r` if the part `x % d` is known to be r."""
    for factor in value.factors if isinstance(value, Product) else (value,):
        if isinstance(factor, FloorDiv) and isinstance(factor.divisor, int) and times % factor.divisor == 0:
            rest = parts.get(Mod(factor.value, factor.divisor))
            if rest is not None:
                others = list(value.factors) if isinstance(value, Product) else [factor]
                others.remove(factor)
                whole = add(factor.value, mul(rest, -1))
                return mul(mul(product(others), whole), times // factor.divisor)
    return mul(value, times)


def _part_of_product(value: Size, parts: Mapping[SizeExpr, Size]) -> Size:
    """A product with what is known of some of its factors: `a*b*c` is `12*c` where `a*b` is 12."""
    if not isinstance(value, Product):
        return value
    for part, equal in parts.items():
        if not isinstance(part, Product):
            continue
        factors = list(value.factors)
        try:
            for factor in part.factors:
                factors.remove(factor)
        except ValueError:
            continue
        return mul(product(factors), equal)
    return value
