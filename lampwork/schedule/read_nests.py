"""`NestReader`: what nests make of products, as expressions of the products' elements.

    s = bmm(q, k^T);  t = s * 2;  u = where(i >= j, t, -inf)        u[b, i, j]  ->  where(i >= j, SCORE * 2, -inf)

From an element backwards, pointwise nests are put in place of what they made. Which products end that, and what a fold
over them is, say those who read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lampwork.ir.loops import Axis, Buffer, Compute, Constant, Expr, Load, Local, LoopNest, children, nodes
from lampwork.ir.program import Lowered, TensorRef
from lampwork.ir.size import Size, add, floordiv, linear_terms, mod, mul, product, symbols
from lampwork.schedule.expressions import EXPENSIVE, Pool, operation_cost, rewriter, view_index
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.inline import axis_values, stores_every_element

HALF = ("float16", "bfloat16")


#: Operations of a score, each as often as it is read: an expression in a kernel is a tree.
LONGEST_SCORE = 1024


class NotAttention(Exception):
    """Why two products with a fold between them stay what they are."""


class FoldedScores(NotAttention):
    """What is read folds the products: that is for others to look at."""


class NestReader:
    """The nests between products. `dependent`: buffers that are made of the products by nests."""

    def __init__(
        self, lowered: Lowered, makers: Mapping[str, list[int]], dependent: frozenset[str], axes: Sequence[Axis]
    ) -> None:
        self.lowered, self.buffers, self.makers, self.dependent = lowered, lowered.buffers, makers, dependent
        self.pool = Pool()
        self.symbols = {axis.name: loop_symbol(axis.name, axis.extent) for axis in axes}
        self.memo: dict[tuple, Expr] = {}

    def check_scores(self, scores: Iterable[Expr], parts: Iterable[Expr], read: Iterable[str]) -> None:
        """Raises `NotAttention` for what a kernel that has no scores in memory could not compute. `parts`: all
        expressions of the kernel; `read`: the buffers that it reads."""
        if any(written_size(score) > LONGEST_SCORE for score in scores):
            raise NotAttention("a score is a long computation")
        if any(type(part) is Compute and part.op == "random" for part in parts):
            raise NotAttention("random numbers are drawn for each score")
        if not self.dependent.isdisjoint(read):
            raise NotAttention("the scores are read in another order, or folded in other ways")
        if any(self.buffers[name].device for name in read):
            raise NotAttention("memory of another device is read")

    def index(self, *axes: Axis) -> tuple[Size, ...]:
        return tuple([self.symbols.get(axis.name, 0) for axis in axes])

    def product(self, name: str, index: tuple[Size, ...]) -> Expr | None:
        """What stands for an element of a product; None for other buffers."""
        raise NotImplementedError

    def folded(self, nest: LoopNest, index: tuple[Size, ...]) -> Expr:
        """An element that a nest folds out of what is made of the products."""
        raise FoldedScores("the scores are folded")

    # Values ----------------------------------------

    def viewed(self, ref: TensorRef, index: tuple[Size, ...]) -> Expr:
        """The element of a view."""
        buffer = self.buffers[ref.buffer]
        if ref.dtype != buffer.dtype:
            raise NotAttention("a factor is memory of another type")
        return self.value(ref.buffer, element(buffer, ref, index), ref.dtype)

    def value(self, name: str, index: tuple[Size, ...], dtype: str) -> Expr:
        """The element of a buffer, by what made it."""
        index = tuple(map(joined, index))
        product = self.product(name, index)
        if product is not None:
            return self.pool.compute("cast", (product,), dtype)
        key = (name, index)
        found = self.memo.get(key)
        if found is None:
            nest = self.maker(name)
            if nest is None:
                if name in self.dependent:
                    raise NotAttention("the scores are read in another way than element by element")
                found = self.pool.load(name, index, dtype)
            elif nest.reduction is not None:
                found = self.folded(nest, index)
            elif name in self.dependent or self.is_computed(nest, index):
                found = self.inlined(nest, index, {})
            else:
                found = self.pool.load(name, index, dtype)
            self.memo[key] = found
        return found

    def maker(self, name: str) -> LoopNest | None:
        """The one nest that makes all of a buffer, if its elements can be computed from an index."""
        numbers = self.makers.get(name, [])
        item = self.lowered.items[numbers[0]] if len(numbers) == 1 else None
        if not isinstance(item, LoopNest) or item.partial or item.store.mode != "write" or item.store.indirect:
            return None
        if self.buffers[name].kind != "intermediate" or not stores_every_element(item):
            return None
        return item if item.reduction is None or name in self.dependent else None

    def is_computed(self, nest: LoopNest, index: tuple[Size, ...]) -> bool:
        """Whether to compute what does not depend on the scores in the kernel: what would be as large as they are (a
        mask, a bias that is made of positions), and what costs hardly anything."""
        if any(type(part) is Compute and part.op == "random" for part in nest.parts):
            return False
        cost = sum(operation_cost(part) for part in nest.parts)
        used = frozenset().union(*(symbols(part) for part in index))
        return cost <= 2 or ({"i", "j"} <= used and cost <= 2 * EXPENSIVE)

    def inlined(self, nest: LoopNest, index: tuple[Size, ...], more: Mapping[str, Size]) -> Expr:
        pool = self.pool

        def on_load(load: Load, place: tuple[Size, ...], indirect: tuple, mask: Expr | None) -> Expr:
            if indirect:
                if load.buffer in self.dependent:
                    raise NotAttention("scores are gathered")
                return pool.load(load.buffer, place, load.dtype, indirect, mask, load.other)
            if mask is not None and load.buffer not in self.dependent:
                return pool.load(load.buffer, place, load.dtype, indirect, mask, load.other)
            value = self.value(load.buffer, place, load.dtype)
            if mask is None:
                return value
            return pool.compute("where", (mask, value, pool.constant(load.other, load.dtype)), load.dtype)

        return rewriter(pool, {**axis_values(nest, index), **more}, on_load)(nest.store.value)

    def pooled(self, expr: Expr) -> Expr:
        if type(expr) is Local:
            return self.pool.local(expr.name, expr.dtype)
        return expr

    def widened(self, value: Expr) -> Expr:
        """`value` without roundings to half types."""
        memo: dict[int, Expr] = {}
        pool = self.pool

        def walk(part: Expr) -> Expr:
            found = memo.get(id(part))
            if found is None:
                found = memo[id(part)] = make(part)
            return found

        def make(part: Expr) -> Expr:
            if type(part) is Local:
                return self.pooled(part)
            if part.dtype in HALF:
                if type(part) is Constant:
                    return pool.constant(part.value, "float32")
                if type(part) is Load:
                    return pool.compute("cast", (part,), "float32")
                if type(part) is Compute and part.op == "cast" and part.args[0].dtype == "float32":
                    return walk(part.args[0])
                if type(part) is Compute and part.op == "where":
                    return pool.compute("where", tuple(map(walk, part.args)), "float32")
                return pool.compute("cast", (part,), "float32")
            if type(part) is not Compute:
                return part
            if part.op == "cast" and part.dtype == "float32" and part.args[0].dtype in HALF:
                return walk(part.args[0])
            return pool.compute(part.op, tuple([plain(arg) for arg in part.args]), part.dtype)

        def plain(part: Expr) -> Expr:
            """An operand whose type the operation needs as it is."""
            return part if part.dtype in HALF else walk(part)

        return walk(value)

    # Factors ----------------------------------------

    def factor(self, ref: Any, axes: tuple[Axis, ...]) -> tuple[Load, float]:
        """A factor as a load and a constant to multiply with."""
        if not isinstance(ref, TensorRef) or ref.dtype != self.buffers[ref.buffer].dtype:
            raise NotAttention("a factor is memory of another type")
        if ref.shape != tuple([axis.extent for axis in axes]):
            raise NotAttention("the products have other sizes")
        buffer, index = self.buffers[ref.buffer], self.index(*axes)
        return self.simple(Load(ref.buffer, element(buffer, ref, index), ref.dtype), 1.0)

    def simple(self, load: Load, scale: float) -> tuple[Load, float]:
        """`load` through nests that copy, convert to a wider type, or multiply with a number."""
        nest = self.maker(load.buffer)
        if nest is None or nest.reduction is not None:
            return load, scale
        found: list[Load] = []

        def on_load(inner: Load, index: tuple[Size, ...], indirect: tuple, mask: Expr | None) -> Expr:
            if indirect or mask is not None:
                found.clear()
                return self.pool.constant(0.0, "float64")
            index = tuple(map(joined, index))
            found.append(Load(inner.buffer, index, inner.dtype))
            return found[-1]

        value = rewriter(self.pool, axis_values(nest, load.index), on_load)(nest.store.value)
        while type(value) is Compute:
            if value.op == "cast" and value.dtype == "float32" and value.args[0].dtype in HALF:
                value = value.args[0]
            elif value.op == "mul" and value.dtype == "float32" and type(value.args[1]) is Constant:
                number = float(value.args[1].value)
                if number != number or abs(number) in (0.0, float("inf")):
                    return load, scale
                scale, value = scale * number, value.args[0]
            else:
                return load, scale
        if type(value) is not Load or value not in found or value.dtype not in (*HALF, "float32"):
            return load, scale
        inner, factor = self.simple(value, 1.0)
        return inner, scale * factor


def element(buffer: Buffer, view: TensorRef, index: tuple[Size, ...]) -> tuple[Size, ...]:
    """The element of `buffer`, by its own dimensions, that element `index` of a view denotes. Of any strides where they
    are numbers; of unknown sizes where the view's last two dimensions are the buffer's, and its first one is all
    others. Raises `NotAttention` for other views."""
    found = _by_dimensions(buffer, view, index) or _unflattened(buffer, view, index)
    if found is not None:
        return found
    sizes = (*view.shape, *view.strides, view.offset)
    shape = [extent for extent in buffer.shape if isinstance(extent, int)]
    strides = [stride for stride in buffer.strides if isinstance(stride, int)]
    if not all(isinstance(size, int) for size in sizes) or {len(shape), len(strides)} != {len(buffer.shape)}:
        raise NotAttention("a factor is a view of unknown strides")
    covered = 1
    for stride, extent in sorted(zip(strides, shape)):
        if extent != 1 and stride != 0:
            if stride < covered:
                raise NotAttention("elements of a factor share memory")
            covered += (extent - 1) * stride
    return view_index(buffer, view, index)


def _by_dimensions(buffer: Buffer, view: TensorRef, index: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """Where each dimension of the view is one of the buffer's, repeats it, or is of one element."""
    found: list[Size] = [0] * len(buffer.shape)
    left = [place for place, extent in enumerate(buffer.shape) if extent != 1]
    if view.offset != 0:
        return None
    for extent, stride, part in zip(view.shape, view.strides, index):
        if extent == 1 or stride == 0:
            continue
        same = [place for place in left if (buffer.shape[place], buffer.strides[place]) == (extent, stride)]
        if not same:
            return None
        found[same[0]] = part
        left.remove(same[0])
    return tuple(found)


