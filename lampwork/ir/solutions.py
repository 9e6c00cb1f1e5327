"""Where an expression of one symbol is zero, negative, positive: exactly, divisions and remainders included.

    (n + 1) // 2 == 1                n is 1 or 2
    (n + 1) // 2 > 3                 n >= 7
    n - 2 * ((n + 1) // 2) == 0      n % 2 == 0

An expression of `n` with divisions by numbers grows by one and the same step each time that `n` grows by its period:
f(n + p) == f(n) + g for all integers n. So one period of values says everything. Products of symbols and minima have no
such period, and nothing is said of them.
"""

from __future__ import annotations

from math import gcd

from lampwork.ir.record import record
from lampwork.ir.size import INFINITY, FloorDiv, Mod, Size, SizeExpr, Sum, Symbol, evaluate, symbols

#: Nobody divides sizes by more than this in one expression; one period of values is computed at most.
LONGEST_PERIOD = 1024
#: So many numbers are tried one by one.
FEW = 64


@record
class Interval:
    """Every integer from `low` to `high`, and no other; empty where `high < low`."""

    low: int
    high: int


@record
class Residues:
    """Every integer `n` with `n % period` among `rests`, and no other. Some are, and some are not."""

    period: int
    rests: tuple[int, ...]


@record
class Points:
    """These integers, in order, and no other."""

    values: tuple[int, ...]


Solutions = Interval | Residues | Points


def solutions(value: Size, relation: str, low: int = -INFINITY, high: int = INFINITY) -> Solutions | None:
    """The integers from `low` to `high` for which `value relation 0` holds; None: it is not known.

    `value` has one symbol. Residues are those of all integers, whatever `low` and `high`.
    """
    names = symbols(value)
    if len(names) != 1:
        return None
    (name,) = names
    if high - low < FEW:
        return _tried(value, name, relation, low, high)
    found = growth(value, name)
    if found is None:
        return None
    period, step = found
    values = [evaluate(value, {name: rest}) for rest in range(period)]
    if step < 0:
        values, step = [-each for each in values], -step
        relation = _MIRRORED[relation]
    if relation == "<":
        values, relation = [each + 1 for each in values], "<="
    elif relation == ">":
        values, relation = [each - 1 for each in values], ">="
    if step == 0:
        return _residues(values, relation, low, high)
    if relation in ("==", "!="):
        return _points(values, step, relation, low, high)
    return _half_line(values, step, relation, low, high)


def always(value: Size, relation: str) -> bool | None:
    """Whether `value relation 0` holds for all numbers that its one symbol may be (True), or for none (False).

    None where it depends, or is not known: nothing is said of what has no divisions, whose bounds say it all.
    """
    found = divided_symbol(value)
    if found is None:
        return None
    low, high = found.lower, found.upper
    these = solutions(value, relation, low, high)
    if isinstance(these, Interval):
        return False if these.high < these.low else True if (these.low, these.high) == (low, high) else None
    return None


def divided_symbol(value: Size) -> Symbol | None:
    """The symbol of an expression that has no other, and that divides it."""
    seen: set[Symbol] = set()
    divides = False
    stack: list[Size] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Symbol):
            seen.add(part)
        elif isinstance(part, Sum):
            stack += [atom for _, atom in part.terms]
        elif isinstance(part, (FloorDiv, Mod)):
            divides = True
            stack += [part.value, part.divisor]
        elif isinstance(part, SizeExpr):
            return None
    return seen.pop() if divides and len(seen) == 1 else None


_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HOLDS = {
    "==": lambda each: each == 0, "!=": lambda each: each != 0,
    "<=": lambda each: each <= 0, ">=": lambda each: each >= 0,
    "<": lambda each: each < 0, ">": lambda each: each > 0,
}  # fmt: skip


def growth(value: Size, name: str) -> tuple[int, int] | None:
    """(p, g) with `value(n + p) == value(n) + g` for all integers n of symbol `name`; None where none was found."""
    if isinstance(value, int):
        return 1, 0
    if isinstance(value, Symbol):
        return 1, int(value.name == name)
    if isinstance(value, (FloorDiv, Mod)):
        divisor = value.divisor
        inner = growth(value.value, name) if isinstance(divisor, int) else None
        if inner is None or not isinstance(divisor, int):
            return None
        period, step = inner
        times = divisor // gcd(divisor, step)
        if period * times > LONGEST_PERIOD:
            return None
        return period * times, step * times // divisor if isinstance(value, FloorDiv) else 0
    if isinstance(value, Sum):
        parts = []
        period = 1
        for factor, atom in value.terms:
            inner = growth(atom, name)
            if inner is None:
                return None
            parts.append((factor, *inner))
            period = period * inner[0] // gcd(period, inner[0])
            if period > LONGEST_PERIOD:
                return None
        return period, sum(factor * step * (period // each) for factor, each, step in parts)
    return None


def _tried(value: Size, name: str, relation: str, low: int, high: int) -> Solutions:
    found = [each for each in range(low, high + 1) if _HOLDS[relation](evaluate(value, {name: each}))]
    if not found:
        return Interval(0, -1)
    return Interval(found[0], found[-1]) if found[-1] - found[0] == len(found) - 1 else Points(tuple(found))


def _residues(values: list[int], relation: str, low: int, high: int) -> Solutions:
    rests = tuple([rest for rest, each in enumerate(values) if _HOLDS[relation](each)])
    if not rests:
        return Interval(0, -1)
    return Interval(low, high) if len(rests) == len(values) else Residues(len(values), rests)


def _points(values: list[int], step: int, relation: str, low: int, high: int) -> Solutions | None:
    """Where the expression is zero: once at most for every rest by the period."""
    period = len(values)
    found = sorted([-each // step * period + rest for rest, each in enumerate(values) if each % step == 0])
    found = [each for each in found if low <= each <= high]
    together = not found or found[-1] - found[0] == len(found) - 1
    if relation == "==":
        if together:
            return Interval(found[0], found[-1]) if found else Interval(0, -1)
        return Points(tuple(found))
    if not found:
        return Interval(low, high)
    if together and found[0] == low:
        return Interval(found[-1] + 1, high)
    return Interval(low, found[0] - 1) if together and found[-1] == high else None


def _half_line(values: list[int], step: int, relation: str, low: int, high: int) -> Solutions | None:
    """Where a growing expression is at most (at least) zero: up to (from) an integer, unless it goes up and down."""
    period = len(values)
    if relation == "<=":
        last = [-each // step * period + rest for rest, each in enumerate(values)]
        end = max(last)
        return Interval(low, min(end, high)) if min(last) > end - period or low > end else None
    first = [-(each // step) * period + rest for rest, each in enumerate(values)]
    start = min(first)
    return Interval(max(start, low), high) if max(first) < start + period or high < start else None
