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

from lampwork.codegen.triton.expressions import HALF, operation
from lampwork.codegen.triton.score_tiles import FLOAT32, LOG2_E, SMALLEST, ScoreTiles, Stretch, padded
from lampwork.codegen.triton.tiles import Form, Nest, Tiling, likely, power_of_two
from lampwork.errors import CompileError
from lampwork.ir.attention import MAXIMUM, SCORE, SUM, TOTAL, Attention, read_attention
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Kernel
from lampwork.ir.masked_keys import mask_of, unmasked
from lampwork.ir.program import DeviceKernel
from lampwork.ir.target import Target

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
    width = max(64, padded(item.inner), padded(item.column))
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


class AttentionWriter(ScoreTiles):
    """Tiles of rows y against blocks of keys x; d is the inner dimension, e that of the result."""

    def __init__(self, kernel: Kernel, target: Target, tiling: Tiling | None) -> None:
        item = read_attention(kernel)
        if item is None:
            raise CompileError("generate", f"kernel {kernel.name} is no attention")
        scores = Nest((item.key,), (Accumulate(MAXIMUM.name, item.score),))
        form = Form((*item.batch, item.row), (scores, *item.stores))
        mask = mask_of(item.score)
        super().__init__(kernel, target, form, tiling or attention_tilings(kernel, target)[0], item, mask, mask)
        self.item: Attention = item
        self.widths = {"d": str(padded(item.inner)), "e": str(padded(item.column))}

    def write(self, aligned_inputs: bool) -> DeviceKernel:
        item, tiling = self.item, self.tiling
        grid = self._program()
        self._first_rows()
        for local, start in ((MAXIMUM, '"-inf"'), (TOTAL, '"0"')):
            self._line(f"{local.name} = tl.full([YBLOCK], float({start}), tl.float32)")
        self._line(f"{SUM.name} = tl.zeros([YBLOCK, {padded(item.column)}], tl.float32)")
        self._each_block_of_keys()
        self._results()
        return self.finished(aligned_inputs, [("XBLOCK", tiling.x_block), ("YBLOCK", tiling.y_block)], grid)

    def _first_rows(self) -> None:
        item = self.item
        width = padded(item.inner)
        rows = self.name(f"{self.symbols['first'][0]} + {self._places('y', across=False)}")
        full = isinstance(item.row.extent, int) and item.row.extent % self.tiling.y_block == 0
        self._enter("y", item.row, rows, full)
        inner = self.name(self._places("d", True, str(width)))
        self._enter("d", item.inner, inner, item.inner.extent == width)
        self.dims = ("y", "d")
        self.query = self._factor(item.query, ("y", "d"), f"[YBLOCK, {width}]")

    def _keys(self, stretch: Stretch) -> None:
        """One block of keys."""
        item = self.item
        inner, column = padded(item.inner), padded(item.column)
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
        lean = unmasked(item.score, self.tile) if stretch.lean and self.mask is not None else item.score
        value = self._widen(self.value(lean), self.dims)
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
        column = padded(item.column)
        self._enter("e", item.column, self.name(self._places("e", True, str(column))), item.column.extent == column)
        for local in (MAXIMUM, TOTAL):
            self.locals[local.name] = (self.name(f"{local.name}[:, None]"), frozenset("y"))
        self.locals[SUM.name] = (SUM.name, frozenset("ye"))
        for store in item.rows:
            self._store(store, ("y",))
        self.is_coarse = item.result.value.dtype in HALF
        self._store(item.result, ("y", "e"))
