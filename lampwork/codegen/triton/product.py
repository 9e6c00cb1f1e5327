"""Kernels that compute a matrix product, on the GPU's matrix units.

    parallel i0 in 8192, i1 in 3072:              y = ... * YBLOCK + tl.arange(0, YBLOCK)[:, None]
      accumulator a0 sum f32                      x = ... * XBLOCK + tl.arange(0, XBLOCK)[None, :]
      vector i2 in 768:                    ->     for start in range(0, 768, RBLOCK):
        a0 += b0[768*i0 + i2] * b1[768*i1 + i2]       a0 = tl.dot(tl.load(p0), tl.load(p1), a0)
      b2[3072*i0 + i1] = gelu(a0)                     p0 += RBLOCK ...
                                                  tl.store(b2 + (3072 * y + x), gelu of a0)

A product is a form of kernel (`read_product`), not a kernel of its own: what follows the loop is written as in all
kernels. Outer loops that only the left factor sees are rows, those that only the right one sees are columns, those
that both see are products side by side. Sums are float32; factors of half types are multiplied exactly, float32 ones
as float32. (TF32 is left to the vendor's kernels: Triton cuts factors off where these round them, and the error of
8192x768x3072 was 2.4 times as large.)

Non-goals: sizes that are not numbers, factors that are computed, inner dimensions cut between programs.
"""

from __future__ import annotations

from lampwork.codegen.triton.expressions import COARSE, HALF, cast
from lampwork.codegen.triton.function import FunctionWriter
from lampwork.codegen.triton.tiles import Form, Nest, Tiling, power_of_two, read_form
from lampwork.codegen.triton.values import NONE, Value
from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Accumulator, Axis, Compute, Expr, Kernel, Let, Load, Local
from lampwork.ir.record import record
from lampwork.ir.size import Size, coefficient, product, substitute
from lampwork.ir.target import Target

#: (rows, columns, inner elements of half types, warps, stages): what is worth a measurement on sm_80 and sm_90.
TILES = (
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (128, 128, 64, 4, 3),
    (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 32, 4, 5), (64, 256, 64, 4, 4),
    (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 5), (64, 64, 128, 4, 3), (32, 128, 64, 4, 4),
    (32, 64, 128, 4, 4), (16, 128, 128, 4, 4), (16, 64, 128, 4, 5), (16, 32, 128, 2, 5),
)  # fmt: skip
#: How many of them are compiled and measured, and tiles of rows that neighbouring programs share columns of.
MOST_TILINGS, GROUP = 8, 8
#: Sums that a thread has registers for.
MOST_SUMS = 128


@record
class Dot:
    """One sum of products: what the accumulator `name` folds."""

    name: str
    left: Load
    right: Load


