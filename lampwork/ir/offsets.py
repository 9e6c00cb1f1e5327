"""Where a kernel's loads and stores lie, proved: every offset is inside its buffer, for all sizes and all points.

b0[i0*s1 + i1], of s0*s1 elements, in loops i0 < s0, i1 < s1     proved
b0[x0], where x0 is max(min(t3, s0 - 1), 0)                      proved: what is computed is kept inside
where t4 and i0 - 2 >= 0, b0[i0 - 2]                             proved: nothing is read elsewhere
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from lampwork.ir.extents import in_extents
from lampwork.ir.loops import Compute, Constant, Expr, Index, Local
from lampwork.ir.prove import Prover
from lampwork.ir.record import record
from lampwork.ir.size import (
    INFINITY,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    add,
    bounds,
    coefficient,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    substitute,
    symbols,
)


@record
class Access:
    """One load or store: `index` in a buffer of `numel` elements, in loops whose last indices are `ranges`.

    `facts`: what is not negative where it happens.
    """

    text: str
    index: Size
    numel: Size
    ranges: Mapping[str, Size] = field(hash=False)
    facts: tuple[Size, ...] = ()
    #: Whether the facts say all of the masks and conditions around it.
    exact: bool = True

    def proved(self, facts: Sequence[Size] = ()) -> bool:
        """Whether it is inside its buffer, for all sizes with these `facts`."""
        own, ranges = self._ranges_of_numbers()
        return _inside(self.index, self.numel, (*own, *facts), tuple(ranges.items()))

    def _ranges_of_numbers(self) -> tuple[list[Size], dict[str, Size]]:
        """Facts and ranges, with each integer that the kernel computes and keeps between 0 and a size as if it were
        the index of a loop: it is put to its end, whatever else depends on it."""
        facts, ranges = list(self.facts), dict(self.ranges)
        for fact in self.facts:
            if isinstance(fact, Symbol) and fact.lower == -INFINITY and fact.name not in ranges:
                for other in facts:
                    last = add(other, fact)
                    names = symbols(last)
                    if fact.name not in names and symbols(other) == names | {fact.name}:
                        unknown = [each.name for each in parts_of(last) if each.lower == -INFINITY]
                        if all(name in ranges for name in unknown):
                            ranges[fact.name] = last
                            facts = [each for each in facts if each not in (fact, other)]
                            break
        return facts, ranges

    def at(self, sizes: Mapping[str, int]) -> Access:
        """The same with numbers for some sizes."""
        put = lambda value: substitute(value, sizes)
        ranges = {name: put(last) for name, last in self.ranges.items()}
        return replace(
            self, index=put(self.index), numel=put(self.numel), ranges=ranges, facts=tuple(map(put, self.facts))
        )

    def symbols(self) -> list[Symbol]:
        """Every symbol of the access, with its bounds."""
        return [
            each for value in (self.index, self.numel, *self.ranges.values(), *self.facts) for each in parts_of(value)
        ]

    def sizes(self) -> frozenset[str]:
        """Names of what is no index of a loop: sizes, and numbers that the kernel computes."""
        return frozenset(each.name for each in self.symbols()) - frozenset(self.ranges)

    def counterexample(self, facts: Sequence[Size] = ()) -> dict[str, int] | None:
        """Sizes and indices, as small as they may be, under which it is outside; None: none was found."""
        known = [*self.facts, *facts]
        found = {each.name: each for each in [*self.symbols(), *(each for fact in facts for each in parts_of(fact))]}
        sizes = [each for name, each in found.items() if name not in self.ranges]
        chosen = random.Random(0)
        for trial in range(_TRIALS):
            point: dict[str, int] = {}
            for symbol in sizes:
                low = symbol.lower if symbol.lower > -INFINITY else -2
                point[symbol.name] = chosen.randint(low, min(symbol.upper, low + 2 + trial % 12))
            for name, last in self.ranges.items():
                end = evaluate(last, point)
                if end < 0:
                    break
                point[name] = chosen.choice((0, end, chosen.randint(0, end)))
            else:
                if all(evaluate(fact, point) >= 0 for fact in known):
                    if not 0 <= evaluate(self.index, point) < evaluate(self.numel, point):
                        return point
        return None

    def enumerated(self) -> bool:
        """Whether it is inside at each point of its loops, all of which were looked at. They have to be few."""
        facts, ranges = self._ranges_of_numbers()
        self = replace(self, facts=tuple(facts), ranges=ranges)
        names = list(ranges)
        left = _MOST_POINTS
        ends = self._decided_at_ends()

        def inside(point: dict[str, int], depth: int) -> bool:
            nonlocal left
            if depth == len(names):
                left -= 1
                if any(evaluate(fact, point) < 0 for fact in self.facts):
                    return True
                return left >= 0 and 0 <= evaluate(self.index, point) < evaluate(self.numel, point)
            last = evaluate(self.ranges[names[depth]], point)
            for each in {0, last} if last > 0 and names[depth] in ends else range(last + 1):
                if not inside({**point, names[depth]: each}, depth + 1):
                    return False
            return True

        return not self.sizes() and inside({}, 0)

    def _decided_at_ends(self) -> frozenset[str]:
        """Indices of which the first and last value say it all: no fact and no other loop depends on them, and the
        offset rises or falls with them evenly."""
        others = frozenset(each.name for value in (*self.facts, *self.ranges.values()) for each in parts_of(value))
        return frozenset(
            name for name in self.ranges if name not in others and isinstance(coefficient(self.index, name), int)
        )


@functools.lru_cache(maxsize=2048)
def _inside(index: Size, numel: Size, facts: tuple[Size, ...], ranges: tuple[tuple[str, Size], ...]) -> bool:
    """Whether `0 <= index < numel` was proved. Kernels name their sizes and indices alike, so many ask the same."""
    if Prover(facts, dict(ranges)).inside(index, numel):
        return True
    other = in_extents(index, numel, facts, dict(ranges))
    return other is not None and Prover(*other[2:]).inside(*other[:2])


#: Points tried for a counterexample.
_TRIALS = 300
#: Points that are enumerated.
_MOST_POINTS = 20_000


@record(frozen=False)
class Tally:
    """How the loads and stores fared whose offsets this process has verified."""

    proved: int = 0
    #: Proved by looking at each point of small loops.
    enumerated: int = 0
    #: Those neither proved nor refuted, with the facts of their launch: the first thousand.
    open: list[tuple[str, Access, tuple[Size, ...]]] = field(default_factory=list)

    def refused(self, kernel: str, access: Access, facts: Sequence[Size]) -> None:
        if len(self.open) < 1000:
            self.open.append((kernel, access, tuple(facts)))

    def share(self) -> float:
        """The part that is neither proved nor refuted."""
        return len(self.open) / max(self.proved + self.enumerated + len(self.open), 1)

    def clear(self) -> None:
        self.proved = self.enumerated = 0
        self.open.clear()


#: Of this process.
TALLY = Tally()


def parts_of(value: Size) -> Iterator[Symbol]:
    """Every symbol in `value`, with its bounds."""
    stack: list[Size] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Symbol):
            yield part
        elif isinstance(part, Sum):
            stack += [atom for _, atom in part.terms]
        elif isinstance(part, Product):
            stack += part.factors
        elif isinstance(part, (FloorDiv, Mod)):
            stack += [part.value, part.divisor]
        elif isinstance(part, (Min, Max)):
            stack += [part.left, part.right]


def computed_index(
    index: Size, indirect: Sequence[tuple[str, Expr]], locals_: Mapping[str, Expr]
) -> tuple[Size, list[Size], list[tuple[Expr, Symbol]]]:
    """`index` without bounds that symbols of integers computed in the kernel claim, what those integers say, and which
    symbol stands for which."""
    facts: list[Size] = []
    values: dict[str, Symbol] = {}
    for name, value in indirect:
        symbol = values[name] = Symbol(name, -INFINITY, INFINITY)
        for low in _limits(value, "maximum", locals_):
            facts.append(add(symbol, mul(low, -1)))
        for high in _limits(value, "minimum", locals_):
            facts.append(add(high, mul(symbol, -1)))
    bound = [(_defined(value, locals_), values[name]) for name, value in indirect]
    return substitute(index, values), facts, bound


def numbers_of(
    condition: Expr | None, locals_: Mapping[str, Expr], bound: Sequence[tuple[Expr, Symbol]]
) -> tuple[list[tuple[Expr, Symbol]], list[Size]]:
    """Symbols for integers that `condition` compares, which the kernel computes and keeps between limits, and what
    those limits say. `bound`: integers that have a symbol.

    where i0 + 1 == max(min(t3, 3), 0), b0[i0] of 3      proved: the integer is at most 3
    """
    found: list[tuple[Expr, Symbol]] = []
    facts: list[Size] = []
    stack = [condition] if condition is not None else []
    while stack:
        value = _defined(stack.pop(), locals_)
        if not isinstance(value, Compute) or any(value == other for other, _ in (*bound, *found)):
            continue
        if (
            value.op in ("minimum", "maximum")
            and value.dtype == "int64"
            and _as_size(value, locals_, (*bound, *found)) is None
        ):
            symbol = Symbol(f"of a condition: {len(bound) + len(found)}", -INFINITY, INFINITY)
            limits = [add(symbol, mul(low, -1)) for low in _limits(value, "maximum", locals_)]
            limits += [add(high, mul(symbol, -1)) for high in _limits(value, "minimum", locals_)]
            if limits:
                found.append((value, symbol))
                facts += limits
                continue
        stack += value.args
    return found, facts


def _limits(value: Expr, op: str, locals_: Mapping[str, Expr]) -> Iterator[Size]:
    """What an integer is no less than (`maximum`), or no more than (`minimum`), as sizes."""
    other = "minimum" if op == "maximum" else "maximum"
    value = _defined(value, locals_)
    if isinstance(value, Compute):
        if value.op == op:
            for arg in value.args:
                yield from _limits(arg, op, locals_)
            return
        if value.op == other:  # both sides have to be
            left, right = (list(_limits(arg, op, locals_)) for arg in value.args)
            for one in left:
                if any(
                    Prover().holds(add(one, mul(two, -1)) if op == "minimum" else add(two, mul(one, -1)))
                    for two in right
                ):
                    yield one
            for two in right:
                if any(
                    Prover().holds(add(two, mul(one, -1)) if op == "minimum" else add(one, mul(two, -1)))
                    for one in left
                ):
                    yield two
            return
        if value.op in ("cast", "asserted"):
            yield from _limits(value.args[0], op, locals_)
            return
    found = _as_size(value, locals_)
    if found is not None:
        yield found


def _defined(value: Expr, locals_: Mapping[str, Expr]) -> Expr:
    while isinstance(value, Local) and value.name in locals_:
        value = locals_[value.name]
    return value


def _as_size(value: Expr, locals_: Mapping[str, Expr], bound: Sequence[tuple[Expr, Symbol]] = ()) -> Size | None:
    value = _defined(value, locals_)
    for other, symbol in bound:
        if value is other or value == other:
            return symbol
    if isinstance(value, Index):
        return value.value
    if isinstance(value, Constant) and isinstance(value.value, int) and not isinstance(value.value, bool):
        return value.value
    if isinstance(value, Compute) and value.op == "cast" and value.dtype in ("int64", "int32"):
        return _as_size(value.args[0], locals_, bound)
    if isinstance(value, Compute) and value.op in _ARITHMETIC and value.dtype == "int64":
        left, right = (_as_size(arg, locals_, bound) for arg in value.args)
        if left is None or right is None:
            return None
        if value.op in ("floordiv", "mod"):
            divided = floordiv if value.op == "floordiv" else mod
            return divided(left, right) if bounds(right)[0] > 0 else None
        return mul(left, right) if value.op == "mul" else add(left, right if value.op == "add" else mul(right, -1))
    if isinstance(value, Compute) and value.op in ("minimum", "maximum") and value.dtype == "int64":
        left, right = (_as_size(arg, locals_, bound) for arg in value.args)
        if left is None or right is None:
            return None
        return (minimum if value.op == "minimum" else maximum)(left, right)
    return None


#: Of int64, what sizes have as well.
_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod")


def facts_of(
    condition: Expr | None, locals_: Mapping[str, Expr], bound: Sequence[tuple[Expr, Symbol]] = (), holds: bool = True
) -> tuple[list[Size], bool]:
    """What is not negative where `condition` is true (`holds` False: where it is false), and whether that says it all.

    `bound`: integers that symbols stand for.
    """
    if condition is None:
        return [], True
    condition = _defined(condition, locals_)
    if not isinstance(condition, Compute):
        return [], isinstance(condition, Constant) and bool(condition.value) is holds
    op = condition.op
    if op == "not":
        return facts_of(condition.args[0], locals_, bound, not holds)
    if op == ("and" if holds else "or"):
        parts = [facts_of(arg, locals_, bound, holds) for arg in condition.args]
        return [fact for facts, _ in parts for fact in facts], all(exact for _, exact in parts)
    if op not in _OPPOSITE:
        return [], False
    left, right = (_as_size(arg, locals_, bound) for arg in condition.args)
    if left is None or right is None:
        return [], False
    more = add(left, mul(right, -1))
    relation = op if holds else _OPPOSITE[op]
    return {
        "ge": [more], "gt": [add(more, -1)], "le": [mul(more, -1)], "lt": [add(mul(more, -1), -1)],
        "eq": [more, mul(more, -1)], "ne": [],
    }[relation], relation != "ne"  # fmt: skip


_OPPOSITE = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def renamed(facts: Sequence[Size], names: Mapping[str, Symbol]) -> list[Size]:
    """`facts` of a program's sizes in the symbols of a kernel; sizes that it does not have get other names."""
    found = []
    for fact in facts:
        others = {each.name: Symbol(f"of the program: {each.name}", each.lower, each.upper) for each in parts_of(fact)}
        found.append(substitute(fact, {**others, **names}))
    return found
