"""Index arithmetic: `SizeExpr`s as scalar or vector integers.

Inside a vector loop one symbol, the lane axis, has the value `base + lane` in each lane. An expression is *affine* when
its value is `base + stride * lane`; loads and stores ask for that form first, because it decides whether they are
contiguous. Divisions stay affine where no lane of an aligned vector crosses a multiple of the divisor.
"""

from __future__ import annotations

from math import gcd

from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol, bounds

Stride = int | Value
_NARROW = (1 << 31) - 1


class Unvectorizable(Exception):
    """This loop cannot run as lanes; it is emitted again as a scalar loop."""


class SizeEmitter:
    """Turns sizes into values. `symbols` maps names to integers; `lane_axis` names the symbol that counts lanes.

    While a vector loop is open, `symbols[lane_axis]` is the value in lane 0, a multiple of `lane_multiple`.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.symbols: dict[str, Value] = {}
        self.lane_axis: str | None = None
        self.lanes = 1
        self.lane_multiple = 1

    # -- affine form --------------------------------------------------------------------------------------------------

    def affine(self, size: Size) -> tuple[Value, Stride] | None:
        """`(base, stride)` with the value `base + stride * lane`, or None. Uniform values have stride 0."""
        build = self.builder
        if isinstance(size, int):
            return build.integer(size), 0
        if isinstance(size, Symbol):
            value = self.symbol(size)
            if value.lanes > 1:
                return None
            return value, 1 if size.name == self.lane_axis else 0
        if isinstance(size, Sum):
            parts = []
            stride: Stride = 0
            for k, atom in size.terms:
                part = self.affine(atom)
                if part is None:
                    return None
                base, step = part
                if isinstance(step, int):
                    step *= k
                else:
                    step = self.times(step, build.integer(k))
                if not (isinstance(step, int) and step == 0):
                    if isinstance(stride, int) and isinstance(step, int):
                        stride += step
                    elif isinstance(stride, int) and stride == 0:
                        stride = step
                    else:
                        return None
                parts.append(self.times(base, build.integer(k)))
            return self.total(parts, size.constant), stride
        if isinstance(size, Product):
            found: Stride = 0
            result = build.integer(1)
            scale = build.integer(1)
            for factor in size.factors:
                part = self.affine(factor)
                if part is None:
                    return None
                base, step = part
                result = self.times(result, base)
                if isinstance(step, int) and step == 0:
                    scale = self.times(scale, base)
                elif isinstance(found, int) and found == 0:
                    found = step
                else:
                    return None
            if isinstance(found, int) and found == 0:
                return result, 0
            return result, self.times(scale, build.integer(found) if isinstance(found, int) else found)
        if isinstance(size, (FloorDiv, Mod)):
            value_part, divisor_part = self.affine(size.value), self.affine(size.divisor)
            if value_part is None or divisor_part is None or divisor_part[1] != 0:
                return None
            base, stride = value_part
            division = isinstance(size, FloorDiv)
            if stride != 0:
                divisor = size.divisor
                if not (isinstance(stride, int) and stride > 0 and isinstance(divisor, int)):
                    return None
                span = stride * self.lanes
                if divisor % span or self.multiple(size.value) % span:
                    return None
            result = self.divide(base, divisor_part[0], division, bounds(size.value)[0] >= 0)
            return result, 0 if division else stride
        if isinstance(size, (Min, Max)):
            left, right = self.affine(size.left), self.affine(size.right)
            if left is None or right is None or left[1] != 0 or right[1] != 0:
                return None
            return self.pick(left[0], right[0], isinstance(size, Min)), 0
        raise TypeError(f"not a size: {size!r}")

    def scalar(self, size: Size) -> Value:
        """The value of `size`, which must be the same in every lane (else `Unvectorizable`)."""
        part = self.affine(size)
        if part is None or part[1] != 0:
            raise Unvectorizable(f"{size} differs between lanes")
        return part[0]

    def symbol(self, symbol: Symbol) -> Value:
        value = self.symbols.get(symbol.name)
        if value is None:
            raise KeyError(f"index symbol {symbol.name} has no value here")
        return value

    def multiple(self, size: Size) -> int:
        """A number that divides `size` in lane 0 (0 for the constant 0)."""
        if isinstance(size, int):
            return abs(size)
        if isinstance(size, Symbol):
            if size.name == self.lane_axis:
                return self.lane_multiple
            value = self.symbols.get(size.name)
            if value is not None and value.is_constant and value.lanes == 1:
                return abs(int(value.text))
            return 1
        if isinstance(size, Sum):
            result = abs(size.constant)
            for k, atom in size.terms:
                result = gcd(result, k * self.multiple(atom))
            return result
        if isinstance(size, Product):
            result = 1
            for factor in size.factors:
                result *= self.multiple(factor)
            return result
        if isinstance(size, Mod):
            return gcd(self.multiple(size.value), self.multiple(size.divisor))
        if isinstance(size, (Min, Max)):
            return gcd(self.multiple(size.left), self.multiple(size.right))
        return 1

    # -- values in every lane -----------------------------------------------------------------------------------------

    def value(self, size: Size) -> Value:
        """`size` as i64: a scalar when it is uniform, else one value per lane."""
        part = self.affine(size)
        if part is not None and part[1] == 0:
            return part[0]
        build = self.builder
        narrow = _fits(size, self.lanes)
        type = "i32" if narrow else "i64"
        if part is not None:
            base, stride = part
            start = build.widen(build.convert("trunc", base, type), self.lanes)
            if isinstance(stride, int):
                steps = build.iota(self.lanes, type, stride)
            else:
                steps = build.binary("mul", build.iota(self.lanes, type), build.convert("trunc", stride, type))
            result = build.binary("add", start, steps)
        else:
            result = self._lanewise(size, type)
        return build.convert("sext", result, "i64")

    def _lanewise(self, size: Size, type: str) -> Value:
        build = self.builder
        part = self.affine(size)
        if part is not None:
            base = build.convert("trunc", part[0], type)
            if part[1] == 0:
                return base
            stride = part[1] if isinstance(part[1], Value) else build.integer(part[1])
            steps = build.binary("mul", build.iota(self.lanes, type), build.convert("trunc", stride, type))
            return build.binary("add", base, steps)
        if isinstance(size, Symbol):
            return build.convert("trunc", self.symbol(size), type)
        if isinstance(size, Sum):
            result = build.integer(size.constant, type)
            for k, atom in size.terms:
                term = self._lanewise(atom, type)
                term = term if k == 1 else build.binary("mul", term, build.integer(k, type))
                result = term if result.text == "0" else build.binary("add", result, term)
            return result
        if isinstance(size, Product):
            result = self._lanewise(size.factors[0], type)
            for factor in size.factors[1:]:
                result = build.binary("mul", result, self._lanewise(factor, type))
            return result
        if isinstance(size, (FloorDiv, Mod)):
            value, divisor = self._lanewise(size.value, type), self._lanewise(size.divisor, type)
            return self.divide(value, divisor, isinstance(size, FloorDiv), bounds(size.value)[0] >= 0)
        if isinstance(size, (Min, Max)):
            return self.pick(self._lanewise(size.left, type), self._lanewise(size.right, type), isinstance(size, Min))
        raise TypeError(f"not a size: {size!r}")

    # -- integer arithmetic -------------------------------------------------------------------------------------------

    def times(self, a: Value, b: Value) -> Value:
        if a.is_constant and b.is_constant:
            return self.builder.integer(int(a.text) * int(b.text))
        if a.is_constant:
            a, b = b, a
        if b.text == "1":
            return a
        if b.text == "0":
            return b
        return self.builder.binary("mul", a, b, " nsw")

    def total(self, parts: list[Value], constant: int) -> Value:
        """The sum, added from the outermost level inwards so that partial sums stay outside inner loops."""
        for part in parts:
            if part.is_constant:
                constant += int(part.text)
        varying = sorted((part for part in parts if not part.is_constant), key=lambda part: part.level)
        if not varying:
            return self.builder.integer(constant)
        result = varying[0]
        for part in varying[1:]:
            result = self.builder.binary("add", result, part, " nsw")
        return self.builder.binary("add", result, self.builder.integer(constant), " nsw") if constant else result

    def divide(self, value: Value, divisor: Value, quotient: bool, non_negative: bool) -> Value:
        """Floor division (or its remainder) by a positive divisor."""
        build = self.builder
        if value.is_constant and divisor.is_constant and value.lanes == divisor.lanes == 1:
            a, b = int(value.text), int(divisor.text)
            return build.integer(a // b if quotient else a % b, value.type)
        if divisor.text == "1":
            return value if quotient else build.integer(0, value.type)
        if not divisor.is_constant:
            # The division may be hoisted out of a loop that an empty tensor never enters.
            divisor = self.pick(divisor, build.integer(1, divisor.type), False)
        if non_negative:
            return build.binary("udiv" if quotient else "urem", value, divisor)
        remainder = build.binary("srem", value, divisor)
        negative = build.compare("icmp slt", remainder, build.integer(0, value.type))
        if not quotient:
            return build.select(negative, build.binary("add", remainder, divisor), remainder)
        return build.binary("sub", build.binary("sdiv", value, divisor), build.convert("zext", negative, value.type))

    def pick(self, left: Value, right: Value, smaller: bool) -> Value:
        order = "icmp slt" if smaller else "icmp sgt"
        return self.builder.select(self.builder.compare(order, left, right), left, right)


def _fits(size: Size, lanes: int) -> bool:
    """Whether every intermediate value of `size`, in every lane, fits 32 bits."""
    if isinstance(size, int):
        return abs(size) + lanes <= _NARROW
    low, high = bounds(size)
    if low < -_NARROW or high > _NARROW - lanes:
        return False
    if isinstance(size, Symbol):
        return True
    if isinstance(size, Sum):
        reach = abs(size.constant)
        for k, atom in size.terms:
            atom_low, atom_high = bounds(atom)
            reach += abs(k) * max(abs(atom_low), abs(atom_high) + lanes)
        return reach <= _NARROW and all(_fits(atom, lanes) for _, atom in size.terms)
    if isinstance(size, Product):
        reach = 1
        for factor in size.factors:
            factor_low, factor_high = bounds(factor)
            reach *= max(abs(factor_low), abs(factor_high) + lanes, 1)
        return reach <= _NARROW and all(_fits(factor, lanes) for factor in size.factors)
    if isinstance(size, (FloorDiv, Mod)):
        return _fits(size.value, lanes) and _fits(size.divisor, lanes)
    if isinstance(size, (Min, Max)):
        return _fits(size.left, lanes) and _fits(size.right, lanes)
    return False
