"""`ScoreTiles`: tiles of rows y that go through blocks of keys x, for attention and for its derivatives.

Keys that a mask excludes for all rows of a tile are not visited, and where it holds for all of them it is not looked at
(`masked_keys`).
"""

from __future__ import annotations

from lampwork.codegen.triton.expressions import COARSE
from lampwork.codegen.triton.function import FunctionWriter
from lampwork.codegen.triton.tiles import Form, Tiling, power_of_two
from lampwork.codegen.triton.values import NONE, Value
from lampwork.ir.attention import Attention
from lampwork.ir.loops import Axis, Compute, Expr, Index, Kernel, Load, Local, nodes
from lampwork.ir.masked_keys import Block, KeyRange, kept_parts, needed_keys
from lampwork.ir.record import record
from lampwork.ir.size import (
    FloorDiv,
    Size,
    Symbol,
    add,
    bounds,
    floordiv,
    linear_terms,
    maximum,
    minimum,
    mul,
    product,
    symbols,
)
from lampwork.ir.target import Target
from lampwork.ir.weighted_sums import WeightedSums

LOG2_E = "1.4426950408889634"
#: The least that the matrix units take.
SMALLEST = 16
#: How float32 is multiplied: as three products of TF32, of what that holds of a factor and what is left of it. (H100,
#: 16 heads of 2048 rows of 128, causal: 0.78 ms, 4.1 without matrix units.)
FLOAT32 = "tf32x3"


def padded(axis: Axis) -> int:
    return max(SMALLEST, power_of_two(bounds(axis.extent)[1]))


@record
class Stretch:
    """Blocks of keys from `start` on and before `end`; `lean`: no mask says anything there; `tail`: some may lie beyond
    the last key."""

    start: str
    end: str
    lean: bool
    tail: bool


