"""`SizeExpr`: integer expressions for sizes, strides and indices, with known bounds.

A size is an `int` or a `SizeExpr`; plain ints cost nothing, so static programs never build one for a size.
Build expressions with the functions `add`, `mul`, `floordiv`, `mod`, `minimum`, `maximum` (or the operators
of `SizeExpr`): they fold constants and keep a canonical form, so that equal expressions compare equal:

    Sum(constant, ((coefficient, atom), ...))   with atoms Symbol | FloorDiv | Mod | Min | Max | Product

All division is floor division by a positive divisor. Equations used when simplifying hold for all integers inside
the bounds of the symbols; each names its precondition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import gcd
from typing import ClassVar

from lampwork.ir.record import record

INFINITY = 1 << 62


class SizeExpr:
    """Base of all non-constant expressions. Immutable, hashable, ordered by its text.

    Expressions share their parts, so what is asked of a part again and again is kept there: its hash, its bounds, its
    symbols and its text.
    """

    __slots__ = ()

    @property
    def names(self) -> frozenset[str]:
        """Names of all symbols in it."""
        return symbols(self)

    def evaluated(self, values: Mapping[str, int]) -> int:
        """The integer that it denotes. Raises `KeyError` for a symbol without a value."""
        return evaluate(self, values)

    def written(self, part: Callable[[Size], str]) -> str:
        """Python text, which is an operand of any operator but a division; `part` gives those of its parts."""
        raise NotImplementedError

    def bare_text(self, name: Callable[[str], str]) -> str:
        """Python text that stands alone, with what `name` gives for each symbol, asked for from left to right."""

        def part(value: Size) -> str:
            if isinstance(value, int):
                return str(value)
            return name(value.name) if isinstance(value, Symbol) else value.written(part)

        shown = part(self)
        return shown[1:-1] if isinstance(self, (Sum, FloorDiv, Mod)) else shown

    __dataclass_fields__: ClassVar[dict[str, object]]

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def __add__(self, other: Size) -> Size:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        return add(self, mul(other, -1))

    def __rsub__(self, other: Size) -> Size:
        return add(other, mul(self, -1))

    def __neg__(self) -> Size:
        return mul(self, -1)

    def __mul__(self, other: Size) -> Size:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other)

    def __mod__(self, other: Size) -> Size:
        return mod(self, other)


Size = int | SizeExpr


def _hash(self: SizeExpr) -> int:
    kept = self.__dict__
    found = kept.get("_hash")
    if found is None:
        found = kept["_hash"] = hash(tuple([kept[name] for name in self.__dataclass_fields__]))
    return found


@record
class Symbol(SizeExpr):
    """A loop index, a dynamic size, or an integer value computed in the kernel. `lower <= value <= upper`.

    `seen`: what a dynamic size was in the call that was captured, 0 if nobody knows; speed alone may depend on it.
    """

    name: str
    lower: int = 0
    upper: int = INFINITY
    seen: int = field(default=0, repr=False)

    __hash__ = _hash

    def __str__(self) -> str:
        return self.name


@record
class FloorDiv(SizeExpr):
    value: Size
    divisor: Size

    __hash__ = _hash

    def written(self, part: Callable[[Size], str]) -> str:
        return f"({part(self.value)} // {_divisor_text(self.divisor, part)})"

    @cached_property
    def text(self) -> str:
        return self.written(str)

    def __str__(self) -> str:
        return self.text


@record
class Mod(SizeExpr):
    value: Size
    divisor: Size

    __hash__ = _hash

    def written(self, part: Callable[[Size], str]) -> str:
        return f"({part(self.value)} % {_divisor_text(self.divisor, part)})"

    @cached_property
    def text(self) -> str:
        return self.written(str)

    def __str__(self) -> str:
        return self.text


@record
class Min(SizeExpr):
    left: Size
    right: Size

    __hash__ = _hash

    def written(self, part: Callable[[Size], str]) -> str:
        return f"min({part(self.left)}, {part(self.right)})"

    @cached_property
    def text(self) -> str:
        return self.written(str)

    def __str__(self) -> str:
        return self.text


@record
class Max(SizeExpr):
    left: Size
    right: Size

    __hash__ = _hash

    def written(self, part: Callable[[Size], str]) -> str:
        return f"max({part(self.left)}, {part(self.right)})"

    @cached_property
    def text(self) -> str:
        return self.written(str)

    def __str__(self) -> str:
        return self.text


@record
class Product(SizeExpr):
    """Product of two or more atoms, sorted by text."""

    factors: tuple[SizeExpr, ...]

    __hash__ = _hash

    def written(self, part: Callable[[Size], str]) -> str:
        return "*".join(map(part, self.factors))

    @cached_property
    def text(self) -> str:
        return self.written(str)

    def __str__(self) -> str:
        return self.text


@record
class Sum(SizeExpr):
    """`constant + sum(coefficient * atom)`; terms sorted by the atom's text, coefficients non-zero."""

    constant: int
    terms: tuple[tuple[int, SizeExpr], ...]

    __hash__ = _hash

    def written(self, part: Callable[[Size], str]) -> str:
        parts = [part(atom) if k == 1 else f"{k}*{part(atom)}" for k, atom in self.terms]
        return f"({' + '.join(parts + ([str(self.constant)] if self.constant else []))})"

    @cached_property
    def text(self) -> str:
        return self.written(str)

    def __str__(self) -> str:
        return self.text


