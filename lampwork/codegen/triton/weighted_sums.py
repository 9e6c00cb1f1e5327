"""`SumsWriter`: weighted sums as Triton text: tiles of rows that go through the keys once, products and all.

    q, dout = tiles of rows                                rows y, keys x
    for a block of keys:
      a0 = tl.dot(q, k^T);  a1 = tl.dot(dout, v^T)         the products of the tile
      a2 = a2 + tl.dot(f(a0, a1), k)                       for each sum
    g(a2) are stored

An exponential relative to a value of the row is one fused multiplication and one instruction; where it is 0 for the
whole row, the exponent is made so once.
"""

from __future__ import annotations

from lampwork.codegen.triton.expressions import HALF
from lampwork.codegen.triton.score_tiles import FLOAT32, LOG2_E, SMALLEST, ScoreTiles, Stretch, padded
from lampwork.codegen.triton.tiles import Form, Nest, Tiling, likely, power_of_two
from lampwork.codegen.triton.values import Value
from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Axis, Compute, Constant, Expr, Index, Kernel, Load, Local, children, nodes
from lampwork.ir.masked_keys import all_of, any_of, masks_in, nonzero_of, without_masks
from lampwork.ir.program import DeviceKernel
from lampwork.ir.size import Symbol, bounds, substitute, symbols
from lampwork.ir.target import Target
from lampwork.ir.weighted_sums import PRODUCTS, SUM, WeightedSums, read_sums

#: (rows, keys, warps, stages) by the widest row of a factor, for half types and for float32, of one sum and of two.
#: (H100, 16 heads of 4096 rows, bfloat16, causal, milliseconds of thirteen tiles: one sum 0.139 to 0.325 for rows of
#: 64, 0.277 to 0.639 for 128, two sums 0.175 to 0.340 and 0.315 to 1.318.)
TILES = (
    {
        2: {64: (64, 64, 4, 3), 128: (128, 64, 8, 3), 256: (64, 32, 8, 1)},
        4: {64: (64, 32, 4, 1), 128: (32, 32, 4, 1), 256: (16, 16, 4, 1)},
    },
    {
        2: {64: (64, 128, 4, 2), 128: (64, 64, 4, 2), 256: (64, 32, 8, 1)},
        4: {64: (64, 32, 4, 1), 128: (32, 32, 4, 1), 256: (16, 16, 4, 1)},
    },
)
#: What else is worth a measurement; the last for machines with little shared memory.
OTHERS = (
    (128, 64, 8, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 128, 8, 2), (128, 64, 4, 3), (64, 32, 4, 2),
    (32, 32, 4, 1), (16, 16, 1, 1),
)  # fmt: skip
#: Bytes of shared memory that are left to layouts being changed.
EXCHANGED = 8 << 10


