"""Finding common axes for two operators: equations between index expressions, solved by splitting and merging axes.

    group norm statistics   s[n, g] = sum over (c, p) of x[n, 4*g + c, p]      atoms n g c p
    normalisation           y[n, k, q] reads s[n, k // 4]                      k splits into 4*k' + k'', then k' is g

An index is read as digits of a mixed-radix number, `768*t + c` with c in [0, 768) as (t, c). Two equal numbers have
equal
digits once both are cut at the same places.
"""

from __future__ import annotations

from lampwork.ir.size import FloorDiv, Mod, Size, Sum, Symbol, add, mul
from lampwork.schedule.expressions import substitute_sizes
from lampwork.schedule.group import loop_symbol

LEFT, RIGHT = 1, 2


class Unifier:
    """Atoms of two sides and what has become of them. `extents` grows as atoms split; `values` says what replaced
    which.

    Two atoms of one side are never made equal: that would be a diagonal of its domain, not all of it.
    """

    def __init__(self, left: dict[str, Size], right: dict[str, Size], next_atom: int) -> None:
        self.extents: dict[str, Size] = {**left, **right}
        self.sides: dict[str, int] = {**dict.fromkeys(left, LEFT), **dict.fromkeys(right, RIGHT)}
        self.values: dict[str, Size] = {}
        self.parts: dict[str, tuple[str, ...]] = {}
        self.next_atom = next_atom

    def equate(self, left: Size, right: Size) -> bool:
        """Make the two equal for all points, or answer False (the unifier is then of no further use)."""
        left, right = self._cut_divisions(left), self._cut_divisions(right)
        if left == right:
            return True
        left_digits, right_digits = self._digits(left), self._digits(right)
        if left_digits is None or right_digits is None:
            return False
        # From the lowest digit up; `pop` takes the lowest.
        while left_digits and right_digits:
            one, other = left_digits.pop(), right_digits.pop()
            if one == other:
                continue
            one_extent, other_extent = self.extents[one], self.extents[other]
            if one_extent != other_extent:
                if not isinstance(one_extent, int) or not isinstance(other_extent, int):
                    return False
                if one_extent > other_extent:
                    if one_extent % other_extent:
                        return False
                    high, one = self._split(one, other_extent)
                    left_digits.append(high)
                else:
                    if other_extent % one_extent:
                        return False
                    high, other = self._split(other, one_extent)
                    right_digits.append(high)
            if not self._merge(one, other):
                return False
        return not left_digits and not right_digits

    def resolve(self, value: Size) -> Size:
        return substitute_sizes(value, self.values) if self.values else value

    def final_parts(self, atom: str) -> tuple[str, ...]:
        """The atoms that `atom` has become, most significant first."""
        pieces = self.parts.get(atom)
        if pieces is None:
            return (atom,)
        return tuple(final for piece in pieces for final in self.final_parts(piece))

    def _symbol(self, atom: str) -> Symbol:
        return loop_symbol(atom, self.extents[atom])

    def _replace(self, atom: str, value: Size, parts: tuple[str, ...]) -> None:
        step = {atom: value}
        self.values = {name: substitute_sizes(old, step) for name, old in self.values.items()}
        self.values[atom] = value
        self.parts[atom] = parts

    def _split(self, atom: str, low_extent: int) -> tuple[str, str]:
        high, low = f"g{self.next_atom}", f"g{self.next_atom + 1}"
        self.next_atom += 2
        self.extents[high], self.extents[low] = self.extents[atom] // low_extent, low_extent
        self.sides[high] = self.sides[low] = self.sides[atom]
        self._replace(atom, add(mul(self._symbol(high), low_extent), self._symbol(low)), (high, low))
        return high, low

    def _merge(self, one: str, other: str) -> bool:
        if self.sides[one] & self.sides[other]:
            return False
        keep, drop = (one, other) if self.sides[one] & LEFT else (other, one)
        self.sides[keep] |= self.sides[drop]
        self._replace(drop, self._symbol(keep), (keep,))
        return True

    def _cut_divisions(self, value: Size) -> Size:
        """Splits atoms under `//` and `%` until the expression needs neither."""
        for _ in range(8):
            value = self.resolve(value)
            found = _division(value)
            if found is None:
                return value
            atom, divisor = found
            extent = self.extents.get(atom)
            if not isinstance(extent, int) or extent % divisor or extent == divisor:
                return value
            self._split(atom, divisor)
        return value

    def _digits(self, value: Size) -> list[str] | None:
        """Atoms of a mixed-radix number, most significant first; None if `value` is no such number."""
        if isinstance(value, int):
            return [] if value == 0 else None
        if type(value) is Symbol:
            return [value.name] if value.name in self.extents else None
        if type(value) is not Sum or value.constant:
            return None
        digits: list[str] = []
        weight: Size = 1
        terms = sorted(value.terms, key=lambda term: term[0])
        for factor, atom in terms:
            if type(atom) is not Symbol or atom.name not in self.extents or factor != weight:
                return None
            digits.append(atom.name)
            weight = mul(weight, self.extents[atom.name])
        return digits[::-1]


def _division(value: Size) -> tuple[str, int] | None:
    """A symbol and the constant it is divided by (`//` or `%`) somewhere in `value`."""
    if isinstance(value, int) or type(value) is Symbol:
        return None
    if isinstance(value, (FloorDiv, Mod)):
        if type(value.value) is Symbol and isinstance(value.divisor, int):
            return value.value.name, value.divisor
        return _division(value.value)
    if type(value) is Sum:
        for _, atom in value.terms:
            found = _division(atom)
            if found is not None:
                return found
    return None