def _divisor_text(divisor: Size, part: Callable[[Size], str]) -> str:
    """A product is no factor of what stands before it: `a // (b*c)`, where `a // b*c` is `(a // b)*c`."""
    return f"({part(divisor)})" if isinstance(divisor, Product) else part(divisor)


def linear_terms(value: Size) -> tuple[int, tuple[tuple[int, SizeExpr], ...]]:
    """(constant, ((coefficient, atom), ...)): `value` is their sum."""
    return _terms(value)


def _terms(value: Size) -> tuple[int, tuple[tuple[int, SizeExpr], ...]]:
    if isinstance(value, int):
        return value, ()
    if isinstance(value, Sum):
        return value.constant, value.terms
    return 0, ((1, value),)


def _from_terms(constant: int, terms: Mapping[SizeExpr, int]) -> Size:
    kept = sorted(((k, atom) for atom, k in terms.items() if k), key=lambda term: str(term[1]))
    if not kept:
        return constant
    if constant == 0 and len(kept) == 1 and kept[0][0] == 1:
        return kept[0][1]
    return Sum(constant, tuple(kept))


def add(left: Size, right: Size) -> Size:
    if isinstance(left, int):
        if isinstance(right, int):
            return left + right
        left, right = right, left
    if isinstance(right, int):
        if right == 0:
            return left
        if isinstance(left, Sum):
            constant = left.constant + right
            terms = left.terms
            return terms[0][1] if constant == 0 and len(terms) == 1 and terms[0][0] == 1 else Sum(constant, terms)
        return Sum(right, ((1, left),))
    constant, terms = _terms(left)
    more_constant, more_terms = _terms(right)
    merged = {atom: k for k, atom in terms}
    for k, atom in more_terms:
        merged[atom] = merged.get(atom, 0) + k
    for atom in merged:
        if type(atom) is Mod:
            _join_quotient_and_rest(merged)
            break
    return _from_terms(constant + more_constant, merged)


def _join_quotient_and_rest(terms: dict[SizeExpr, int]) -> None:
    """d * (x // d) + x % d == x, for positive d; edits `terms`. Only where x is one term (a sum would need merging)."""
    changed = True
    while changed:
        changed = False
        for rest, k in list(terms.items()):
            if type(rest) is not Mod or not isinstance(rest.divisor, int) or not k:
                continue
            quotient = floordiv(rest.value, rest.divisor)
            if not isinstance(quotient, SizeExpr) or terms.get(quotient) != k * rest.divisor:
                continue
            constant, inner = _terms(rest.value)
            if constant:
                continue
            del terms[rest], terms[quotient]
            for factor, atom in inner:
                terms[atom] = terms.get(atom, 0) + factor * k
            changed = True
            break