def _unflattened(buffer: Buffer, view: TensorRef, index: tuple[Size, ...]) -> tuple[Size, ...] | None:
    if view.offset != 0 or len(view.shape) not in (2, 3):
        return None
    found: list[Size] = [0] * len(buffer.shape)
    left = [place for place, extent in enumerate(buffer.shape) if extent != 1]
    for place in (-1, -2):
        if view.shape[place] == 1:
            continue
        wanted = (view.shape[place], view.strides[place])
        same = [own for own in left if (buffer.shape[own], buffer.strides[own]) == wanted]
        if not same:
            return None
        found[same[-1]] = index[place]
        left.remove(same[-1])
    shape = [buffer.shape[place] for place in left]
    if product(shape) != product(view.shape[:-2]):
        return None
    stride = view.strides[0] if left else 0
    for place in reversed(left):
        if buffer.strides[place] != stride:
            return None
        stride = mul(stride, buffer.shape[place])
    for place, part in zip(left, parts_of(index[0], shape)):
        found[place] = part
    return tuple(found)


def parts_of(whole: Size, shape: Sequence[Size]) -> tuple[Size, ...]:
    """An index over dimensions of this shape as an index of each."""
    found: list[Size] = []
    for place in range(len(shape) - 1, -1, -1):
        extent = shape[place]
        if extent == 1:
            found.append(0)
        elif all(each == 1 for each in shape[:place]):
            found.append(whole)
            whole = 0
        else:
            found.append(mod(whole, extent))
            whole = floordiv(whole, extent)
    return tuple(reversed(found))


def joined(value: Size) -> Size:
    """`value` with a quotient and its rest added up: 4 * (b // 4) + b % 4 is b."""
    constant, terms = linear_terms(value)
    total: Size = constant
    for factor, atom in terms:
        total = add(total, mul(factor, atom))
    return total


def written_size(expr: Expr) -> int:
    """The number of operations of `expr`, each as often as it is read."""
    sizes: dict[int, int] = {}
    for part in nodes([expr]):
        sizes[id(part)] = 1 + sum(sizes[id(child)] for child in children(part))
    return sizes[id(expr)]