def sum_tilings(kernel: Kernel, target: Target) -> tuple[Tiling, ...]:
    """The tiling of a kernel of weighted sums by rule, then others that are worth a measurement; none for others."""
    item = read_sums(kernel)
    if item is None:
        return ()
    inner = [padded(each.inner) for each in item.products]
    columns = [padded(each.column) for each in item.sums]
    width = max(64, *inner, *columns)
    types = [each.left.dtype for each in item.products] + [each.dtype for each in item.sums]
    item_bytes = max(ITEM_SIZE_BYTES[dtype] for dtype in types)
    if width > 256 or item_bytes > 4:
        raise CompileError("generate", f"kernel {kernel.name}: rows of {width} elements")
    found = []
    for y, x, warps, stages in (TILES[len(columns) > 1][item_bytes][width], *OTHERS):
        y = min(y, max(SMALLEST, power_of_two(likely(item.row.extent))))
        x = min(x, max(SMALLEST, power_of_two(likely(item.key.extent))))

        def occupied(stages: int, y: int = y, x: int = x) -> int:
            factors = item_bytes * (y + x * stages) * sum(inner)
            return factors + item_bytes * y * x * len(columns)

        while stages > 1 and occupied(stages) > target.l1_bytes - EXCHANGED:
            stages -= 1
        if occupied(stages) <= target.l1_bytes - EXCHANGED:
            found.append(Tiling(x, width, y, num_warps=min(warps, max(1, y * x // 256)), num_stages=stages))
    return tuple(dict.fromkeys(found))


class SumsWriter(ScoreTiles):
    """Tiles of rows y against blocks of keys x; d is an inner dimension, e that of a result."""

    def __init__(self, kernel: Kernel, target: Target, tiling: Tiling | None) -> None:
        item = read_sums(kernel)
        if item is None:
            raise CompileError("generate", f"kernel {kernel.name} is no weighted sum")
        weights = [each.weight for each in item.sums]
        nest = Nest((item.key,), tuple([Accumulate(SUM.name, weight) for weight in weights]))
        form = Form((*item.batch, item.row), (nest, *item.stores))
        nonzero = [nonzero_of(weight) for weight in weights]
        mask = any_of([each for each in nonzero if each is not None]) if None not in nonzero else None
        every = all_of(list(dict.fromkeys([each for weight in weights for each in masks_in(weight)])))
        super().__init__(kernel, target, form, tiling or sum_tilings(kernel, target)[0], item, mask, every)
        self.item: WeightedSums = item
        #: Tiles of left factors, and the numbers along x down and across.
        self.left: list[str] = []

    def write(self, aligned_inputs: bool) -> DeviceKernel:
        item, tiling = self.item, self.tiling
        grid = self._program()
        self._rows()
        for place, each in enumerate(item.sums):
            self._line(f"sum{place} = tl.zeros([YBLOCK, {padded(each.column)}], tl.float32)")
        self._each_block_of_keys()
        self._results()
        return self.finished(aligned_inputs, [("XBLOCK", tiling.x_block), ("YBLOCK", tiling.y_block)], grid)

    def _rows(self) -> None:
        """The left factors' rows, and what of the weights is one value for a row."""
        item = self.item
        rows = self.name(f"{self.symbols['first'][0]} + {self._places('y', across=False)}")
        full = isinstance(item.row.extent, int) and item.row.extent % self.tiling.y_block == 0
        self._enter("y", item.row, rows, full)
        for each in item.products:
            self._enter_whole("d", each.inner, across=True)
            self.dims = ("y", "d")
            self.left.append(self._factor(each.left, ("y", "d"), f"[YBLOCK, {padded(each.inner)}]"))
            self.masks.pop("d", None)
        self.dims = ("y", "x")
        for sum_ in item.sums:
            self._values_of_rows(self._rewritten(sum_.weight))

    def _enter_whole(self, dim: str, axis: Axis, across: bool) -> None:
        width = padded(axis)
        self.widths[dim] = str(width)
        self._enter(dim, axis, self.name(self._places(dim, across, str(width))), axis.extent == width)

    def _values_of_rows(self, expr: Expr) -> None:
        if isinstance(expr, Constant) or isinstance(expr, Local):
            return
        if not _varies(expr, self.item.key.name):
            self.value(expr)
            return
        for child in children(expr):
            self._values_of_rows(child)

    def _rewritten(self, weight: Expr) -> Expr:
        """`weight` with exponents of -inf for rows whose exponentials are all 0."""
        memo: dict[int, Expr] = {}

        def walk(part: Expr) -> Expr:
            if not isinstance(part, Compute):
                return part
            if id(part) not in memo:
                memo[id(part)] = make(part)
            return memo[id(part)]

        def make(part: Compute) -> Expr:
            if part.op == "where" and not any(isinstance(each, Local) for each in nodes([part.args[0]])):
                condition, value, power = part.args
                zero = isinstance(value, Constant) and value.value == 0
                relative = power.args[0] if zero and isinstance(power, Compute) and power.op == "exp" else None
                if isinstance(relative, Compute) and relative.op == "sub":
                    infinite = Constant(float("inf"), "float32")
                    reference = Compute("where", (condition, infinite, relative.args[1]), "float32")
                    difference = Compute("sub", (walk(relative.args[0]), reference), "float32")
                    return Compute("exp", (difference,), "float32")
            args = tuple(map(walk, part.args))
            same = all(one is other for one, other in zip(args, part.args))
            return part if same else Compute(part.op, args, part.dtype)

        return walk(weight)

    def _keys(self, stretch: Stretch) -> None:
        """One block of keys."""
        item = self.item
        down = self.name(f"start + {self._places('x', across=False)}")
        tiles: dict[tuple[object, ...], str] = {}

        def tile(load: Load, axis: Axis) -> str:
            """Rows of a right factor: one that is loaded is not loaded again."""
            at = substitute(load.index[0], {axis.name: Symbol("d", 0, bounds(axis.extent)[1])})
            key = load.buffer, at, axis.extent
            found = tiles.get(key)
            if found is None:
                self._enter("x", item.key, down, not stretch.tail)
                self._enter_whole("d", axis, across=True)
                self.dims = ("x", "d")
                found = tiles[key] = self._factor(load, ("x", "d"), f"[XBLOCK, {padded(axis)}]")
                self.masks.pop("d", None)
            return found

        for local, left, each in zip(PRODUCTS, self.left, item.products):
            right = tile(each.right, each.inner)
            precision = f', input_precision="{FLOAT32}"' if each.left.dtype == "float32" else ""
            name = self._fresh()
            self._line(f"{name} = tl.dot({left}, tl.trans({right}){precision})")
            self.locals[local.name] = (name, frozenset("yx"))
        factors = [tile(sum_.factor, sum_.column) for sum_ in item.sums]
        self._enter("x", item.key, self.name(f"start + {self._places('x', across=True)}"), not stretch.tail)
        weights = []
        for sum_ in item.sums:
            self.dims = ("y", "x")
            self.is_coarse = sum_.dtype != "float32"
            weight = self._rewritten(without_masks(sum_.weight, self.tile) if stretch.lean else sum_.weight)
            text = self._widen(self.value(weight), self.dims)
            self.is_coarse = False
            if stretch.tail:
                text = self.name(f"tl.where({self.masks['x'][0]}, {text}, 0.0)")
            if sum_.dtype != "float32":
                text = self.name(f"{text}.to({_TYPES[sum_.dtype]})")
            weights.append(text)
        for place, (sum_, rounded, factor) in enumerate(zip(item.sums, weights, factors)):
            if sum_.factor.dtype != sum_.dtype:
                factor = self.name(f"{factor}.to({_TYPES[sum_.dtype]})")
            precision = f', input_precision="{FLOAT32}"' if sum_.dtype == "float32" else ""
            self._line(f"sum{place} = tl.dot({rounded}, {factor}, sum{place}{precision})")
        self.masks.pop("x", None)

    def _results(self) -> None:
        for place, each in enumerate(self.item.sums):
            self._enter_whole("e", each.column, across=True)
            self.dims = ("y", "e")
            self.locals[SUM.name] = (f"sum{place}", frozenset("ye"))
            self.is_coarse = each.result.value.dtype in HALF
            self._store(each.result, ("y", "e"))
            self.masks.pop("e", None)

    def value(self, expr: Expr) -> Value:
        if self.is_coarse and isinstance(expr, Compute) and expr.op == "exp" and expr.dtype == "float32":
            relative = expr.args[0]
            if isinstance(relative, Compute) and relative.op == "sub":
                return self._power(*relative.args)
        return super().value(expr)

    def _power(self, score: Expr, reference: Expr) -> Value:
        """exp(score - reference)."""
        factor = float(LOG2_E)
        if isinstance(score, Compute) and score.op == "mul" and isinstance(score.args[1], Constant):
            factor *= float(score.args[1].value)
            score = score.args[0]
        text, dims = self.value(score)
        below, varies = self.value(reference)
        below = self.name(f"{below} * {LOG2_E}")
        exponent = self.name(f"tl.fma({text}, {factor!r}, -{below})")
        return self.name(f"{self.helper('two_to_the')}({exponent})"), dims | varies


def _varies(expr: Expr, name: str) -> bool:
    """Whether `expr` depends on a product, or on the index `name`."""
    if isinstance(expr, Local):
        return True
    if isinstance(expr, Index):
        return name in symbols(expr.value)
    if isinstance(expr, Load) and any(name in symbols(part) for part in expr.index):
        return True
    return any(_varies(child, name) for child in children(expr))


_TYPES = {"float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32"}