def mul(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int):
        if right == 0:
            return 0
        if right == 1:
            return left
        constant, terms = _terms(left)
        if not constant and len(terms) == 1 and terms[0][0] * right == 1:
            return terms[0][1]
        return Sum(constant * right, tuple([(k * right, atom) for k, atom in terms]))
    # Distribute sums over sums: sizes are small expressions, and one canonical form makes equality structural.
    left_constant, left_terms = _terms(left)
    right_constant, right_terms = _terms(right)
    result: Size = left_constant * right_constant
    for k, atom in left_terms:
        result = add(result, mul(atom, k * right_constant) if right_constant else 0)
    for k, atom in right_terms:
        result = add(result, mul(atom, k * left_constant) if left_constant else 0)
    for lk, latom in left_terms:
        for rk, ratom in right_terms:
            factors = (latom.factors if isinstance(latom, Product) else (latom,)) + (
                ratom.factors if isinstance(ratom, Product) else (ratom,)
            )
            result = add(result, _from_terms(0, {Product(tuple(sorted(factors, key=str))): lk * rk}))
    return result


def bounds(value: Size) -> tuple[int, int]:
    """Inclusive lower and upper bound of `value` over the bounds of its symbols (saturating at +-INFINITY)."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, Symbol):
        return value.lower, value.upper
    kept = value.__dict__
    found = kept.get("_bounds")
    if found is None:
        found = kept["_bounds"] = _bounds(value)
    return found


def _bounds(value: SizeExpr) -> tuple[int, int]:
    if isinstance(value, Sum):
        low = high = value.constant
        for k, atom in value.terms:
            atom_low, atom_high = bounds(atom)
            low += k * (atom_low if k > 0 else atom_high)
            high += k * (atom_high if k > 0 else atom_low)
        return max(low, -INFINITY), min(high, INFINITY)
    if isinstance(value, Product):
        low, high = 1, 1
        for factor in value.factors:
            factor_low, factor_high = bounds(factor)
            corners = [low * factor_low, low * factor_high, high * factor_low, high * factor_high]
            low, high = max(min(corners), -INFINITY), min(max(corners), INFINITY)
        return low, high
    if isinstance(value, FloorDiv):
        low, high = bounds(value.value)
        divisor_low, divisor_high = bounds(value.divisor)
        divisor_low = max(divisor_low, 1)
        corners = [low // divisor_low, low // divisor_high, high // divisor_low, high // divisor_high]
        return min(corners), max(corners)
    if isinstance(value, Mod):
        low, high = bounds(value.value)
        _, divisor_high = bounds(value.divisor)
        return 0, min(divisor_high - 1, high) if low >= 0 else divisor_high - 1
    if isinstance(value, (Min, Max)):
        left_low, left_high = bounds(value.left)
        right_low, right_high = bounds(value.right)
        total = add(value.left, value.right)
        if isinstance(value, Min):  # min(x, c - x) <= c / 2 <= max(x, c - x)
            half = total // 2 if isinstance(total, int) else INFINITY
            return min(left_low, right_low), min(left_high, right_high, half)
        half = -(-total // 2) if isinstance(total, int) else -INFINITY
        return max(left_low, right_low, half), max(left_high, right_high)
    raise TypeError(f"not a size: {value!r}")


def _split_multiple(value: Size, divisor: int) -> tuple[Size, Size]:
    """`value == divisor * quotient + rest`, with every term that `divisor` divides moved into the quotient."""
    constant, terms = _terms(value)
    quotient: dict[SizeExpr, int] = {}
    rest: dict[SizeExpr, int] = {}
    for k, atom in terms:
        if k % divisor == 0:
            quotient[atom] = k // divisor
        else:
            rest[atom] = k
    return _from_terms(constant // divisor, quotient), _from_terms(constant % divisor, rest)


def floordiv(value: Size, divisor: Size) -> Size:
    """`value // divisor`, for a positive divisor."""
    if isinstance(value, int) and isinstance(divisor, int):
        return value // divisor
    if divisor == 1:
        return value
    if value == divisor:
        return 1
    if isinstance(divisor, int):
        # (d*q + r) // d == q + r // d ; and r // d == 0 when 0 <= r < d.
        quotient, rest = _split_multiple(value, divisor)
        low, high = bounds(rest)
        if low // divisor == high // divisor:
            return add(quotient, low // divisor)
        # (x // a) // b == x // (a*b), for positive a, b.
        if isinstance(rest, FloorDiv) and isinstance(rest.divisor, int):
            return add(quotient, floordiv(rest.value, rest.divisor * divisor))
        # (g*x + r) // (g*d) == x // d, when 0 <= r < g.
        for common in _common_factors(rest, divisor):
            multiple, remainder = _split_multiple(rest, common)
            low, high = bounds(remainder)
            if 0 <= low and high < common:
                return add(quotient, floordiv(multiple, divisor // common))
        return add(quotient, FloorDiv(rest, divisor))
    low, high = bounds(value)
    if 0 <= low and high < bounds(divisor)[0]:
        return 0
    exact = _divide_by_expression(value, divisor)
    if exact is not None:
        return exact
    # (c*x) // (c*d) == x // d, for positive c.
    shared = common_factor(value, divisor)
    if shared != 1:
        return floordiv(divided(value, shared), divided(divisor, shared))
    return FloorDiv(value, divisor)


def mod(value: Size, divisor: Size) -> Size:
    """`value % divisor` (result in [0, divisor)), for a positive divisor."""
    if isinstance(value, int) and isinstance(divisor, int):
        return value % divisor
    if divisor == 1 or value == divisor:
        return 0
    if isinstance(divisor, int):
        # (d*q + r) % d == r % d ; and r % d == r - d*(r // d), constant quotient when the bounds say so.
        _, rest = _split_multiple(value, divisor)
        low, high = bounds(rest)
        if low // divisor == high // divisor:
            return add(rest, -divisor * (low // divisor))
        # (x % a) % b == x % b, when b divides a.
        if isinstance(rest, Mod) and isinstance(rest.divisor, int) and rest.divisor % divisor == 0:
            return mod(rest.value, divisor)
        # (g*x + r) % (g*d) == g * (x % d) + r, when 0 <= r < g.
        for common in _common_factors(rest, divisor):
            multiple, remainder = _split_multiple(rest, common)
            low, high = bounds(remainder)
            if 0 <= low and high < common:
                return add(mul(mod(multiple, divisor // common), common), remainder)
        return Mod(rest, divisor)
    low, high = bounds(value)
    if 0 <= low and high < bounds(divisor)[0]:
        return value
    if _divide_by_expression(value, divisor) is not None:
        return 0
    # (c*x) % (c*d) == c * (x % d), for positive c.
    shared = common_factor(value, divisor)
    if shared != 1:
        return mul(shared, mod(divided(value, shared), divided(divisor, shared)))
    return Mod(value, divisor)


def span(shape: Sequence[Size], strides: Sequence[Size]) -> int:
    """Elements from the first to the last of a strided tensor whose sizes compute: numbers, or `torch.SymInt`."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))  # type: ignore


