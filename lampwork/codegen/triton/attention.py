"""`AttentionWriter`: an attention kernel as Triton text: tiles of rows that go through the keys once.

    q = a tile of rows                                 rows y, keys x
    for a block of keys:
      t = f(tl.dot(q, k))                              scores of the tile
      new = max(a1, max(t));  scale = exp(a1 - new)    what was summed up is scaled by
      e = exp(t - new)
      a2 = a2 * scale + sum(e);  a3 = a3 * scale + tl.dot(e, v)
    g(a3, a1, a2) and the rows' statistics are stored

(Milakov and Gimelshein 2018; Dao 2023.) Exponents are taken relative to the maximum so far, or to 0 where that is
infinite. The product of the reference with log2(e) is rounded once and the same for all that is scaled by it, so that
an exponential is one fused multiplication and one instruction, and errors of a large reference cancel in quotients.

Keys that the mask excludes for all rows of a tile are not visited, and where it holds for all of them it is not
looked at (`masked_keys`).
"""

from __future__ import annotations

from lampwork.codegen.triton.expressions import COARSE, HALF, operation
from lampwork.codegen.triton.function import FunctionWriter
from lampwork.codegen.triton.tiles import Form, Nest, Tiling, likely, power_of_two
from lampwork.codegen.triton.values import NONE, Value
from lampwork.errors import CompileError
from lampwork.ir.attention import MAXIMUM, SCORE, SUM, TOTAL, Attention, read_attention
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Axis, Compute, Expr, Index, Kernel, Load
from lampwork.ir.masked_keys import Block, KeyRange, kept_parts, mask_of, needed_keys, unmasked
from lampwork.ir.program import DeviceKernel
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol, add, bounds, floordiv, maximum, minimum, mul, product
from lampwork.ir.target import Target

LOG2_E = "1.4426950408889634"
#: The least that the matrix units take.
SMALLEST = 16
#: How float32 is multiplied: as three products of TF32, of what that holds of a factor and what is left of it. (H100,
#: 16 heads of 2048 rows of 128, causal: 0.78 ms, 4.1 without matrix units.)
FLOAT32 = "tf32x3"
#: (rows, keys, warps, stages) by the widest row of a factor, for half types and for float32. (H100, 16 heads of 4096
#: rows, bfloat16, causal, milliseconds of seven tiles: 0.138 to 0.198 for rows of 64, 0.224 to 0.319 for 128, 0.472 to
#: 0.982 for 256.)
TILES = {
    2: {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (128, 64, 8, 2)},
    4: {64: (64, 64, 8, 2), 128: (32, 32, 4, 2), 256: (32, 16, 4, 2)},
}
#: The same where no key is masked, so that tiles of many rows waste nothing (0.170 against 0.184, 0.291 against 0.303).
UNMASKED = {2: {**TILES[2], 64: (128, 128, 4, 3), 128: (128, 64, 4, 2)}, 4: TILES[4]}
#: Bytes of shared memory that warps exchange statistics of rows through, at most.
EXCHANGED = 8 << 10
#: What else is worth a measurement; the last for machines with little shared memory.
OTHERS = (
    (128, 64, 4, 3), (128, 64, 8, 3), (128, 64, 4, 2), (128, 32, 4, 3), (64, 64, 4, 3), (64, 32, 4, 2), (32, 32, 4, 2),
    (16, 16, 1, 1),
)  # fmt: skip


