"""Functions outside the image, reached through the `externals` table: OpenMP, Sleef (as torch exports it), libm.

A name is `library:symbol` with library `gomp` (the OpenMP runtime that torch loaded), `torch_cpu` (Sleef), `m` or `c`.
"""

from __future__ import annotations

from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.types import BITS, vector

#: Suffix of the Sleef variant with the error ATen accepts too, in units of 0.1 ulp ("_u10" where none is named); "" for
#: exact functions.
SLEEF = {
    "exp": "_u10", "exp2": "_u10", "expm1": "_u10", "log": "_u10", "log2": "_u10", "log10": "_u10", "log1p": "_u10",
    "sin": "_u10", "cos": "_u10", "tan": "_u10", "asin": "_u10", "acos": "_u10", "atan": "_u10", "atan2": "_u10",
    "sinh": "_u10", "cosh": "_u10", "tanh": "_u10", "asinh": "_u10", "acosh": "_u10", "atanh": "_u10",
    "erf": "_u10", "erfc": "_u15", "lgamma": "_u10", "hypot": "_u05", "pow": "_u10", "fmod": "",
}  # fmt: skip

_SLEEF_BYTES = {"avx512": 64, "avx2": 32}
_SLEEF_ISA = {"avx512": "avx512f", "avx2": "avx2"}


class Externals:
    """The table of one image. `names` in table order; `target` is the level's name."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.names: list[str] = []

    def slot(self, name: str) -> int:
        """The position of external `name` in the table."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def address(self, build: Builder, name: str) -> Value:
        """The pointer to external `name`, loaded from the table `%externals` once per function."""
        place = build.pure("ptr", 1, f"getelementptr inbounds ptr, ptr %externals, i64 {self.slot(name)}")
        return build.pure("ptr", 1, f"load ptr, ptr {place.text}, align 8, !invariant.load !1", place)

    def function(self, build: Builder, name: str, *args: Value) -> Value:
        """The mathematical function `name` in every lane: Sleef by vectors, libm lane by lane below AVX2."""
        args = build.same_lanes(*args)
        type, lanes = args[0].type, args[0].lanes
        if name == "fmod" and type == "float" and self.target in _SLEEF_BYTES:
            # Sleef's float32 version answers NaN for denormal divisors; a float32 remainder is exact in float64.
            wide = self.function(build, name, *(build.convert("fpext", arg, "double") for arg in args))
            return build.convert("fptrunc", wide, type)
        if self.target not in _SLEEF_BYTES:
            return self.lane_by_lane(build, name, *args)
        width = _SLEEF_BYTES[self.target] * 8 // BITS[type]
        ulps, isa = SLEEF.get(name, "_u10"), _SLEEF_ISA[self.target]
        symbol = self.address(
            build, f"torch_cpu:Sleef_{name}{'f' if type == 'float' else 'd'}{width}{ulps}{isa if ulps else '_' + isa}"
        )
        if lanes <= width:
            return build.piece(_call(build, symbol, [_padded(build, arg, width) for arg in args]), 0, lanes)
        return build.join([
            _call(build, symbol, [build.piece(arg, start, width) for arg in args]) for start in range(0, lanes, width)
        ])  # fmt: skip

    def lane_by_lane(self, build: Builder, name: str, *args: Value) -> Value:
        """The function `name` of libm in every lane."""
        symbol = self.address(build, f"m:{name}{'f' if args[0].type == 'float' else ''}")
        return build.join([
            _call(build, symbol, [build.extract(arg, lane) for arg in args]) for lane in range(args[0].lanes)
        ])  # fmt: skip


def _padded(build: Builder, value: Value, lanes: int) -> Value:
    """`value` with lane 0 repeated up to `lanes` lanes."""
    if value.lanes == 1:
        return build.widen(value, lanes)
    if value.lanes == lanes:
        return value
    return build.shuffle(value, None, list(range(value.lanes)) + [0] * (lanes - value.lanes))


def _call(build: Builder, symbol: Value, args: list[Value]) -> Value:
    arguments = ", ".join(map(str, args))
    type, lanes = args[0].type, args[0].lanes
    return build.here(type, lanes, f"call {vector(type, lanes)} {symbol.text}({arguments})")