class ScoreTiles(FunctionWriter):
    """`mask`: a condition without which a key is not needed, None: all are; `every`: all conditions that a lean stretch
    leaves out."""

    def __init__(
        self, kernel: Kernel, target: Target, form: Form, tiling: Tiling, item: Attention | WeightedSums,
        mask: Expr | None, every: Expr | None,
    ) -> None:  # fmt: skip
        super().__init__(kernel, target, form, tiling)
        self.tiled, self.mask, self.every = item, mask, every
        #: The lengths of dimensions that are not in blocks.
        self.widths: dict[str, str] = {}
        #: Whether what is written now are scores that need not be exact.
        self.is_coarse = False
        #: Numbers in memory that bound the keys of a tile, by the symbols that stand for them.
        self.bounds: dict[Expr, Symbol] = {}

    def _program(self) -> Size:
        """The program's batch and block of rows. Where later rows have more keys, they begin first."""
        item, tiling = self.tiled, self.tiling
        blocks = floordiv(add(item.row.extent, tiling.y_block - 1), tiling.y_block)
        program = self.name("tl.program_id(0)" + (".to(tl.int64)" if self.index_type == "tl.int64" else ""))
        count = self._divisor(blocks)
        place = f"{program} % {count}"
        self.first = Symbol("first", 0, max(bounds(item.row.extent)[1] - 1, 0))
        self.last = add(self.first, tiling.y_block - 1)
        self.tile = Block(item.row.name, item.key.name, self.first, self.last, self._bound_of)
        self.needed = needed_keys(self.mask, self.tile) if self.mask is not None else KeyRange()
        if self.needed.end is not None:
            place = f"{count} - 1 - {self.name(place)}"
        place = self.name(place)
        self.symbols["first"] = (self.name(f"{place} * YBLOCK"), NONE)
        self._split(self.name(f"{program} // {count}"), NONE, list(item.batch))
        if self.every is not None:
            kept_parts(self.every, self.tile)
        self.symbols[item.row.name] = self.symbols["first"]
        for number, symbol in self.bounds.items():
            text, _ = self.value(number)
            self.symbols[symbol.name] = (self.name(f"{text}.to({self.index_type})"), NONE)
        del self.symbols[item.row.name]
        return product([blocks, *(axis.extent for axis in item.batch)])

    def _bound_of(self, number: Expr) -> Size | None:
        """See `Block.bound`: a number of a row is one for the tile where it is one for so many rows."""
        for part in nodes([number]):
            index = part.index if isinstance(part, Load) else (part.value,) if isinstance(part, Index) else ()
            if isinstance(part, Local) or not all(map(self._is_one, index)):
                return None
        return self.bounds.setdefault(number, Symbol(f"bound{len(self.bounds)}", -(1 << 31), (1 << 31) - 1))

    def _is_one(self, index: Size) -> bool:
        """Whether an index is one number for all of the tile."""
        row, key, height = self.tiled.row.name, self.tiled.key.name, self.tiling.y_block
        for _, atom in linear_terms(index)[1]:
            if key in symbols(atom):
                return False
            if row in symbols(atom):
                if not isinstance(atom, FloorDiv) or not isinstance(atom.value, Symbol):
                    return False
                if not isinstance(atom.divisor, int) or atom.divisor % height:
                    return False
        return True

    def _places(self, dim: str, across: bool, block: str = "") -> str:
        """Numbers along a dimension, down or across a tile."""
        text = f"tl.arange(0, {block or dim.upper() + 'BLOCK'})"
        if self.index_type == "tl.int64":
            text += ".to(tl.int64)"
        return text + ("[None, :]" if across else "[:, None]")

    def _enter(self, dim: str, axis: Axis, text: str, is_whole: bool) -> None:
        """`text` is where a tile's elements lie along `axis`."""
        self.symbols[axis.name] = (text, frozenset(dim))
        self.masks.pop(dim, None)
        if not is_whole:
            self.masks[dim] = (self.name(f"{text} < {self._size(axis.extent)[0]}"), frozenset(dim))

    def _factor(self, load: Load, dims: tuple[str, str], shape: str) -> str:
        """A tile of a factor, 0 beyond its ends."""
        offset, varies = self._size(load.index[0])
        masks = [self.masks[dim][0] for dim in dims if dim in self.masks]
        if varies != set(dims):
            zeros = self.name(f"tl.full({shape}, 0, {self.index_type})")
            offset = f"{zeros} + ({offset})"
        mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
        name = self._fresh()
        self._line(f"{name} = tl.load({load.buffer} + ({offset}){mask})")
        return name

    def _stretches(self) -> list[Stretch]:
        """The keys that the tile needs, in blocks: those in the middle need no mask, those around them do."""
        item, size = self.tiled, self.tiling.x_block
        extent = item.key.extent
        start: Size = 0
        if self.needed.start is not None:
            start = mul(floordiv(maximum(self.needed.start, 0), size), size)
        end = extent if self.needed.end is None else minimum(maximum(self.needed.end, 0), extent)
        kept = kept_parts(self.every, self.tile) if self.every is not None else KeyRange()
        if kept is None:
            whole = isinstance(extent, int) and extent % size == 0
            return [Stretch(self._scalar(start), self._scalar(end), False, not whole)]
        middle = start
        if kept.start is not None:
            first = mul(floordiv(add(maximum(kept.start, 0), size - 1), size), size)
            middle = minimum(maximum(first, start), end)
        last = extent if kept.end is None else minimum(maximum(kept.end, 0), extent)
        if self.needed.end is not None:
            last = minimum(last, end)
        last = mul(floordiv(last, size), size)
        whole = isinstance(extent, int) and extent % size == 0
        found = []
        if kept.start is not None:
            found.append(Stretch(self._scalar(start), self._scalar(middle), False, not whole))
        texts = self._scalar(middle), self._scalar(last)
        if last != 0:
            found.append(Stretch(*texts, True, False))
            rest = texts[1] if middle == 0 else self.name(f"tl.maximum({texts[0]}, {texts[1]})")
        else:
            rest = texts[0]
        if not (whole and kept.end is None):
            found.append(Stretch(rest, self._scalar(end), False, not whole))
        return found

    def _keys(self, stretch: Stretch) -> None:
        """Writes what is done with the block of keys that begins at `start`."""
        raise NotImplementedError

    def _each_block_of_keys(self) -> None:
        """Writes the loops over blocks of keys, a loop for each stretch."""
        for stretch in self._stretches():
            self._line(f"for start in range({stretch.start}, {stretch.end}, XBLOCK):")
            indent, depth = self.indent, len(self.known)
            self.indent += "    "
            self.known.append({})
            self._keys(stretch)
            self.indent = indent
            del self.known[depth:]

    def _scalar(self, size: Size) -> str:
        text, _ = self._size(size)
        return text if text.isdigit() else self.name(text)

    def value(self, expr: Expr) -> Value:
        """As for all kernels, but coarser in scores that make weights of half types: there is no memory access to hide
        the work. Absolute errors of scores count, which are relative ones of their exponentials."""
        if not isinstance(expr, Compute) or expr.dtype != "float32":
            return super().value(expr)
        if expr.op == "cast" and isinstance(expr.args[0], Index) and self.index_type == "tl.int32":
            text, dims = self._position_value(expr.args[0].value)
            if dims:
                return self.name(f"({text}).to(tl.float32)"), dims  # conversions of 64 bits are slow
        if not self.is_coarse or expr.op not in ("tanh", "div", "exp", "sigmoid", "reciprocal"):
            return super().value(expr)
        values = [self.value(arg) for arg in expr.args]
        dims = NONE.union(*(varies for _, varies in values))
        if expr.op != "tanh":
            return COARSE[expr.op](self, "float32", *(text for text, _ in values)), dims
        power = self.name(f"{self.helper('two_to_the')}({self.name(f'{values[0][0]} * {2 * float(LOG2_E)!r}')})")
        more = self.name(f"{power} + 1.0")
        return self.name(f"1.0 - {self.name(f'2.0 / {more}')}"), dims

    def _shape(self, dims: tuple[str, ...]) -> str:
        sizes = [self.widths.get(dim, f"{dim.upper()}BLOCK") if dim in dims else "1" for dim in self.dims]
        return f"[{', '.join(sizes)}]"