def attention_tilings(kernel: Kernel, target: Target) -> tuple[Tiling, ...]:
    """The tiling of an attention kernel by rule, then others that are worth a measurement; none for other kernels."""
    item = read_attention(kernel)
    if item is None:
        return ()
    width = max(64, _padded(item.inner), _padded(item.column))
    item_bytes = max(ITEM_SIZE_BYTES[item.query.dtype], ITEM_SIZE_BYTES[item.weights])
    if width > 256 or item_bytes > 4:
        raise CompileError("generate", f"kernel {kernel.name}: rows of {width} elements")
    usual = (TILES if mask_of(item.score) is not None else UNMASKED)[item_bytes][width]
    found = []
    for y, x, warps, stages in (usual, *OTHERS):
        y = min(y, max(SMALLEST, power_of_two(likely(item.row.extent))))
        x = min(x, max(SMALLEST, power_of_two(likely(item.key.extent))))
        while stages > 1 and item_bytes * width * (y + 2 * x * stages) > target.l1_bytes - EXCHANGED:
            stages -= 1
        if item_bytes * width * (y + 2 * x * stages) <= target.l1_bytes - EXCHANGED:
            found.append(Tiling(x, width, y, num_warps=min(warps, max(1, y * max(x, width) // 512)), num_stages=stages))
    return tuple(dict.fromkeys(found))


def _padded(axis: Axis) -> int:
    return max(SMALLEST, power_of_two(bounds(axis.extent)[1]))


@record
class Stretch:
    """Blocks of keys from `start` on and before `end`; `tail`: some may lie beyond the last key."""

    start: str
    end: str
    score: Expr
    tail: bool


class AttentionWriter(FunctionWriter):
    """Tiles of rows y against blocks of keys x; d is the inner dimension, e that of the result."""

    def __init__(self, kernel: Kernel, target: Target, tiling: Tiling | None) -> None:
        item = read_attention(kernel)
        if item is None:
            raise CompileError("generate", f"kernel {kernel.name} is no attention")
        scores = Nest((item.key,), (Accumulate(MAXIMUM.name, item.score),))
        form = Form((*item.batch, item.row), (scores, *item.stores))
        super().__init__(kernel, target, form, tiling or attention_tilings(kernel, target)[0])
        self.item: Attention = item
        #: Whether what is written now are scores that need not be exact.
        self.is_coarse = False

    def write(self, aligned_inputs: bool) -> DeviceKernel:
        item, tiling = self.item, self.tiling
        grid = self._program()
        self._first_rows()
        for local, start in ((MAXIMUM, '"-inf"'), (TOTAL, '"0"')):
            self._line(f"{local.name} = tl.full([YBLOCK], float({start}), tl.float32)")
        self._line(f"{SUM.name} = tl.zeros([YBLOCK, {_padded(item.column)}], tl.float32)")
        for stretch in self._stretches():
            self._line(f"for start in range({stretch.start}, {stretch.end}, XBLOCK):")
            indent, depth = self.indent, len(self.known)
            self.indent += "    "
            self.known.append({})
            self._keys(stretch)
            self.indent = indent
            del self.known[depth:]
        self._results()
        return self.finished(aligned_inputs, [("XBLOCK", tiling.x_block), ("YBLOCK", tiling.y_block)], grid)

    def _program(self) -> Size:
        """The program's batch and block of rows. Where later rows have more keys, they begin first."""
        item, tiling = self.item, self.tiling
        blocks = floordiv(add(item.row.extent, tiling.y_block - 1), tiling.y_block)
        program = self.name("tl.program_id(0)" + (".to(tl.int64)" if self.index_type == "tl.int64" else ""))
        count = self._divisor(blocks)
        place = f"{program} % {count}"
        self.first = Symbol("first", 0, max(bounds(item.row.extent)[1] - 1, 0))
        self.last = add(self.first, tiling.y_block - 1)
        self.tile = Block(item.row.name, item.key.name, self.first, self.last)
        self.mask = mask_of(item.score)
        self.needed = needed_keys(self.mask, self.tile) if self.mask is not None else KeyRange()
        if self.needed.end is not None:
            place = f"{count} - 1 - {self.name(place)}"
        place = self.name(place)
        self.symbols["first"] = (self.name(f"{place} * YBLOCK"), NONE)
        self._split(self.name(f"{program} // {count}"), NONE, list(item.batch))
        return product([blocks, *(axis.extent for axis in item.batch)])

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

    def _first_rows(self) -> None:
        item = self.item
        width = _padded(item.inner)
        rows = self.name(f"{self.symbols['first'][0]} + {self._places('y', across=False)}")
        full = isinstance(item.row.extent, int) and item.row.extent % self.tiling.y_block == 0
        self._enter("y", item.row, rows, full)
        inner = self.name(self._places("d", True, str(width)))
        self._enter("d", item.inner, inner, item.inner.extent == width)
        self.dims = ("y", "d")
        self.query = self._factor(item.query, ("y", "d"), f"[YBLOCK, {width}]")

    def _stretches(self) -> list[Stretch]:
        """The keys that the tile needs, in blocks: those in the middle need no mask, those around them do."""
        item, size = self.item, self.tiling.x_block
        extent = item.key.extent
        start: Size = 0
        if self.needed.start is not None:
            start = mul(floordiv(maximum(self.needed.start, 0), size), size)
        end = extent if self.needed.end is None else minimum(maximum(self.needed.end, 0), extent)
        kept = kept_parts(self.mask, self.tile) if self.mask is not None else KeyRange()
        if kept is None:
            whole = isinstance(extent, int) and extent % size == 0
            return [Stretch(self._scalar(start), self._scalar(end), item.score, not whole)]
        lean = unmasked(item.score, self.tile) if self.mask is not None else item.score
        middle = start
        if kept.start is not None:
            first = mul(floordiv(add(maximum(kept.start, 0), size - 1), size), size)
            middle = minimum(maximum(first, start), end)
        last = extent if kept.end is None else minimum(maximum(kept.end, 0), extent)
        last = mul(floordiv(last, size), size)
        whole = isinstance(extent, int) and extent % size == 0
        found = []
        if kept.start is not None:
            found.append(Stretch(self._scalar(start), self._scalar(middle), item.score, not whole))
        texts = self._scalar(middle), self._scalar(last)
        if last != 0:
            found.append(Stretch(*texts, lean, False))
            rest = texts[1] if middle == 0 else self.name(f"tl.maximum({texts[0]}, {texts[1]})")
        else:
            rest = texts[0]
        if not (whole and kept.end is None):
            found.append(Stretch(rest, self._scalar(end), item.score, not whole))
        return found

    def _scalar(self, size: Size) -> str:
        text, _ = self._size(size)
        return text if text.isdigit() else self.name(text)

    def _keys(self, stretch: Stretch) -> None:
        """One block of keys."""
        item = self.item
        inner, column = _padded(item.inner), _padded(item.column)
        rows = self.symbols[item.row.name], self.masks.get("y")
        # keys^T: d down, x across
        keys = self.name(f"start + {self._places('x', across=True)}")
        self._enter("x", item.key, keys, not stretch.tail)
        self._enter("d", item.inner, self.name(self._places("d", False, str(inner))), item.inner.extent == inner)
        self.dims = ("d", "x")
        factor = self._factor(item.keys, ("d", "x"), f"[{inner}, XBLOCK]")
        precision = f', input_precision="{FLOAT32}"' if item.query.dtype == "float32" else ""
        score = self._fresh()
        self._line(f"{score} = tl.dot({self.query}, {factor}{precision})")
        # scores: y down, x across
        self.dims = ("y", "x")
        self.masks.pop("d", None)
        self.locals[SCORE.name] = (score, frozenset("yx"))
        self.is_coarse = item.weights != "float32"
        value = self._widen(self.value(stretch.score), self.dims)
        self.is_coarse = False
        if stretch.tail:
            value = self.name(f'tl.where({self.masks["x"][0]}, {value}, float("-inf"))')
        top = self.name(f"tl.reduce({value}, 1, {self._helper('max')})")
        new = operation(self, "maximum", "float32", "float32", (MAXIMUM.name, top))
        infinite = self.name(f'tl.abs({new}) == float("inf")')
        reference = self.name(f"tl.where({infinite}, 0.0, {new}) * {LOG2_E}")
        power = self.helper("two_to_the")
        scale = self.name(f"{power}({self.name(f'{MAXIMUM.name} * {LOG2_E}')} - {reference})")
        exponent = self.name(f"tl.fma({value}, {LOG2_E}, -{reference}[:, None])")
        weights = self.name(f"{power}({exponent})")
        self._line(f"{TOTAL.name} = {TOTAL.name} * {scale} + tl.sum({weights}, 1)")
        # values: x down, e across
        keys = self.name(f"start + {self._places('x', across=False)}")
        self._enter("x", item.key, keys, not stretch.tail)
        self._enter("e", item.column, self.name(self._places("e", True, str(column))), item.column.extent == column)
        self.dims = ("x", "e")
        values = self._factor(item.values, ("x", "e"), f"[XBLOCK, {column}]")
        dtype = {"float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32"}[item.weights]
        if item.weights != "float32":
            weights = self.name(f"{weights}.to({dtype})")
        elif item.values.dtype != "float32":
            values = self.name(f"{values}.to({dtype})")
        precision = f', input_precision="{FLOAT32}"' if item.weights == "float32" else ""
        scaled = self.name(f"{SUM.name} * {scale}[:, None]")
        self._line(f"{SUM.name} = tl.dot({weights}, {values}, {scaled}{precision})")
        self._line(f"{MAXIMUM.name} = {new}")
        self.symbols[item.row.name] = rows[0]
        for dim in "xe":
            self.masks.pop(dim, None)

    def _results(self) -> None:
        item = self.item
        self.dims = ("y", "e")
        column = _padded(item.column)
        self._enter("e", item.column, self.name(self._places("e", True, str(column))), item.column.extent == column)
        for local in (MAXIMUM, TOTAL):
            self.locals[local.name] = (self.name(f"{local.name}[:, None]"), frozenset("y"))
        self.locals[SUM.name] = (SUM.name, frozenset("ye"))
        for store in item.rows:
            self._store(store, ("y",))
        self.is_coarse = item.result.value.dtype in HALF
        self._store(item.result, ("y", "e"))

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
        widths = {"d": str(_padded(self.item.inner)), "e": str(_padded(self.item.column))}
        sizes = [widths.get(dim, f"{dim.upper()}BLOCK") if dim in dims else "1" for dim in self.dims]
        return f"[{', '.join(sizes)}]"