@record
class ProductForm:
    """The outer loops of a product by what they run over, the inner loop, and the sums that are made in it."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: Axis
    dots: tuple[Dot, ...]


def read_product(form: Form) -> ProductForm | None:
    """`form` as a matrix product; None where it is none, or a size is not a number."""
    if len(form.nests) != 1 or len(form.nests[0].axes) != 1:
        return None
    (nest,) = form.nests
    (inner,) = nest.axes
    if not all(isinstance(axis.extent, int) for axis in (*form.outer, inner)):
        return None
    accumulators = {stmt.name: stmt for stmt in form.row if isinstance(stmt, Accumulator)}
    named = {stmt.name: stmt.value for stmt in nest.body if isinstance(stmt, Let)}
    dots = []
    for stmt in nest.body:
        if isinstance(stmt, Accumulate):
            accumulator = accumulators[stmt.name]
            dot = _dot(stmt, named) if (accumulator.op, accumulator.dtype) == ("sum", "float32") else None
            if dot is None:
                return None
            dots.append(dot)
        elif not isinstance(stmt, Let):
            return None
    sides = [_side(axis, inner, dots) for axis in form.outer]
    if not dots or None in sides or not {"rows", "columns"} & set(sides):
        return None
    by_side: dict[str, list[Axis]] = {"batch": [], "rows": [], "columns": []}
    for axis, side in zip(form.outer, sides):
        by_side[side or ""].append(axis)

    def ordered(side: str, offset: Size) -> tuple[Axis, ...]:
        """Outermost in memory first: then rows of a factor are mostly one run."""
        return tuple(sorted(by_side[side], key=lambda axis: -_number(coefficient(offset, axis.name))))

    left, right = dots[0].left.index[0], dots[0].right.index[0]
    return ProductForm(tuple(by_side["batch"]), ordered("rows", left), ordered("columns", right), inner, tuple(dots))


def _dot(stmt: Accumulate, named: dict[str, Expr]) -> Dot | None:
    value = _resolved(stmt.value, named)
    if not isinstance(value, Compute) or value.op != "mul" or value.dtype != "float32":
        return None
    left, right = (_factor(arg, named) for arg in value.args)
    if left is None or right is None or left.dtype != right.dtype:
        return None
    return Dot(stmt.name, left, right)


def _resolved(value: Expr, named: dict[str, Expr]) -> Expr:
    while isinstance(value, Local) and value.name in named:
        value = named[value.name]
    return value


def _factor(value: Expr, named: dict[str, Expr]) -> Load | None:
    value = _resolved(value, named)
    if isinstance(value, Compute) and value.op == "cast" and value.dtype == "float32":
        value = _resolved(value.args[0], named)
        if value.dtype not in ("float16", "bfloat16"):
            return None
    if not isinstance(value, Load) or value.mask is not None or value.indirect:
        return None
    return value if value.dtype in ("float16", "bfloat16", "float32") else None


def _side(axis: Axis, inner: Axis, dots: list[Dot]) -> str | None:
    """What an outer loop runs over, the same for all sums; None: neither factor has a stride along it."""
    found = set()
    for dot in dots:
        strides = [coefficient(load.index[0], axis.name) for load in (dot.left, dot.right)]
        inners = [coefficient(load.index[0], inner.name) for load in (dot.left, dot.right)]
        if not all(isinstance(stride, int) for stride in (*strides, *inners)) or 0 in inners:
            return None
        found.add((strides[0] != 0, strides[1] != 0))
    sides = {(True, False): "rows", (False, True): "columns", (True, True): "batch"}
    return sides.get(found.pop()) if len(found) == 1 else None


def _number(size: Size | None) -> int:
    assert isinstance(size, int)  # see _side
    return size


def product_tilings(kernel: Kernel, target: Target) -> tuple[Tiling, ...]:
    """Tilings of a product that are worth a measurement, those first that leave the machine least idle; none for other
    kernels."""
    found = read_product(read_form(kernel))
    if found is None:
        return ()
    rows, columns = (_number(product(axis.extent for axis in axes)) for axes in (found.rows, found.columns))
    batch, inner = _number(product(axis.extent for axis in found.batch)), _number(found.inner.extent)
    item_bytes = ITEM_SIZE_BYTES[found.dots[0].left.dtype]
    ranked: list[tuple[float, int, Tiling]] = []
    down, across = (len({(dot.left, dot.right)[side] for dot in found.dots}) for side in (0, 1))
    for place, (y, x, k, warps, stages) in enumerate(TILES):
        k = min(2 * k // item_bytes, max(power_of_two(inner), 16))
        shared_bytes = stages * k * item_bytes * (y * down + x * across)
        if shared_bytes > target.l1_bytes or y * x * len(found.dots) > MOST_SUMS * 32 * warps:
            continue
        if y > max(power_of_two(rows), 16) or x > max(power_of_two(columns), 16):
            continue
        tiles = batch * -(-rows // y) * -(-columns // x)
        # A wave takes as long as one tile: its arithmetic and the loads of its edges, of which large tiles have less.
        wave = max(y, 64) * x * len(found.dots) + 48 * (y * down + x * across)
        waves = -(-tiles // target.threads) if tiles < 4 * target.threads else tiles / target.threads
        ranked.append((waves * wave, place, Tiling(x, k, y, num_warps=warps, num_stages=stages, group=GROUP)))
    ranked.sort(key=lambda each: each[:2])
    return tuple(dict.fromkeys(tiling for _, _, tiling in ranked[:MOST_TILINGS]))


class ProductWriter(FunctionWriter):
    """A product: tiles of rows y and columns x. Raises `CompileError` for a kernel that is none."""

    def __init__(self, kernel: Kernel, target: Target, form: Form, tiling: Tiling) -> None:
        super().__init__(kernel, target, form, tiling)
        found = read_product(form)
        if found is None:
            raise CompileError("generate", f"kernel {kernel.name} is no matrix product")
        self.product = found
        #: Whether the value that is written now is rounded to a half type.
        self.is_coarse = False
        self.extents = {
            "y": product(axis.extent for axis in found.rows),
            "x": product(axis.extent for axis in found.columns),
        }

    def _outer(self) -> Size:
        found, tiling = self.product, self.tiling
        self.dims = ("y", "x")
        down, across = (
            -(-_number(self.extents[dim]) // block) for dim, block in (("y", tiling.y_block), ("x", tiling.x_block))
        )
        program = self.name("tl.program_id(0)" + (".to(tl.int64)" if self.index_type == "tl.int64" else ""))
        if found.batch:
            self._split(self.name(f"{program} // {down * across}"), NONE, list(found.batch))
            program = self.name(f"{program} % {down * across}")
        self._tile(*self._place(program, down, across))
        return product([down, across, *(axis.extent for axis in found.batch)])

    def _place(self, program: str, down: int, across: int) -> tuple[str, str]:
        """The numbers of a program's tile: down the rows of a group, then to the next column, so that programs which
        run at a time share what they load."""
        group = min(self.tiling.group, down)
        if across == 1:
            return program, "0"
        if group == 1:
            return self.name(f"{program} // {across}"), self.name(f"{program} % {across}")
        first = self.name(f"{program} // {group * across} * {group}")
        height = self.name(f"tl.minimum({down} - {first}, {group})") if down % group else str(group)
        inside = self.name(f"{program} % {group * across}")
        return self.name(f"{first} + {inside} % {height}"), self.name(f"{inside} // {height}")

    def _tile(self, down: str, across: str) -> None:
        axes = {"y": self.product.rows, "x": self.product.columns}
        for dim, place, block in (("y", down, self.tiling.y_block), ("x", across, self.tiling.x_block)):
            size = f"{dim.upper()}BLOCK"
            self._line(f"{dim} = {place} * {size} + {self._range(size, dim)}")
            self._bound(dim, dim, self.extents[dim], block)
            self._split(dim, frozenset(dim), list(axes[dim]))

    def _nest(self, nest: Nest) -> None:
        inner = _number(self.product.inner.extent)
        overhangs = inner % self.tiling.r_block != 0
        factors: dict[tuple[Load, str], str] = {}
        for dot in self.product.dots:
            for load, dim in ((dot.left, "y"), (dot.right, "x")):
                factors.setdefault((load, dim), f"p{len(factors)}")
        for (load, dim), pointer in factors.items():
            self._line(f"{pointer} = {load.buffer} + ({self._first_offsets(load, dim)})")
        for dot in self.product.dots:
            self._line(f"{dot.name} = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
        self._line(f"for start in range(0, {inner}, RBLOCK):")
        self.indent += "    "
        for (load, dim), pointer in factors.items():
            masks = [f"{self._inner(dim)} < {inner} - start"] if overhangs else []
            masks += [self.masks[dim][0]] if dim in self.masks and not self._clamps(load) else []
            mask = f", mask={' & '.join(f'({each})' for each in masks)}, other=0.0" if masks else ""
            self._line(f"{pointer}_now = tl.load({pointer}{mask})")
        for dot in self.product.dots:
            left, right = factors[dot.left, "y"], factors[dot.right, "x"]
            precision = ', input_precision="ieee"' if dot.left.dtype == "float32" else ""
            self._line(f"{dot.name} = tl.dot({left}_now, {right}_now, {dot.name}{precision})")
        for (load, _), pointer in factors.items():
            self._line(f"{pointer} += {_product_text('RBLOCK', self._inner_stride(load))}")
        self.indent = self.indent[:-4]
        for dot in self.product.dots:
            value = cast(self, dot.name, "float32", self._dtype(dot.name))
            self.locals[dot.name] = (value, frozenset(("y", "x")))

    def value(self, expr: Expr) -> Value:
        """As for all kernels, but coarser where a half type is made of the value: no memory access hides the work here,
        and a tile's other work waits for it. (8192x768x3072 with gelu by tanh on an H100: 0.20 ms with a division that
        branches, 0.096 without.)"""
        if not isinstance(expr, Compute):
            return super().value(expr)
        if self.is_coarse and expr.op in COARSE and expr.dtype == "float32":
            values = [self.value(arg) for arg in expr.args]
            text = COARSE[expr.op](self, "float32", *(text for text, _ in values))
            return text, NONE.union(*(dims for _, dims in values))
        before = self.is_coarse
        if expr.op == "cast":
            self.is_coarse = expr.dtype in HALF and expr.args[0].dtype == "float32"
        try:
            return super().value(expr)
        finally:
            self.is_coarse = before

    def _dtype(self, name: str) -> str:
        return next(stmt.dtype for stmt in self.form.row if isinstance(stmt, Accumulator) and stmt.name == name)

    def _inner(self, dim: str) -> str:
        """Places along the inner dimension of a factor, across its rows (of dimension y) or columns."""
        text = "tl.arange(0, RBLOCK)" + (".to(tl.int64)" if self.index_type == "tl.int64" else "")
        return text + ("[None, :]" if dim == "y" else "[:, None]")

    def _inner_stride(self, load: Load) -> int:
        return _number(coefficient(load.index[0], self.product.inner.name))

    def _clamps(self, load: Load) -> bool:
        """Whether rows past the end are the last row again, which no loop has to ask for. Where rows lie side by side
        that would break up accesses: they are masked."""
        return self._inner_stride(load) == 1

    def _first_offsets(self, load: Load, dim: str) -> str:
        """Offsets of a factor's first tile."""
        offset = load.index[0]
        axes = self.product.rows if dim == "y" else self.product.columns
        own = {axis.name: 0 for axis in (*axes, self.product.inner)}
        parts = [self._size(substitute(offset, own))[0]]
        place, saved = dim, dict(self.symbols)
        if dim in self.masks and self._clamps(load):
            place = self.name(f"tl.minimum({dim}, {_number(self.extents[dim]) - 1})")
        strides = [_number(coefficient(offset, axis.name)) for axis in axes] or [0]
        runs = zip(strides, strides[1:], axes[1:])
        if all(outer == stride * _number(axis.extent) for outer, stride, axis in runs):
            parts.append(_product_text(place, strides[-1]))
        else:
            self._split(place, frozenset(dim), list(axes))
            parts += [_product_text(self.symbols[axis.name][0], stride) for axis, stride in zip(axes, strides)]
        self.symbols = saved
        parts.append(_product_text(self._inner(dim), self._inner_stride(load)))
        return " + ".join(part for part in parts if part != "0")


def _product_text(text: str, factor: int) -> str:
    return text if factor == 1 else f"{factor} * {text}"
