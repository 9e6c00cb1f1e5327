"""Extents that are sums, made symbols of their own: what a proof multiplies by is one factor then.

    b[i*((s + 1) // 2 - 1) + j] of n*((s + 1) // 2 - 1)      e = (s + 1) // 2 - 1:     b[i*e + j] of n*e

The layout of an image that a convolution made multiplies its rows by such a sum, and products of sums are kept
multiplied out (`size.mul`). A fact about rows has to be multiplied by the whole sum to be of use; `prove.py` multiplies
by single factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lampwork.ir.rewrite import rewrite
from lampwork.ir.size import (
    FloorDiv,
    Product,
    Size,
    SizeExpr,
    Symbol,
    add,
    bounds,
    coefficient,
    linear_terms,
    mul,
    substitute,
)

#: An access: its offset, the elements of its buffer, facts, and the last value of each index.
Question = tuple[Size, Size, tuple[Size, ...], dict[str, Size]]


def in_extents(index: Size, numel: Size, facts: Sequence[Size], ranges: Mapping[str, Size]) -> Question | None:
    """The same question in which each part x of which the elements are a multiple of x + c is e - c, or -e - c where
    x + c is never above 0; None if there is none. What holds for all e within the bounds of x + c holds for x."""
    question: Question = (index, numel, tuple(facts), dict(ranges))
    changed = False
    for part in dict.fromkeys(_parts(numel)):
        if isinstance(part, Symbol) and part.name in ranges:
            continue
        more = _added(question[1], part)
        if more:
            low, high = bounds(part)
            sign = 1 if high + more > 0 else -1  # -((1 - s) // 2) is a quotient rounded up
            low, high = sorted((sign * (low + more), sign * (high + more)))
            extent = Symbol(f"extent of {part}", low, high)
            question = _with(question, part, add(mul(extent, sign), -more))
            changed = True
    return question if changed else None


def _parts(numel: Size) -> Iterator[SizeExpr]:
    """Symbols and quotients that `numel` has among its factors."""
    for _, term in linear_terms(numel)[1] if isinstance(numel, SizeExpr) else ():
        for factor in term.factors if isinstance(term, Product) else (term,):
            if isinstance(factor, (Symbol, FloorDiv)):
                yield factor


def _added(numel: Size, part: SizeExpr) -> int:
    """The number c for which `numel` is a multiple of `part + c`; 0 if there is none but 0."""
    name = part.name if isinstance(part, Symbol) else "part of an extent"
    value = numel if isinstance(part, Symbol) else rewrite(numel, {}, {part: Symbol(name)})
    times = coefficient(value, name)
    if times is None or times == 0:
        return 0
    rest = substitute(value, {name: 0})
    (first, *_) = _terms(times).items()
    found, left = divmod(_terms(rest).get(first[0], 0), first[1])
    return found if not left and rest == mul(times, found) else 0


def _terms(value: Size) -> dict[SizeExpr | int, int]:
    constant, terms = linear_terms(value) if isinstance(value, SizeExpr) else (value, ())
    found: dict[SizeExpr | int, int] = {atom: k for k, atom in terms}
    return found | ({1: constant} if constant else {})


def _with(question: Question, part: SizeExpr, instead: Size) -> Question:
    index, numel, facts, ranges = question

    def put(value: Size) -> Size:
        if isinstance(part, Symbol):
            return substitute(value, {part.name: instead})
        return rewrite(value, {}, {part: instead})

    return put(index), put(numel), tuple(map(put, facts)), {name: put(last) for name, last in ranges.items()}