def common_factor(*values: Size) -> Size:
    """The largest product of a number and positive atoms that divides every term of every value."""
    number = 0
    atoms: list[SizeExpr] | None = None
    for value in values:
        constant, terms = _terms(value)
        if constant:
            number, atoms = gcd(number, constant), []
        for k, atom in terms:
            number = gcd(number, k)
            factors = list(atom.factors) if isinstance(atom, Product) else [atom]
            if atoms is None:
                atoms = [factor for factor in factors if bounds(factor)[0] > 0]
            else:
                kept = []
                for factor in atoms:
                    if factor in factors:
                        factors.remove(factor)
                        kept.append(factor)
                atoms = kept
    return mul(product(atoms or ()), number or 1)


def divided(value: Size, factor: Size) -> Size:
    """`value / factor`, for a factor that `common_factor` found."""
    constant, terms = _terms(factor)
    number = constant if not terms else terms[0][0]
    if terms:
        quotient = _divide_by_expression(value, terms[0][1])
        assert quotient is not None, f"{factor} is no factor of {value}"
        value = quotient
    constant, terms = _terms(value)
    return _from_terms(constant // number, {atom: k // number for k, atom in terms})


def exact_quotient(value: Size, divisor: Size) -> Size | None:
    """`q` with `value == q * divisor`; None where there is none, or it was not found."""
    if isinstance(divisor, int):
        constant, terms = _terms(value)
        exact = divisor and not constant % divisor and all(not k % divisor for k, _ in terms)
        return _from_terms(constant // divisor, {atom: k // divisor for k, atom in terms}) if exact else None
    return _divide_by_expression(value, divisor)


def _common_factors(value: Size, divisor: int) -> list[int]:
    """Factors above 1 that some coefficient of `value` shares with `divisor`, largest first."""
    factors = {gcd(k, divisor) for k, _ in _terms(value)[1]}
    factors.discard(1)
    factors.discard(divisor)
    return sorted(factors, reverse=True)


def _divide_by_expression(value: Size, divisor: SizeExpr) -> Size | None:
    """`q` with `value == q * divisor`, if there is one; None where it was not found."""
    if isinstance(divisor, Sum):
        return _divide_by_sum(value, divisor)
    wanted = list(divisor.factors) if isinstance(divisor, Product) else [divisor]
    constant, terms = _terms(value)
    if constant:
        return None
    result: dict[SizeExpr, int] = {}
    total = 0
    for k, atom in terms:
        factors = list(atom.factors) if isinstance(atom, Product) else [atom]
        for factor in wanted:
            if factor not in factors:
                return None
            factors.remove(factor)
        if not factors:
            total += k
        else:
            left = factors[0] if len(factors) == 1 else Product(tuple(factors))
            result[left] = result.get(left, 0) + k
    return _from_terms(total, result)


#: Terms of a quotient of two sums; sizes have few.
_LONGEST_QUOTIENT = 8


def _divide_by_sum(value: Size, divisor: Sum) -> Size | None:
    """Long division of polynomials in atoms: (a*b - b) // (a - 1) is b."""
    factor, atom = _leading_term(divisor)
    quotient: Size = 0
    for _ in range(_LONGEST_QUOTIENT):
        if value == 0:
            return quotient
        if isinstance(value, int):
            return None
        k, product_of = _leading_term(value)
        step = None if k % factor else _divide_by_expression(product_of, atom)
        if step is None:
            return None
        step = mul(step, k // factor)
        quotient = add(quotient, step)
        value = add(value, mul(mul(step, divisor), -1))
    return None


def _leading_term(value: SizeExpr) -> tuple[int, SizeExpr]:
    """The term of the most factors, among equals the first by their texts."""

    def place(term: tuple[int, SizeExpr]) -> tuple[int, list[str]]:
        factors = term[1].factors if isinstance(term[1], Product) else (term[1],)
        return -len(factors), [str(factor) for factor in factors]

    return min(_terms(value)[1], key=place)


def minimum(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    (left_low, left_high), (right_low, right_high) = bounds(left), bounds(right)
    if left == right or left_high <= right_low:
        return left
    if right_high <= left_low:
        return right
    return Min(left, right)


def maximum(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    (left_low, left_high), (right_low, right_high) = bounds(left), bounds(right)
    if left == right or left_low >= right_high:
        return left
    if right_low >= left_high:
        return right
    return Max(left, right)


def product(sizes: Iterable[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = mul(result, size)
    return result


def substitute(value: Size, values: Mapping[str, Size]) -> Size:
    """`value` with symbols replaced by name; the result is canonical again."""
    if isinstance(value, int) or symbols(value).isdisjoint(values):
        return value
    if isinstance(value, Symbol):
        return values.get(value.name, value)
    if isinstance(value, Sum):
        result: Size = value.constant
        for k, atom in value.terms:
            result = add(result, mul(substitute(atom, values), k))
        return result
    if isinstance(value, Product):
        return product(substitute(factor, values) for factor in value.factors)
    if isinstance(value, FloorDiv):
        return floordiv(substitute(value.value, values), substitute(value.divisor, values))
    if isinstance(value, Mod):
        return mod(substitute(value.value, values), substitute(value.divisor, values))
    if isinstance(value, Min):
        return minimum(substitute(value.left, values), substitute(value.right, values))
    if isinstance(value, Max):
        return maximum(substitute(value.left, values), substitute(value.right, values))
    raise TypeError(f"not a size: {value!r}")


def symbols(value: Size) -> frozenset[str]:
    """Names of all symbols in `value`."""
    if isinstance(value, int):
        return frozenset()
    kept = value.__dict__
    found = kept.get("_symbols")
    if found is None:
        found = kept["_symbols"] = _symbols(value)
    return found


def _symbols(value: SizeExpr) -> frozenset[str]:
    if isinstance(value, Symbol):
        return frozenset((value.name,))
    if isinstance(value, Sum):
        return frozenset().union(*(symbols(atom) for _, atom in value.terms))
    if isinstance(value, Product):
        return frozenset().union(*(symbols(factor) for factor in value.factors))
    if isinstance(value, (FloorDiv, Mod)):
        return symbols(value.value) | symbols(value.divisor)
    if isinstance(value, (Min, Max)):
        return symbols(value.left) | symbols(value.right)
    raise TypeError(f"not a size: {value!r}")


def seen_value(value: Size) -> int | None:
    """What `value` was in the call that was captured; None if some symbol in it has no such number."""
    seen: dict[str, int] = {}

    def visit(part: Size) -> None:
        if isinstance(part, Symbol):
            seen[part.name] = part.seen
        elif isinstance(part, Sum):
            for _, atom in part.terms:
                visit(atom)
        elif isinstance(part, Product):
            for factor in part.factors:
                visit(factor)
        elif isinstance(part, (FloorDiv, Mod)):
            visit(part.value)
            visit(part.divisor)
        elif isinstance(part, (Min, Max)):
            visit(part.left)
            visit(part.right)

    visit(value)
    return evaluate(value, seen) if all(seen.values()) else None


def evaluate(value: Size, values: Mapping[str, int]) -> int:
    """The integer `value` denotes. Raises `KeyError` for a symbol without a value."""
    if isinstance(value, int):
        return value
    if isinstance(value, Symbol):
        return values[value.name]
    if isinstance(value, Sum):
        return value.constant + sum(k * evaluate(atom, values) for k, atom in value.terms)
    if isinstance(value, Product):
        result = 1
        for factor in value.factors:
            result *= evaluate(factor, values)
        return result
    if isinstance(value, FloorDiv):
        return evaluate(value.value, values) // evaluate(value.divisor, values)
    if isinstance(value, Mod):
        return evaluate(value.value, values) % evaluate(value.divisor, values)
    if isinstance(value, Min):
        return min(evaluate(value.left, values), evaluate(value.right, values))
    if isinstance(value, Max):
        return max(evaluate(value.left, values), evaluate(value.right, values))
    raise TypeError(f"not a size: {value!r}")


def coefficient(value: Size, name: str) -> Size | None:
    """The stride of `value` along symbol `name`: k when value == k*name + rest with `name` not in rest, else None."""
    constant, terms = _terms(value)
    found: Size = 0
    for k, atom in terms:
        if isinstance(atom, Symbol) and atom.name == name:
            found = add(found, k)
        elif isinstance(atom, Product) and any(isinstance(f, Symbol) and f.name == name for f in atom.factors):
            rest = list(atom.factors)
            rest.remove(next(f for f in rest if isinstance(f, Symbol) and f.name == name))
            if any(name in symbols(factor) for factor in rest):
                return None
            found = add(found, mul(rest[0] if len(rest) == 1 else Product(tuple(rest)), k))
        elif name in symbols(atom):
            return None
    return found
