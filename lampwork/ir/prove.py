"""Proofs that an expression is never negative: for all sizes that the guards let pass, and all points of the loops.

    loops i < n, j < m      i*m + j  >= 0            yes
                            n*m - 1 - (i*m + j) >= 0 yes: it falls with i and j, and at their last values it is 0
    fact m <= n             n - (m + 1) // 2 >= 0    yes

A goal is replaced by goals from which it follows, in this order:

1. An index goes to the end of its loop where the goal is smallest. If no fact forbids that end, nothing is lost by that
   and there is no other way to try. Tiled loops end at a minimum, of which either side may be taken there.
2. A minimum or maximum is one of its sides: each in turn, or both, with what is known in either case.
3. A quotient t = x // d is between (x - d + 1) / d and x / d. What t is multiplied by is collected from the whole goal,
   so that quotients and remainders of one division cancel (a remainder is written x - d*t). Where a fact bounds x by a
   number, that number's quotient is a fact as well.
4. A multiple of a fact is taken away, so that a negative term goes.

What is left is a polynomial of sizes and of quotients, each counted from its lower bound: no coefficient may be
negative.

`Prover.holds` is True only for what is so; False says that no proof was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import gcd, prod
from typing import Any

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
    floordiv,
    linear_terms,
    maximum,
    minimum,
    mul,
    product,
    substitute,
    symbols,
)

#: Facts used one after the other, and goals: what is tried in turn. Proofs that succeed take a few dozen goals.
_EFFORTS = ((0, 60), (2, 150), (5, 400))
#: Terms of a goal that is looked at: what cases and bounds multiply out to grows with each step.
_MOST_TERMS = 160
#: Parts of a goal that is looked at, each counted once: proofs that succeed have goals of a dozen or two.
_MOST_PARTS = 60
#: Factors of a term of a goal, beside those of the first goal: multiplying by divisors adds to them.
_MOST_FACTORS = 4
#: Goals inside of each other, each some frames of Python: proofs that succeed go a dozen deep.
_DEEPEST = 40
#: Proofs of signs inside of each other.
_MOST_NESTED = 2

#: Goals from which another follows, all of them together.
Goals = tuple[Size, ...]


class Prover:
    """Proofs under `facts`: expressions that are known not to be negative, whose symbols are sizes or indices.

    `ranges`: the largest value of each index, as an expression of sizes and of indices before it; the smallest is 0.
    """

    def __init__(self, facts: Sequence[Size] = (), ranges: Mapping[str, Size] | None = None) -> None:
        ranges = ranges or {}
        self.multiples = _multiples(facts, ranges)
        self.differences: frozenset[Size] = frozenset()
        self.differences = frozenset(map(self._normal, facts))
        self.ranges = {name: self._normal(last) for name, last in ranges.items()}
        known = [self._normal(fact) for fact in facts]
        #: No size and no index satisfies the facts: what they are asked of never happens.
        self.nowhere = any(isinstance(fact, int) and fact < 0 for fact in known)
        # Where an index has a value at all, its range is not empty.
        known += [last for last in self.ranges.values() if isinstance(last, SizeExpr) and bounds(last)[0] < 0]
        self.order = list(self.ranges)
        self.facts: list[SizeExpr] = []
        self._goals = self._nested = self._depth = 0
        self._found: dict[tuple[Size, int], bool] = {}
        self._learn(known)

    def holds(self, value: Size) -> bool:
        """Whether `value >= 0` was proved."""
        if self.nowhere or bounds(value)[0] >= 0:
            return True
        if self._holds_at_ends(value):
            return True
        if _is_large(value):
            return False
        value = self._normal(value)
        self._learn_quotients(value)
        self._highest = _degree(value) + _MOST_FACTORS
        for facts, self._goals in _EFFORTS:  # short proofs first
            self._nested = 0
            self._found = {key: True for key, found in self._found.items() if found}  # others were given up
            if self._proved(value, facts):
                return True
        return False

    def _holds_at_ends(self, value: Size) -> bool:
        """Whether bounds say so where each index that remainders do not hide is at the end of its loop, and quotients
        that are taken away are as large as they get. Remainders stay whole here: `(i + 4) % 7` is no more than 6, which
        nobody sees of `i + 4 - 7*((i + 4) // 7)` in parts."""
        for name in reversed(self.order):
            factor = coefficient(value, name)
            if factor is not None and factor != 0:
                low, high = bounds(factor)
                if low >= 0 or high <= 0:
                    value = substitute(value, {name: 0 if low >= 0 else self.ranges[name]})
        for times, atom in linear_terms(value)[1] if isinstance(value, SizeExpr) else ():
            if times < 0 and isinstance(atom, FloorDiv):
                largest = self._at_its_largest(atom)
                if largest is not None:
                    value = add(value, mul(add(largest, mul(atom, -1)), times))
        return bounds(value)[0] >= 0

    def inside(self, index: Size, numel: Size) -> bool:
        """Whether `0 <= index < numel` was proved."""
        return self.holds(index) and self.holds(add(add(numel, mul(index, -1)), -1))

    def _normal(self, value: Size) -> Size:
        value = _without_remainders(substitute(value, self.multiples) if self.multiples else value)
        return self._decided(value)

    def _decided(self, value: Size) -> Size:
        """The same with those minima and maxima of which a fact says which side they are."""
        sides: dict[SizeExpr, Size] = {}
        for part in _parts(value) if self.differences else ():
            if isinstance(part, (Min, Max)):
                more = add(part.right, mul(part.left, -1))
                smaller, larger = (
                    (part.left, part.right) if more in self.differences
                    else (part.right, part.left) if mul(more, -1) in self.differences else (None, None)
                )  # fmt: skip
                if smaller is not None and larger is not None:
                    sides[part] = smaller if isinstance(part, Min) else larger
        return _without_remainders(rewrite(value, {}, sides)) if sides else value

    def _learn(self, facts: Sequence[Size]) -> None:
        """Takes `facts` for all that is known from here on."""
        tight = [_tightened(fact) for fact in facts if isinstance(fact, SizeExpr)]
        self.facts = list(dict.fromkeys(fact for fact in tight if isinstance(fact, SizeExpr)))
        self._mentioned = frozenset().union(*(symbols(fact) for fact in self.facts)) & frozenset(self.order)
        self._lowest: dict[SizeExpr, int] = {}
        for fact in self.facts:  # those that bound one atom
            constant, terms = linear_terms(fact)
            if len(terms) == 1 and terms[0][0] == 1:
                atom = terms[0][1]
                self._lowest[atom] = max(-constant, self._lowest.get(atom, -constant))
        self._found = {}

    def _learn_quotients(self, value: Size) -> None:
        """Bounds of quotients whose dividends are bounded: x <= 17 says x // 2 <= 8, where x / 2 <= 8.5 says less. And
        the other way about: x // 9 >= 1 says x >= 9."""
        found: list[Size] = []
        for part in dict.fromkeys(part for each in (value, *self.facts) for part in _parts(each)):
            if isinstance(part, FloorDiv):
                for fact in self.facts:
                    low, high = add(part.value, mul(fact, -1)), add(part.value, fact)  # low <= dividend <= high
                    if isinstance(low, int):
                        found.append(add(part, mul(_quotient(low, part.divisor), -1)))
                    elif isinstance(high, int):
                        found.append(add(_quotient(high, part.divisor), mul(part, -1)))
        for fact in self.facts:
            constant, terms = linear_terms(fact)
            if len(terms) == 1 and isinstance(terms[0][1], FloorDiv):
                times, part = terms[0][0], terms[0][1]
                if times > 0:  # the quotient is no less than -constant / times
                    found.append(add(part.value, mul(part.divisor, constant // times)))
                else:
                    last = add(mul(part.divisor, constant // -times + 1), -1)
                    found.append(add(last, mul(part.value, -1)))
        if not {_tightened(each) for each in found if isinstance(each, SizeExpr)} <= {*self.facts}:
            self._learn([*self.facts, *found])

    def _proved(self, value: Size, facts: int) -> bool:
        if bounds(value)[0] >= 0:
            return True
        if isinstance(value, int):
            return False
        key = (value, facts)
        found = self._found.get(key)
        if found is not None:
            return found
        self._found[key] = False  # where it turns up again on the way to its own proof
        if self._goals <= 0 or self._depth == _DEEPEST:
            return False
        if len(linear_terms(value)[1]) > _MOST_TERMS or _degree(value) > self._highest:
            return False
        self._goals -= 1
        if _is_large(value):
            return False
        memory = self._found
        self._depth += 1
        proved = memory[key] = self._no_negative_term(value) or self._in_some_way(value, facts)
        self._depth -= 1
        return proved

    def _in_some_way(self, value: SizeExpr, facts: int) -> bool:
        exact = self._at_an_end(value, False)
        if exact is not None:
            return self._proved(exact, facts)
        rest = self._less_pairs(value)
        if rest is not None and self._proved(rest, facts):
            return True
        terms = len(linear_terms(value)[1])
        for (side,) in self._by_sides(value):
            if len(linear_terms(side)[1]) < terms and self._proved(side, facts):  # a tile that ends where its row does
                return True
        first = not self._mentioned.isdisjoint(symbols(value))  # what is known of an index, before it is at an end
        if first and self._by_facts(value, facts):
            return True
        for goals in self._ways(value):
            if all(self._proved(goal, facts) for goal in goals):
                return True
        return self._by_cases(value, facts) or (not first and self._by_facts(value, facts))

    def _sign(self, value: Size) -> int:
        """1 where it is never negative, -1 where it is never positive, 0 where nobody knows."""
        if value == 0:
            return 1
        low, high = bounds(value)
        if low >= 0:
            return 1
        if high <= 0:
            return -1
        assert isinstance(value, SizeExpr)
        negated = mul(value, -1)
        assert isinstance(negated, SizeExpr)
        if self._no_negative_term(value):
            return 1
        if self._no_negative_term(negated):
            return -1
        if self._nested == _MOST_NESTED:
            return 0
        self._nested += 1
        sign = 1 if self._proved(value, 1) else -1 if self._proved(negated, 1) else 0
        self._nested -= 1
        return sign

    # Ways ------------------------------------------------------------------------------------------------------------

    def _ways(self, value: SizeExpr) -> Iterator[Goals]:
        """Goals from which `value >= 0` follows, without facts: each way in turn."""
        yield from self._by_sides(value)
        yield from self._by_quotients(value)
        end = self._at_an_end(value, True)
        if end is not None:
            yield (end,)

    def _at_an_end(self, value: SizeExpr, mentioned: bool) -> Size | None:
        """`value` with an index at that end of its loop where it is smallest. `mentioned`: even if a fact forbids that
        end."""
        present = symbols(value)
        for name in reversed(self.order):
            if name not in present:
                continue
            if any(name in symbols(self.ranges[other]) for other in self.order if other in present):
                continue  # the loop inside of it first
            factor = coefficient(value, name)
            if factor is None:
                continue
            sign = self._sign(factor)
            if sign and (mentioned or name not in self._mentioned or self._is_free(name, sign)):
                return substitute(value, {name: 0 if sign > 0 else self.ranges[name]})
        return None

    def _is_free(self, name: str, sign: int) -> bool:
        """Whether facts stay true where an index moves to its first value (`sign` 1) or last."""
        for fact in self.facts:
            factor = coefficient(fact, name) if name in symbols(fact) else 0
            if factor is None:
                return False
            low, high = bounds(factor)
            if high > 0 if sign > 0 else low < 0:
                return False
        return True

    def _by_sides(self, value: SizeExpr) -> Iterator[Goals]:
        """A minimum that is taken away is no more than either of its sides, and a maximum is no less."""
        for factor, part in _collected(value, (Min, Max)):
            sign = self._sign(factor)
            if sign and (sign > 0) is isinstance(part, Max):
                rest = add(value, mul(mul(factor, part), -1))
                total = add(part.left, part.right)
                if isinstance(total, int):  # max(x, -x) is never negative
                    yield (add(rest, mul(factor, -(-total // 2) if isinstance(part, Max) else total // 2)),)
                sides = [add(rest, mul(factor, side)) for side in (part.left, part.right)]
                for side in sorted(sides, key=lambda side: len(linear_terms(side)[1])):
                    yield (side,)

    def _less_pairs(self, value: SizeExpr) -> Size | None:
        """`value` without x // d - y // d, which is not negative where x - y is not; None where it has no such pair."""
        collected = _collected(value, (FloorDiv,))
        for factor, part in collected:
            for other_factor, other in collected:
                if part is other or other.divisor != part.divisor or add(factor, other_factor) != 0:
                    continue
                if self._sign(factor) > 0 and self._proved(add(part.value, mul(other.value, -1)), 2):
                    return add(value, mul(mul(factor, add(part, mul(other, -1))), -1))
        return None

    def _by_quotients(self, value: SizeExpr) -> Iterator[Goals]:
        collected = _collected(value, (FloorDiv,))
        for factor, part in collected:
            sign = self._sign(factor)
            if not sign:
                yield from self._by_dividend(value, part)
                continue
            rest = add(value, mul(mul(factor, part), -1))
            inner, divisor = part.value, part.divisor
            if sign < 0:
                last = self._at_its_largest(part)
                if last is not None:
                    yield (add(rest, mul(factor, last)),)
            end = add(add(inner, mul(divisor, -1)), 1) if sign > 0 else inner
            times = exact_quotient(factor, divisor)
            if times is not None:
                yield (add(rest, mul(times, end)),)
            else:  # of integers: d * v > -d is v >= 0
                yield (add(add(add(mul(rest, divisor), mul(factor, end)), divisor), -1),)
            if sign > 0:
                yield rest, inner
            elif times is None:
                yield (add(rest, mul(factor, maximum(inner, 0))),)
        for factor, part in collected:
            if self._sign(factor):
                yield from self._by_dividend(value, part)

    def _by_dividend(self, value: SizeExpr, part: FloorDiv) -> Iterator[Goals]:
        """For t = x // d: x is no less than d*t, and no more than d*t + d - 1."""
        inner, divisor = part.value, part.divisor
        constant, terms = linear_terms(inner)
        if constant or not terms or isinstance(terms[0][1], Product):
            return
        k, atom = terms[0]
        times = coefficient(value, atom.name) if isinstance(atom, Symbol) else None
        if times is None or k != 1:  # nothing of x beside its quotient
            times = next((j for j, other in linear_terms(value)[1] if k == 1 and other == atom), 0)
        sign = self._sign(times) if times != 0 else 0
        if sign:
            end = mul(divisor, part) if sign > 0 else add(add(mul(divisor, part), divisor), -1)
            yield (add(value, mul(times, add(end, mul(inner, -1)))),)

    def _at_its_largest(self, part: FloorDiv) -> Size | None:
        """No less than the quotient at any point of the loops, where that is tighter than what its dividend says."""
        value, divisor = part.value, part.divisor
        for name in reversed(self.order):
            factor = coefficient(value, name) if name in symbols(value) else None
            sign = self._sign(factor) if factor is not None else 0
            if sign:
                value = substitute(value, {name: self.ranges[name] if sign > 0 else 0})
                for times, least in _collected(value, (Min,)) if isinstance(value, SizeExpr) else ():
                    if self._sign(times) > 0:  # no more than either side
                        rest = add(value, mul(mul(times, least), -1))
                        sides = [add(rest, mul(times, side)) for side in (least.left, least.right)]
                        value = min(sides, key=self._indices_and_terms)
        found = _quotient(value, divisor)
        return found if found != part else None

    def _indices_and_terms(self, side: Size) -> tuple[int, int]:
        """How many indices and terms it has: a side that depends on fewer is known better."""
        return len(symbols(side) & self.ranges.keys()), len(linear_terms(side)[1])

    # Cases -----------------------------------------------------------------------------------------------------------

    def _by_cases(self, value: SizeExpr, facts: int) -> bool:
        """A minimum is its left side, which is no more than the right then, or the other way about."""
        part = _first_limit(value)
        if part is None:
            return False
        more = add(part.right, mul(part.left, -1))
        kept, found = self.facts, self._found
        proved = True
        for chosen, known in ((part.left, more), (part.right, mul(more, -1))):
            if isinstance(part, Max):
                known = mul(known, -1)
            if isinstance(known, int) and known < 0:
                continue
            self._learn([*kept, known])
            try:
                goal = self._normal(rewrite(value, {}, {part: chosen}))
            except ZeroDivisionError:  # `x % max(n, 0)` is computed nowhere if n is not above 0
                continue
            proved = self._proved(goal, facts)
            if not proved:
                break
        self._learn(kept)
        self._found = found
        return proved

    # Facts -----------------------------------------------------------------------------------------------------------

    def _by_facts(self, value: SizeExpr, facts: int) -> bool:
        return facts > 0 and any(self._proved(rest, facts - 1) for rest in self._less_facts(value))

    def _less_facts(self, value: SizeExpr) -> list[Size]:
        """`value` less a multiple of a fact, chosen so that one term goes; first those that leave few."""
        found: list[Size] = []
        for k, atom in sorted(linear_terms(value)[1], key=lambda term: (term[0] > 0, -_degree(term[1]))):
            for fact in self.facts:
                for j, other in linear_terms(fact)[1]:
                    if (j > 0) is not (k > 0) or k % j:
                        continue
                    times = exact_quotient(atom, other)
                    if times is not None and bounds(times)[0] >= 0:
                        found.append(add(value, mul(mul(fact, times), -(k // j))))
        return list(dict.fromkeys(found))

    def _no_negative_term(self, value: SizeExpr) -> bool:
        """Whether `value`, a polynomial of sizes, indices and quotients, has no negative coefficient with each of those
        counted from its lower bound."""
        constant, terms = linear_terms(value)
        places: dict[SizeExpr, int] = {}
        monomials = [
            (k, [places.setdefault(factor, len(places)) for factor in _factors(atom)]) for k, atom in terms
        ]  # fmt: skip
        positive = [Counter(factors) for k, factors in monomials if k > 0]
        if any(k < 0 and not any(Counter(factors) <= other for other in positive) for k, factors in monomials):
            return False  # nothing makes up for it
        lowest = [max(bounds(factor)[0], self._lowest.get(factor, -INFINITY)) for factor in places]
        if min(lowest) <= -INFINITY:
            return False
        if constant + sum(k * prod(lowest[factor] for factor in factors) for k, factors in monomials) < 0:
            return False
        total: dict[tuple[int, ...], int] = {(): constant}
        for k, factors in monomials:
            counted: dict[tuple[int, ...], int] = {(): k}
            for factor in sorted(factors):
                longer = {(*each, factor): times for each, times in counted.items()}
                if lowest[factor]:
                    for each, times in counted.items():
                        longer[each] = longer.get(each, 0) + times * lowest[factor]
                counted = longer
            for each, times in counted.items():
                total[each] = total.get(each, 0) + times
        return min(total.values()) >= 0


def _tightened(fact: SizeExpr) -> Size:
    """The same of integers, without a common factor of the terms: 3 - 2*x >= 0 says that 1 - x >= 0."""
    factor = gcd(*(k for k, _ in linear_terms(fact)[1]))
    return floordiv(fact, factor) if factor > 1 else fact


def _factors(atom: SizeExpr) -> tuple[SizeExpr, ...]:
    return atom.factors if isinstance(atom, Product) else (atom,)


def _degree(value: Size) -> int:
    """Factors of the longest product in it."""
    return max([1, *(len(_factors(atom)) for _, atom in linear_terms(value)[1])])


def _parts(value: Size) -> Iterator[SizeExpr]:
    """Every part of `value`, itself among them, each once: remainders of remainders repeat theirs many times."""
    stack: list[Size] = [value]
    seen: set[SizeExpr] = set()
    while stack:
        part = stack.pop()
        if isinstance(part, int) or part in seen:
            continue
        seen.add(part)
        yield part
        if isinstance(part, Sum):
            stack += [atom for _, atom in part.terms]
        elif isinstance(part, Product):
            stack += part.factors
        elif isinstance(part, (FloorDiv, Mod)):
            stack += [part.value, part.divisor]
        elif isinstance(part, (Min, Max)):
            stack += [part.left, part.right]


def _is_large(value: Size) -> bool:
    return next(islice(_parts(value), _MOST_PARTS, None), None) is not None


def _first_limit(value: Size) -> Min | Max | None:
    """The first minimum or maximum in it, wherever it is."""
    return next((part for part in _parts(value) if isinstance(part, (Min, Max))), None)


def _collected(value: SizeExpr, kinds: tuple[type, ...]) -> list[tuple[Size, Any]]:
    """Each factor of these kinds, once in its terms, with what it is multiplied by in all of them together."""
    found: dict[SizeExpr, Size] = {}
    squared: set[SizeExpr] = set()
    for k, atom in linear_terms(value)[1]:
        factors = list(_factors(atom))
        for part in dict.fromkeys(factors):
            if isinstance(part, kinds):
                others = list(factors)
                others.remove(part)
                if part in others:
                    squared.add(part)
                found[part] = add(found.get(part, 0), mul(product(others), k))
    return [(factor, part) for part, factor in found.items() if part not in squared]


def _quotient(value: Size, divisor: Size) -> Size:
    """`value // divisor`, with every term that the divisor divides taken out of it."""
    if isinstance(divisor, int):
        return floordiv(value, divisor)
    constant, terms = linear_terms(value)
    whole: Size = 0
    rest: Size = constant
    for k, atom in terms:
        quotient = exact_quotient(mul(atom, k), divisor)
        if quotient is None:
            rest = add(rest, mul(atom, k))
        else:
            whole = add(whole, quotient)
    low, high = bounds(rest)
    smallest = bounds(divisor)[0]
    if 0 <= low and high < smallest:
        return whole
    if -smallest <= low and high < 0:
        return add(whole, -1)
    return add(whole, floordiv(rest, divisor))


@lru_cache(maxsize=4096)
def _without_remainders(value: Size) -> Size:
    """The same with `x - d * (x // d)` for each `x % d`, so that quotients and remainders of one division cancel."""
    if isinstance(value, (int, Symbol)):
        return value
    if isinstance(value, Sum):
        result: Size = value.constant
        for k, atom in value.terms:
            result = add(result, mul(_without_remainders(atom), k))
        return result
    if isinstance(value, Product):
        return product(map(_without_remainders, value.factors))
    if isinstance(value, (FloorDiv, Mod)):
        inner, divisor = _without_remainders(value.value), _without_remainders(value.divisor)
        quotient = _quotient(inner, divisor)
        return quotient if isinstance(value, FloorDiv) else add(inner, mul(mul(divisor, quotient), -1))
    assert isinstance(value, (Min, Max))
    join = minimum if isinstance(value, Min) else maximum
    return join(_without_remainders(value.left), _without_remainders(value.right))


def _multiples(facts: Sequence[Size], ranges: Mapping[str, Size]) -> dict[str, Size]:
    """Sizes that facts say are divisible (`s0 % s1 <= 0`): as products of the divisor and another size."""
    found: dict[str, Size] = {}
    for fact in facts:
        constant, terms = linear_terms(fact)
        if constant or len(terms) != 1 or terms[0][0] >= 0 or not isinstance(terms[0][1], Mod):
            continue
        size, divisor = terms[0][1].value, substitute(terms[0][1].divisor, found)
        if not isinstance(size, Symbol) or size.name in found or size.name in ranges or size.name in symbols(divisor):
            continue
        largest = bounds(divisor)[1]
        lower = -(-size.lower // largest) if size.lower > 0 else size.lower
        multiple = mul(divisor, Symbol(f"{size.name} / {divisor}", lower, INFINITY))
        found = {name: substitute(other, {size.name: multiple}) for name, other in found.items()}
        found[size.name] = multiple
    return found
