"""What is known of the symbols of one capture: their bounds, and what each is in the others.

    s0 < 9                  bounds of s0: 2 to 8
    s0 - 2*s1 == 0          s0 is 2*s1 from here on; what bounded it bounds s1
    s0 % 8 == 0             s0 is 8*m0, of a new symbol m0
    s0*s1 - s2 < 0          kept as it is

Which of these the program asks, and what becomes of them as guards, says `symbolic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lampwork.ir.location import Location
from lampwork.ir.size import (
    INFINITY,
    FloorDiv,
    Mod,
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
    mul,
    substitute,
    symbols,
)

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass
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
        #: Symbols made for multiples (`s0 == 8*m0`), as expressions of those that have a source.
        self._made: dict[str, Size] = {}
        #: Symbols whose bounds follow from those of the symbol that stands for them.
        self._implied: set[str] = set()
        #: The line that narrowed a symbol's bounds last.
        self._narrowed: dict[str, Location] = {}
        self._noted: dict[tuple, Noted] = {}
        self._resolved: dict[Size, Size] = {}
        #: Expressions of several symbols that are no less than zero: sizes that contents decide are equal to them.
        self._not_negative: list[Size] = []
        #: Symbols for sizes that contents decide, and whether the program can check what is assumed of each.
        self.contents: dict[str, bool] = {}

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
            found = substitute(value, {name: self._current(name) for name in symbols(value)})
            self._resolved[value] = found
        return found

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
            return
        key = (difference, relation)
        if key in self._noted:
            return
        self._noted[key] = Noted(left, relation, right, self.location())
        if relation == "==":
            self._solve(difference)
        self._learnt()

    def _learnt(self) -> None:
        self._resolved.clear()
        # What was known stays known: bounds only narrow, and equalities hold.

    def _narrow(self, difference: Size, relation: str) -> bool:
        """`k*s + c relation 0` as bounds of the symbol `s`, where that says all of it."""
        if isinstance(difference, Symbol):
            difference = Sum(0, ((1, difference),))
        if not isinstance(difference, Sum) or len(difference.terms) != 1:
            return False
        ((factor, atom),) = difference.terms
        if not isinstance(atom, Symbol):
            return False
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
        self._bounds[atom.name] = (low, high)
        if low == high:
            self._replaced[atom.name] = low
        self._narrowed[atom.name] = self.location()
        return True

    def _solve(self, difference: SizeExpr) -> None:
        """`difference == 0` holds: one symbol becomes an expression of the others, where that is possible."""
        if isinstance(difference, Mod) and isinstance(difference.divisor, int):
            self._divide(difference.value, difference.divisor)
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

    def _replace(self, name: str, value: Size) -> None:
        """`name` is `value` from here on; what is known of its bounds is said of the symbol in `value`, if any."""
        low, high = self._bounds[name]
        self._replaced[name] = value
        if name in self.contents:
            self.hints[name] = self.hint(value)
        if isinstance(value, int):
            self._implied.add(name)
        elif self._narrow(add(value, -low), ">=") and (high == INFINITY or self._narrow(add(value, -high), "<=")):
            self._implied.add(name)
        elif name in self.contents and low >= 0:
            self._not_negative.append(add(value, -low))

    def _divide(self, value: Size, divisor: int) -> None:
        """`value % divisor == 0`: a symbol becomes a multiple of a new one."""
        if not isinstance(value, Symbol):
            return
        low, high = self._bounds[value.name]
        name = f"m{len(self._made)}"
        quotient = self._new(name, self.hints[value.name] // divisor, -(-low // divisor), high // divisor)
        self._made[name] = FloorDiv(value, divisor)
        if value.name in self.contents:
            self.contents[name] = self.contents[value.name]
        self._replaced[value.name] = mul(quotient, divisor)
        self._implied.add(value.name)


def _age(value: Size) -> int:
    """How late a symbol was made; expressions come last, what contents decide first."""
    if isinstance(value, Symbol) and value.name[0] == "u":
        return (1 << 20) + int(value.name[1:])
    return int(value.name[1:]) if isinstance(value, Symbol) and value.name[0] == "s" else -1
