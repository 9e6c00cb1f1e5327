"""Proofs that an expression is never negative: for all sizes that the guards let pass, and all points of the loops.

    loops i < n, j < m      i*m + j  >= 0            yes
                            n*m - 1 - (i*m + j) >= 0 yes: it falls with i and j, and at their last values it is 0
    fact m <= n             n - (m + 1) // 2 >= 0    yes

An expression that grows with a loop's index is smallest at the index 0, one that falls at the last. A quotient by a
number is between (y - d + 1) / d and y / d, a remainder between 0 and d - 1. What is left is a polynomial of sizes:
with each size counted from its lower bound, no coefficient may be negative, after facts are taken away from it.

`Prover.holds` is True only for what is so; False says that no proof was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lampwork.ir.rewrite import rewrite
from lampwork.ir.size import (
    INFINITY,
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
    bounds,
    coefficient,
    exact_quotient,
    linear_terms,
    maximum,
    mul,
    product,
    substitute,
    symbols,
)

#: Steps of one proof; those that succeed take a few dozen.
_MOST_STEPS = 150
#: Terms of a sum that is looked at: what cases and bounds multiply out to grows with each step.
_MOST_TERMS = 48
#: Facts used one after the other.
_MOST_FACTS = 4


class Prover:
    """Proofs under `facts`: expressions that are known not to be negative, whose symbols are sizes or indices.

    `ranges`: the largest value of each index, as an expression of sizes and of indices before it; the smallest is 0.
    """

    def __init__(self, facts: Sequence[Size] = (), ranges: Mapping[str, Size] | None = None) -> None:
        self.ranges = dict(ranges or {})
        self.facts = [fact for fact in facts if isinstance(fact, SizeExpr)]
        # Where an index has a value at all, its range is not empty.
        self.facts += [last for last in self.ranges.values() if isinstance(last, SizeExpr) and bounds(last)[0] < 0]
        self.order = list(self.ranges)
        self._steps = 0

    def holds(self, value: Size) -> bool:
        """Whether `value >= 0` was proved."""
        self._steps = 0
        return self._proved(value, _MOST_FACTS)

    def inside(self, index: Size, numel: Size) -> bool:
        """Whether `0 <= index < numel` was proved."""
        return self.holds(index) and self.holds(add(add(numel, mul(index, -1)), -1))

    def _proved(self, value: Size, facts: int) -> bool:
        self._steps += 1
        if bounds(value)[0] >= 0:
            return True
        if isinstance(value, int) or self._steps > _MOST_STEPS:
            return False
        if isinstance(value, Sum) and len(value.terms) > _MOST_TERMS:
            return False
        found = self._part(value, (Min, Max))
        if found is not None:
            return self._by_cases(value, found, facts)
        lowered = self._without_division(value, facts)
        if lowered is not None:
            if self._proved(lowered, facts):
                return True
        else:
            for name in reversed(self.order):
                if name in symbols(value):
                    return self._at_an_end(value, name, facts)
            if _no_negative_coefficient(value):
                return True
        return facts > 0 and any(self._proved(rest, facts - 1) for rest in self._less_facts(value))

    # Minima and maxima -----------------------------------------------------------------------------------------------

    def _part(self, value: Size, kinds: tuple[type, ...]) -> Min | Max | None:
        """The first part of one of these kinds, wherever it is."""
        stack: list[Size] = [value]
        while stack:
            part = stack.pop()
            if isinstance(part, kinds):
                return part  # type: ignore[return-value]
            if isinstance(part, Sum):
                stack += [atom for _, atom in part.terms]
            elif isinstance(part, Product):
                stack += part.factors
            elif isinstance(part, (FloorDiv, Mod)):
                stack += [part.value, part.divisor]
        return None

    def _by_cases(self, value: Size, part: Min | Max, facts: int) -> bool:
        """A minimum is its left side, which is no more than the right then, or the other way about."""
        more = add(part.right, mul(part.left, -1))
        kept = self.facts
        for chosen, known in ((part.left, more), (part.right, mul(more, -1))):
            if isinstance(part, Max):
                known = mul(known, -1)
            if isinstance(known, int) and known < 0:
                continue
            self.facts = [*kept, known] if isinstance(known, SizeExpr) else kept
            proved = self._proved(rewrite(value, {}, {part: chosen}), facts)
            self.facts = kept
            if not proved:
                return False
        return True

    # Quotients and remainders ----------------------------------------------------------------------------------------

    def _without_division(self, value: SizeExpr, facts: int) -> Size | None:
        """Something that is not negative only if `value` is not, with one division less; None where there is none."""
        constant, terms = linear_terms(value)
        for k, atom in terms:
            factors = list(atom.factors) if isinstance(atom, Product) else [atom]
            for part in factors:
                if not isinstance(part, (FloorDiv, Mod)):
                    continue
                others = list(factors)
                others.remove(part)
                rest = add(value, mul(atom, -k))
                times = mul(product(others), k)
                return self._bounded(rest, times, part, others, k, facts)
        return None

    def _bounded(
        self, rest: Size, times: Size, part: FloorDiv | Mod, others: list[SizeExpr], k: int, facts: int
    ) -> Size | None:
        """`rest + times * part`, with the part at that end of its range where this is smallest."""
        upwards = self._proved(times, 1)
        if not upwards and not self._proved(mul(times, -1), 1):
            return -1
        inner, divisor = part.value, part.divisor
        last = add(divisor, -1)
        if isinstance(part, Mod):
            if upwards:
                return rest
            # No more than the divisor leaves, and no more than there is.
            if self._proved(add(last, mul(inner, -1)), 1) and self._proved(inner, 1):
                return add(rest, mul(times, inner))
            return add(rest, mul(times, last))
        if isinstance(divisor, int):
            if not others:  # integers: d * v > -d is v >= 0
                end = add(inner, -last) if upwards else inner
                return add(add(mul(rest, divisor), mul(end, k)), divisor - 1)
        elif divisor in others:  # times * (x // d), where d divides times
            left = list(others)
            left.remove(divisor)
            end = add(inner, mul(last, -1)) if upwards else inner
            return add(rest, mul(mul(product(left), k), end))
        if upwards:
            return rest if self._proved(inner, 1) else -1
        return add(rest, mul(times, self._largest_quotient(inner, divisor)))

    def _largest_quotient(self, value: Size, divisor: Size) -> Size:
        """No less than `value // divisor` at any point of the loops."""
        for name in reversed(self.order):
            factor = coefficient(value, name)
            if factor is None or factor == 0:
                continue
            if self._proved(factor, 1):
                value = substitute(value, {name: self.ranges[name]})
            elif self._proved(mul(factor, -1), 1):
                value = substitute(value, {name: 0})
        quotient = exact_quotient(add(value, 1), divisor)
        if quotient is not None:  # (d*q - 1) // d
            return add(quotient, -1)
        return maximum(value, 0)

    # Indices ---------------------------------------------------------------------------------------------------------

    def _at_an_end(self, value: SizeExpr, name: str, facts: int) -> bool:
        factor = coefficient(value, name)
        if factor is not None:
            end: Size | None = None
            if self._proved(factor, 1):
                end = 0
            elif self._proved(mul(factor, -1), 1):
                end = self.ranges[name]
            if end is not None and self._proved(substitute(value, {name: end}), facts):
                return True
        return facts > 0 and any(self._proved(rest, facts - 1) for rest in self._less_facts(value))

    # Sizes -----------------------------------------------------------------------------------------------------------

    def _less_facts(self, value: SizeExpr) -> list[Size]:
        """`value` less a multiple of a fact, chosen so that one term goes; negative terms first."""
        found: list[Size] = []
        for k, atom in sorted(linear_terms(value)[1], key=lambda term: term[0]):
            for fact in self.facts:
                for j, other in linear_terms(fact)[1]:
                    if (j > 0) is not (k > 0) or k % j:
                        continue
                    times = exact_quotient(atom, other)
                    if times is not None and bounds(times)[0] >= 0:
                        found.append(add(value, mul(mul(fact, times), -(k // j))))
        return list(dict.fromkeys(found))


def _no_negative_coefficient(value: Size) -> bool:
    """Whether `value`, a polynomial, has none with each symbol counted from its lower bound (upwards from 0)."""
    shifted: dict[str, Size] = {}
    stack: list[Size] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Symbol):
            if part.lower <= -INFINITY:
                return False
            shifted[part.name] = add(Symbol(part.name, 0, INFINITY), part.lower)
        elif isinstance(part, Sum):
            stack += [atom for _, atom in part.terms]
        elif isinstance(part, Product):
            stack += part.factors
        elif isinstance(part, SizeExpr):
            return False
    constant, terms = linear_terms(substitute(value, shifted))
    return constant >= 0 and all(k >= 0 for k, _ in terms)
