"""What is known of the symbols of one capture: their bounds, and what each is in the others.

    s0 < 9                  bounds of s0: 2 to 8
    s0 - 2*s1 == 0          s0 is 2*s1 from here on; what bounded it bounds s1
    s0 % 8 == 0             s0 is 8*m0, of a new symbol m0
    (s0 + 1) // 2 == 1      bounds of s0: 1 to 2
    s0//2 - s1//2 == 0      s1//2 is s0//2 from here on
    s0*s1 - s2 < 0          kept as it is

So every expression that a later stage sees is as simple as what is guarded makes it: sizes that are equal in every call
are one expression, and one that is 1 in every call is 1.

Which of these the program asks, and what becomes of them as guards, says `symbolic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lampwork.ir.location import Location
from lampwork.ir.record import record
from lampwork.ir.rewrite import rewrite
from lampwork.ir.size import (
    INFINITY,
    FloorDiv,
    Size,
    SizeExpr,
    Sum,
    Symbol,
    add,
    bounds,
    common_factor,
    divided,
    evaluate,
    exact_quotient,
    floordiv,
    linear_terms,
    mod,
    mul,
    substitute,
    symbols,
)
from lampwork.ir.solutions import FEW, Interval, Points, Residues, solutions

#: Equations that follow from one by dividing: each has fewer symbols or smaller factors.
_MOST_STEPS = 8

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@record(frozen=False)
class Noted:
    """A guard as it was noted: `left relation right`."""

    left: Size
    relation: str
    right: Size
    location: Location


class KnownSizes:
    """Symbols, and what was learnt of them. Learning narrows: what was known stays known.

    `location_hook()` says which line of the user's program is running.
    """

    def __init__(self, location_hook: Callable[[], Location] | None = None) -> None:
        self.location_hook = location_hook
        #: What each symbol was in the call that is captured.
        self.hints: dict[str, int] = {}
        self._symbols: dict[str, Symbol] = {}
        self._bounds: dict[str, tuple[int, int]] = {}
        self._declared: dict[str, tuple[int, int]] = {}
        self._replaced: dict[str, Size] = {}
        #: Products and quotients that are equal to something simpler.
        self._parts: dict[SizeExpr, Size] = {}
        #: Symbols made for multiples (`s0 == 8*m0`), as expressions of those that have a source.
        self._made: dict[str, Size] = {}
        #: Symbols whose bounds follow from those of the symbol that stands for them.
        self._implied: set[str] = set()
        #: The line that narrowed a symbol's bounds last.
        self._narrowed: dict[str, Location] = {}
        self._noted: dict[tuple, Noted] = {}
        self._resolved: dict[Size, Size] = {}
        #: The equality with 0 that a guard says in so many words, while it is solved.
        self._guarded: Size | None = None
        #: Expressions of several symbols that are no less than zero: sizes that contents decide are equal to them.
        self._not_negative: list[Size] = []
        #: Symbols for sizes that contents decide.
        self.contents: dict[str, None] = {}

    def _new(self, name: str, hint: int, lower: int, upper: int) -> Symbol:
        symbol = self._symbols[name] = Symbol(name, lower, upper, hint)
        self.hints[name] = hint
        self._bounds[name] = self._declared[name] = (lower, upper)
        return symbol

    def location(self) -> Location:
        return self.location_hook() if self.location_hook is not None else Location()

    def by_contents(self, value: Size) -> bool:
        """Whether the contents of a tensor decide `value`."""
        return bool(self.contents) and any(name in self.contents for name in symbols(self.resolve(value)))

    def resolve(self, value: Size) -> Size:
        """`value` in the symbols that are left, with the bounds known by now."""
        if isinstance(value, int):
            return value
        found = self._resolved.get(value)
        if found is None:
            found = self._substituted(value)
            self._resolved[value] = found
        return found

    def _substituted(self, value: Size) -> Size:
        new = substitute(value, {name: self._current(name) for name in symbols(value)})
        for _ in range(_MOST_STEPS):
            if not self._parts:
                break
            value = new
            new = rewrite(value, {}, self._parts)
            if new == value:
                break
            new = substitute(new, {name: self._current(name) for name in symbols(new)})
        return new

    def _current(self, name: str) -> Size:
        replaced = self._replaced.get(name)
        if replaced is not None:
            return self.resolve(replaced)
        lower, upper = self._bounds[name]
        symbol = self._symbols[name]
        if (symbol.lower, symbol.upper) != (lower, upper):
            symbol = self._symbols[name] = replace(symbol, lower=lower, upper=upper)
        return symbol

    def hint(self, value: Size) -> int:
        """What `value` was in the call that is captured."""
        return value if isinstance(value, int) else evaluate(value, self.hints)

    def _difference(self, left: Size, right: Size) -> Size:
        """What compares with 0 as `left` does with `right`, at its simplest: c*x < c*y is x < y, for positive c."""
        left, right = self.resolve(left), self.resolve(right)
        for one, other in ((left, right), (right, left)):
            if isinstance(one, SizeExpr) and isinstance(other, SizeExpr) and bounds(other)[0] > 0:
                quotient = exact_quotient(one, other)
                if quotient is not None:  # strides: (s + 1)*t against s + 1
                    return add(quotient, -1) if one is left else add(mul(quotient, -1), 1)
        difference = add(left, mul(right, -1))
        return difference if isinstance(difference, int) else divided(difference, common_factor(difference))

    # Learning ---------------------------------------------------------------------------------------------------------

    def _note(self, left: Size, relation: str, right: Size) -> None:
        """Notes what holds for the sizes seen and does not follow from what is known."""
        difference = self._difference(left, right)
        assert isinstance(difference, SizeExpr)
        if self._narrow(difference, relation):
            self._learnt()
            self._narrow_again(*symbols(difference))
            return
        key = (difference, relation)
        if key in self._noted:
            return
        self._noted[key] = Noted(left, relation, right, self.location())
        if relation == "==":
            self._guarded = add(left, mul(right, -1))
            self._solve(difference)
            self._guarded = None
        self._learnt()

    def _learnt(self) -> None:
        self._resolved.clear()
        # What was known stays known: bounds only narrow, and equalities hold.
        for part, equal in list(self._parts.items()):
            now = substitute(part, {name: self._current(name) for name in symbols(part)})
            if now != part and self._parts.pop(part, None) is not None:  # it says something of other symbols by now
                self._resolved.clear()
                self._learn_equal(self._difference(now, equal))

    def _learn_equal(self, difference: Size) -> None:
        """`difference == 0` holds, by what is guarded already."""
        if isinstance(difference, SizeExpr) and not self._narrow(difference, "=="):
            self._solve(difference)
        self._resolved.clear()

    def _narrow_again(self, name: str) -> None:
        """Where a symbol is one of few numbers, what was noted of it says which: of 2 and 3, `s % 2 != 0` leaves 3."""
        low, high = self._bounds[name]
        if not low < high < low + FEW:
            return
        for key, noted in list(self._noted.items()):
            if name in symbols(self.resolve(key[0])):
                difference = self._difference(noted.left, noted.right)
                if isinstance(difference, SizeExpr) and self._narrow(difference, noted.relation):
                    del self._noted[key]
                    self._learnt()

    def _narrow(self, difference: Size, relation: str) -> bool:
        """`k*s + c relation 0` as bounds of the symbol `s`, where that says all of it."""
        if isinstance(difference, Symbol):
            difference = Sum(0, ((1, difference),))
        if not isinstance(difference, Sum) or len(difference.terms) != 1:
            return self._narrow_divided(difference, relation)
        ((factor, atom),) = difference.terms
        if not isinstance(atom, Symbol):
            return self._narrow_divided(difference, relation)
        if factor < 0:
            factor, constant, relation = -factor, -difference.constant, _MIRRORED[relation]
        else:
            constant = difference.constant
        low, high = self._bounds[atom.name]
        if relation == "<":
            constant, relation = constant + 1, "<="
        elif relation == ">":
            constant, relation = constant - 1, ">="
        if relation == "<=":
            high = min(high, -constant // factor)
        elif relation == ">=":
            low = max(low, -(constant // factor))
        elif relation == "!=" and -constant % factor == 0 and -constant // factor == low:
            low += 1
        elif relation == "!=" and -constant % factor == 0 and -constant // factor == high:
            high -= 1
        else:
            return False
        self._bound(atom.name, low, high)
        return True

    def _bound(self, name: str, low: int, high: int) -> None:
        self._bounds[name] = (low, high)
        if low == high:
            self._replaced[name] = low
        self._narrowed[name] = self.location()

    def _narrow_divided(self, difference: Size, relation: str) -> bool:
        """As `_narrow`, for one symbol with divisions: `(s + 1) // 2 - 1 == 0`. An equality that holds for some numbers
        which do not follow each other is guarded for the one at hand; other relations stay as they are."""
        names = symbols(difference)
        if len(names) != 1:
            return False
        (name,) = names
        low, high = self._bounds[name]
        found = solutions(difference, relation, low, high)
        if isinstance(found, Points) and relation == "==" and name not in self.contents:
            found = Interval(self.hints[name], self.hints[name])
        if not isinstance(found, Interval) or found.high < found.low:
            return False
        self._bound(name, found.low, found.high)
        number = 0 if relation == "==" else _only_value(difference, name, found)
        if number is not None:
            self._resolved.clear()
            left = self._difference(difference, number)
            if isinstance(left, SizeExpr):  # s - (s + 1) // 2 is 1 for 2 and for 3
                self._replace_part(*linear_terms(left))
        return True

    def _solve(self, difference: Size, steps: int = 0) -> None:
        """`difference == 0` holds: one symbol becomes an expression of the others, or some part of the expression does.

        What cannot be solved is left as it is; `settle` asks whether everything was.
        """
        if isinstance(difference, int) or steps > _MOST_STEPS:
            return
        names = symbols(difference)
        found = solutions(difference, "==") if len(names) == 1 else None
        if isinstance(found, Residues):
            (name,) = names
            if len(found.rests) == 1:
                self._divide(self._symbols[name], found.period, found.rests[0])
            elif name not in self.contents:  # of several kinds of numbers the one at hand
                self._note(mod(self._symbols[name], found.period), "==", self.hints[name] % found.period)
            return
        constant, terms = (
            (difference.constant, difference.terms) if isinstance(difference, Sum) else (0, ((1, difference),))
        )
        # The newest symbol goes: expressions made so far mostly speak of the older ones.
        by_contents = self.contents and self.by_contents(difference)
        for factor, atom in sorted(terms, key=lambda term: -_age(term[1])):
            others = [other for _, other in terms if other is not atom]
            if by_contents and not (isinstance(atom, Symbol) and atom.name in self.contents):
                continue  # what the call passes is known first
            if self._found(atom) < max(map(self._found, others), default=0):
                continue
            if not isinstance(atom, Symbol) or any(atom.name in symbols(other) for other in others):
                continue
            rest: Size = constant
            for k, other in terms:
                if other is not atom:
                    rest = add(rest, mul(other, k))
            value = mul(rest, -1) if factor > 0 else rest
            if abs(factor) != 1:
                if not others:
                    value = floordiv(value, abs(factor))
                elif (
                    isinstance(value, Sum)
                    and not value.constant % abs(factor)
                    and all(not k % abs(factor) for k, _ in value.terms)
                ):
                    value = floordiv(value, abs(factor))
                else:
                    continue
            self._replace(atom.name, value)
            return
        self._solve_divided(difference, constant, terms, steps)

    def _solve_divided(self, difference: SizeExpr, constant: int, terms: tuple, steps: int) -> None:
        """`difference == 0`, which gives no symbol as it stands: `2*a == 3*b` says that b is even."""
        for factor, atom in sorted(terms, key=lambda term: (abs(term[0]), -_age(term[1]))):
            others = [other for _, other in terms if other is not atom]
            if _age(atom) < 0 or abs(factor) == 1 or any(atom.name in symbols(each) for each in others):
                continue
            rest: Size = constant
            for k, other in terms:
                if other is not atom:
                    rest = add(rest, mul(other, k))
            left_over = mod(rest, abs(factor))
            if isinstance(left_over, int):
                continue
            self._solve(left_over, steps + 1)
            self._resolved.clear()
            again = self._difference(difference, 0)
            if again != difference:
                self._solve(again, steps + 1)
                return
        self._replace_part(constant, terms)

    def _replace_part(self, constant: int, terms: tuple) -> None:
        """A product or quotient of the equation `constant + terms == 0` becomes an expression of the others."""
        for factor, atom in sorted(terms, key=lambda term: (-_newest(term[1]), -len(str(term[1])))):
            if isinstance(atom, Symbol) or any(_holds_part(other, atom) for _, other in terms if other is not atom):
                continue
            if constant % factor or any(k % factor for k, _ in terms):
                continue
            if self._found(atom) < max((self._found(other) for _, other in terms), default=0):
                continue
            rest: Size = constant // factor
            for k, other in terms:
                if other is not atom:
                    rest = add(rest, mul(other, k // factor))
            self._parts[atom] = mul(rest, -1)
            return

    def _found(self, value: Size) -> int:
        """When contents decide the value: 0 before the first operator that finds a size, else after how many. Nothing
        is told in sizes that are found later."""
        if not self.contents:
            return 0
        names = {each for name in symbols(value) for each in symbols(self._made.get(name, Symbol(name)))}
        return max((1 + int(name[1:]) for name in names if name in self.contents), default=0)

    def _replace(self, name: str, value: Size) -> None:
        """`name` is `value` from here on; what is known of its bounds is said of the symbol in `value`, if any."""
        low, high = self._bounds[name]
        self._replaced[name] = value
        if name in self.contents:
            self.hints[name] = self.hint(value)
        # The guard itself must say that they are equal: what follows from it and from these very bounds needs them.
        said = self._guarded is not None and _same_but_for_bounds(self._guarded, add(Symbol(name), mul(value, -1)))
        implied = isinstance(value, int) or (
            self._narrow(add(value, -low), ">=") and (high == INFINITY or self._narrow(add(value, -high), "<="))
        )
        if implied and said:
            self._implied.add(name)
        elif not implied and name in self.contents and low >= 0:
            self._not_negative.append(add(value, -low))

    def _divide(self, value: Symbol, divisor: int, rest: int) -> None:
        """`value % divisor == rest`: the symbol becomes a multiple of a new one, and that rest."""
        low, high = self._bounds[value.name]
        name = f"m{len(self._made)}"
        lower = -(-(low - rest) // divisor) if low > -INFINITY else -INFINITY
        upper = (high - rest) // divisor if high < INFINITY else INFINITY
        quotient = self._new(name, self.hints[value.name] // divisor, lower, upper)
        self._made[name] = FloorDiv(value, divisor)
        if value.name in self.contents:
            self.contents[name] = None
        self._replaced[value.name] = add(mul(quotient, divisor), rest)


def _only_value(value: Size, name: str, interval: Interval) -> int | None:
    """What `value` is for each of the few numbers that its only symbol may be; None where it differs."""
    if interval.high >= interval.low + FEW:
        return None
    found = {evaluate(value, {name: number}) for number in range(interval.low, interval.high + 1)}
    return found.pop() if len(found) == 1 else None


def _age(value: Size) -> int:
    """How late a symbol was made; expressions come last, what contents decide first."""
    if isinstance(value, Symbol) and value.name[0] == "u":
        return (1 << 20) + int(value.name[1:])
    return int(value.name[1:]) if isinstance(value, Symbol) and value.name[0] == "s" else -1


def _same_but_for_bounds(equality: Size, other: Size) -> bool:
    """Whether two equalities with 0 say the same, as expressions of any integers."""
    anything = {name: Symbol(name, -INFINITY, INFINITY) for name in (*symbols(equality), *symbols(other))}
    quotient = exact_quotient(substitute(equality, anything), substitute(other, anything))
    return isinstance(quotient, int) and quotient != 0


def _newest(value: SizeExpr) -> int:
    """The age of the newest symbol in an expression."""
    return max(_age(Symbol(name)) for name in symbols(value))


def _holds_part(value: Size, part: SizeExpr) -> bool:
    """Whether `part` occurs in `value`, products of more factors included."""
    return rewrite(value, {}, {part: 0}) != value
