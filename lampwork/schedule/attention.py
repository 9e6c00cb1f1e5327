"""Products with a softmax between them become one item, which never has the scores in memory.

    s = bmm(q, k^T);  nests over s;  m = max(t);  z = sum(exp(t - m));  p = exp(t - m) / z;  o = bmm(p, v)
    ->
    attention o: scores t = f(q . k), result sum(exp(t - m) * v) / z

From the second product backwards, pointwise nests are put in place of what they made, up to the first product, whose
element at (b, i, j) is `SCORE` then. What folds it over j must be a statistic of one softmax: the maximum of some `t`,
the sum of exp(t - maximum), or whether all of `t` is -inf; and the weights must be exp(t - maximum) times what does not
depend on j. So masks, biases and captured tensors, the spelling of a softmax, and who wrote it (`flex_attention` in
Python, a model by hand) make no difference. Statistics that others read are results of the item, too.

Licences: `reassociates` (sums; the quotient follows the second product, constant factors of q and k the first) and
`keeps_precision` (scores of half types are not rounded between the products). Weights are rounded to the type of `v`
as in the program, before the quotient. Key blocks that a mask on indices excludes as a whole are skipped by whoever
writes the kernel: there `v` may be anything, where 0 * inf would be NaN.

Preconditions: nothing else reads the scores; what is read is not written meanwhile. Non-goals: dropout, weights that
are multiplied or masked after the softmax, exponentials without a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lampwork.ir.attention import MAXIMUM, SCORE, SUM, TOTAL, Attention
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import (
    Axis,
    Buffer,
    Compute,
    Constant,
    Expr,
    Load,
    LoopNest,
    Store,
    nodes,
)
from lampwork.ir.masked_keys import Block, KeyRange, mask_of, needed_keys
from lampwork.ir.program import Extern, FromBuffer, Item, Lowered, RefusedFusion, TensorRef
from lampwork.ir.size import (
    Size,
    add,
    bounds,
    product,
    seen_value,
    symbols,
)
from lampwork.ir.target import Target
from lampwork.schedule.dependences import accesses
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.read_nests import HALF, NestReader, NotAttention, parts_of
from lampwork.schedule.split_attention import parts_of_keys, split_keys

#: First products by the places of what is added and of their factors; those that nothing is added to are second ones.
PRODUCTS: dict[str, tuple[int | None, int, int]] = {
    "aten::mm.default": (None, 0, 1),
    "aten::bmm.default": (None, 0, 1),
    "aten::addmm.default": (0, 1, 2),
    "aten::baddbmm.default": (0, 1, 2),
}
#: Scores from which on they are worth keeping out of memory (H100, bfloat16: 8 heads of 128 rows take 8 us as one
#: kernel, 19 as several), rows that fill a tile of a kernel, and the widest rows of q and v that there is room for.
FEWEST_SCORES, FEWEST_ROWS, WIDEST = 1 << 17, 64, 256
#: Programs for each multiprocessor that keys of few rows are cut into, and the fewest parts for which that is done.
PROGRAMS, FEWEST_PARTS = 2, 4


def pays(item: Attention, target: Target) -> None:
    """Raises `NotAttention` where the item's kernel is not expected to be faster than the products and kernels that it
    stands for. The one place that says so.

    Few scores are few bytes, and few rows leave most of a tile empty. In float32 the vendor's products are as fast as
    the kernel's, which gains where keys are skipped. (H100, 16 heads of 2048 rows of 64 and of 128: causal 0.46 and
    0.78 ms, 0.67 and 0.98 as several kernels; without a mask 0.70 and 1.09, 0.66 and 0.98.)
    """
    rows, keys = likely(item.row.extent), likely(item.key.extent)
    if target.device == "cpu":
        raise NotAttention("it is for GPUs")
    if likely(product(axis.extent for axis in item.batch)) * max(rows, FEWEST_ROWS) * keys < FEWEST_SCORES:
        raise NotAttention("the scores are few")
    if rows < FEWEST_ROWS and parts_of_keys(item, PROGRAMS * target.threads) < FEWEST_PARTS:
        raise NotAttention("there are few rows of scores")
    if bounds(item.inner.extent)[1] > WIDEST or bounds(item.column.extent)[1] > WIDEST:
        raise NotAttention(f"a row of a factor has more than {WIDEST} elements")
    if "float32" in (item.query.dtype, item.weights) and not _skips_keys(item):
        raise NotAttention("float32 is multiplied as fast by the vendor, and no key is skipped")


def _skips_keys(item: Attention) -> bool:
    """Whether the mask says of positions which keys a block of rows does not need."""
    mask = mask_of(item.score)
    first = loop_symbol("first", item.row.extent)
    block = Block(item.row.name, item.key.name, first, add(first, FEWEST_ROWS - 1))
    return mask is not None and needed_keys(mask, block) != KeyRange()


def likely(value: Size) -> int:
    """A plausible number for `value`: what it was in the call that was captured."""
    if isinstance(value, int):
        return value
    low, high = bounds(value)
    seen = seen_value(value)
    return max(low, min(high, 4096 if seen is None else seen))


def fuse_attention(lowered: Lowered, target: Target) -> tuple[Lowered, list[RefusedFusion]]:
    """The program with an `Attention` in place of each pair of products that are one, and why others are none."""
    refused: list[RefusedFusion] = []
    if target.device == "cpu" or lowered.copies:
        return lowered, refused
    number = 0
    makers = _makers(lowered)
    while number < len(lowered.items):
        item = lowered.items[number]
        if isinstance(item, Extern) and item.op in PRODUCTS and PRODUCTS[item.op][0] is None:
            found = _first_product(lowered, number, makers)
            if found is not None:
                try:
                    lowered, number = _fused(lowered, found, number, makers, target)
                    makers = _makers(lowered)
                except NotAttention as stop:
                    refused.append(_refusal(lowered, found, number, str(stop)))
        number += 1
    return lowered, refused


def _refusal(lowered: Lowered, first: int, second: int, reason: str) -> RefusedFusion:
    one, other = lowered.items[first], lowered.items[second]
    assert isinstance(one, Extern) and isinstance(other, Extern)
    buffer = lowered.buffers[one.outputs[0] or ""]
    size = likely(product(buffer.shape)) * ITEM_SIZE_BYTES[buffer.dtype]
    return RefusedFusion("fusion-attention", one.origin, other.origin, reason, size)


def _first_product(lowered: Lowered, second: int, makers: Mapping[str, list[int]]) -> int | None:
    """The product whose elements, one by one and folded, the left factor of another one is made of."""
    call = lowered.items[second]
    assert isinstance(call, Extern)
    weights, result = call.args[0], call.outputs[0]
    if not isinstance(weights, TensorRef) or result is None or call.kwargs:
        return None
    pending, seen, folds, found = [weights.buffer], {weights.buffer}, False, []
    while pending:
        for number in makers.get(pending.pop(), ()):
            item = lowered.items[number]
            if isinstance(item, LoopNest):
                folds |= item.reduction is not None
                pending += [name for name in item.read if name not in seen]
                seen.update(item.read)
            elif isinstance(item, Extern) and item.op in PRODUCTS:
                made = lowered.buffers[item.outputs[0] or weights.buffer]
                if product(made.shape) == product(weights.shape):
                    found.append(number)
    return found[0] if folds and len(found) == 1 else None


def _makers(lowered: Lowered) -> dict[str, list[int]]:
    """The items that write each buffer."""
    makers: dict[str, list[int]] = {}
    for number, item in enumerate(lowered.items):
        for name in accesses(item)[1]:
            makers.setdefault(name, []).append(number)
    return makers


def _fused(
    lowered: Lowered, first: int, second: int, makers: Mapping[str, list[int]], target: Target
) -> tuple[Lowered, int]:
    reader = _Reader(lowered, first, second, makers)
    item = reader.item()
    pays(item, target)
    if likely(item.row.extent) < FEWEST_ROWS and item.keys.buffer == reader.right.buffer:
        # What is read as it is costs the vendor's products no more; converted or repeated, it would be written first.
        raise NotAttention("there are few rows of scores")
    lowered, number = _with_item(lowered, item, reader, second)
    whole = lowered.items[number]
    if likely(item.row.extent) >= FEWEST_ROWS or not isinstance(whole, Attention):
        return lowered, number
    split, nests, between = split_keys(whole, parts_of_keys(item, PROGRAMS * target.threads), lowered.buffers)
    items = (*lowered.items[:number], split, *nests, *lowered.items[number + 1 :])
    return replace(lowered, items=items, buffers={**lowered.buffers, **between}), number + len(nests)


# -- Reading the pattern ----------------------------------------------------------------------------------------------


class _Reader(NestReader):
    """The nests between two products as expressions of one score."""

    def __init__(self, lowered: Lowered, first: int, second: int, makers: Mapping[str, list[int]]) -> None:
        buffers = lowered.buffers
        self.first, self.second = first, second
        one, other = lowered.items[first], lowered.items[second]
        assert isinstance(one, Extern) and isinstance(other, Extern)
        self.one, self.other = one, other
        self.scores = one.outputs[0] or ""
        result = buffers[other.outputs[0] or ""]
        scores = buffers[self.scores]
        added, *places = PRODUCTS[one.op]
        left, right = (one.args[place] for place in places)
        self.added = one.args[added] if added is not None else None
        if len(scores.shape) != len(result.shape) or scores.shape[:-1] != result.shape[:-1]:
            raise NotAttention("the products have other sizes")
        if other.args[0].shape != scores.shape:
            raise NotAttention("the left factor of the second product has other sizes than the first product")
        #: The dimensions in front, and those of them that are loops.
        self.front = tuple([Axis(f"b{place}", extent) for place, extent in enumerate(scores.shape[:-2])])
        self.batch = tuple([axis for axis in self.front if axis.extent != 1])
        self.row, self.key = Axis("i", scores.shape[-2]), Axis("j", scores.shape[-1])
        self.inner, self.column = Axis("d", left.shape[-1]), Axis("e", result.shape[-1])
        self.left, self.right, self.result = left, right, result
        rows = (self.row,) if self.row.extent != 1 else ()
        axes = (*self.batch, *rows, self.key, self.inner, self.column)
        super().__init__(lowered, makers, self._dependent(lowered), axes)
        self.score_index = self.index(*self.front, self.row, self.key)
        #: What the first product gives.
        self.scored: Expr = SCORE
        #: What the softmax is taken of, once its maximum was met.
        self.target: Expr | None = None
        #: Folds of the scores, by what they are.
        self.statistics: dict[str, Expr] = {}

    def product(self, name: str, index: tuple[Size, ...]) -> Expr | None:
        if name != self.scores:
            return None
        if index != self.score_index:
            raise NotAttention("the scores are read in another order")
        return self.scored

    def folded(self, nest: LoopNest, index: tuple[Size, ...]) -> Expr:
        return self.statistic(nest, index)

    def _dependent(self, lowered: Lowered) -> frozenset[str]:
        """Buffers that are made of the scores by nests."""
        found = {self.scores}
        for item in lowered.items[self.first + 1 :]:
            if isinstance(item, LoopNest) and not found.isdisjoint(item.read):
                found.add(item.store.buffer)
        return frozenset(found)

    def item(self) -> Attention:
        pool = self.pool
        if any(bounds(axis.extent)[0] < 1 for axis in (*self.batch, self.row, self.key, self.inner, self.column)):
            raise NotAttention("a size may be 0")
        if 1 in (axis.extent for axis in (self.key, self.inner, self.column)):
            raise NotAttention("a size is 1")
        query, of_query = self.factor(self.left, (*self.front, self.row, self.inner))
        keys, of_keys = self.factor(self.right, (*self.front, self.inner, self.key))
        values, of_values = self.factor(self.other.args[1], (*self.front, self.key, self.column))
        if query.dtype != keys.dtype or not {query.dtype, values.dtype} <= {*HALF, "float32"}:
            raise NotAttention("factors of these types")
        self.scored = self.first_score(of_query * of_keys)
        weights = self.widened(self.viewed(self.other.args[0], self.score_index))
        if self.target is None:
            raise NotAttention("nothing takes the scores' maximum")
        value = self.finished(weights)
        if of_values != 1.0:
            value = pool.compute("mul", (value, pool.constant(of_values, "float32")), "float32")
        dtype = self.result.dtype
        cast = pool.compute("cast", (value,), dtype)
        result = Store(self.result.name, self.index(*self.front, self.row, self.column), cast)
        rounded = values.dtype if values.dtype == dtype or self.is_rounded(values.dtype) else "float32"
        found = Attention(
            self.batch, self.row, self.key, self.inner, self.column, query, keys, values, self.target, rounded,
            result, origin=self.other.origin,
        )  # fmt: skip
        self.check(found)
        self.find_statistics()
        return found

    def find_statistics(self) -> None:
        """Fills in `statistics`: all folds of the scores that are some of this softmax."""
        for name in sorted(self.dependent - {self.scores}):
            nest = self.maker(name)
            if nest is not None and nest.reduction is not None:
                try:
                    self.statistics[name] = self.statistic(nest, self.row_index(self.buffers[name]))
                except NotAttention:
                    continue  # computed as before, if it is needed

    def row_index(self, buffer: Buffer) -> tuple[Size, ...]:
        """The element of a buffer of statistics that belongs to a row: its first dimensions are the batch."""
        shape = list(buffer.shape)
        ones = 0
        while shape and shape[-1] == 1 and self.row.extent != 1:
            shape.pop()
            ones += 1
        if not shape or shape[-1] != self.row.extent or product(shape[:-1]) != product(a.extent for a in self.batch):
            raise NotAttention("a statistic has other dimensions than the scores")
        outer = self.symbols.get("b0", 0)
        return (*parts_of(outer, shape[:-1]), self.symbols.get("i", 0), *[0] * ones)

    def first_score(self, scale: float) -> Expr:
        """What the first product gives, whose factors are multiplied with `scale`."""
        pool = self.pool
        factors = {"alpha": 1, "beta": 1, **dict(self.one.kwargs)}
        if any(type(factor) not in (int, float) for factor in factors.values()) or len(factors) > 2:
            raise NotAttention("a product with other factors than numbers")

        def scaled(value: Expr, factor: float) -> Expr:
            return value if factor == 1 else pool.compute("mul", (value, pool.constant(factor, "float32")), "float32")

        value = scaled(self.pooled(SCORE), scale * factors["alpha"])
        ref = self.added
        if ref is None or factors["beta"] == 0:  # what is multiplied with 0 is not looked at
            return value
        aligned = self.score_index[len(self.score_index) - len(ref.shape) :]
        index = tuple([0 if extent == 1 else part for extent, part in zip(ref.shape, aligned)])
        bias = self.widened(self.viewed(ref, index))
        return pool.compute("add", (value, scaled(bias, float(factors["beta"]))), "float32")

    def is_rounded(self, dtype: str) -> bool:
        """Whether all that read the result round it to `dtype`."""
        name = self.result.name
        if any(isinstance(each, FromBuffer) and each.view.buffer == name for each in self.lowered.results):
            return False
        for item in self.lowered.items:
            if name not in accesses(item)[0]:
                continue
            if not isinstance(item, LoopNest) or item.reduction is not None:
                return False
            value = item.store.value
            if not (type(value) is Compute and value.op == "cast" and value.dtype == dtype):
                return False
            if type(value.args[0]) is not Load:
                return False
        return True

    def check(self, item: Attention) -> None:
        """Raises `NotAttention` for what a kernel of it could not compute, or would read at the wrong time."""
        self.check_scores([item.score], item.parts, item.read)
        for name in item.read:
            times = self.makers.get(name, [])
            earliest = self.second if name == item.values.buffer else self.first
            if any(number > earliest for number in times) and self.buffers[name].kind != "input":
                if len(times) > 1:
                    raise NotAttention("what is read is written in between")
            if self.buffers[name].kind == "input" and any(number < self.second for number in times):
                raise NotAttention("what is read is written in between")

    def statistic(self, nest: LoopNest, index: tuple[Size, ...]) -> Expr:
        """A fold over all keys as an expression of the softmax's maximum and total."""
        fold = nest.reduction
        assert fold is not None
        if len(fold.axes) != 1 or fold.axes[0].extent != self.key.extent:
            raise NotAttention("the scores are folded over something else than all keys")
        if any("j" in symbols(part) for part in index):
            raise NotAttention("the scores of other rows are folded")
        pool = self.pool
        found: Expr | None = None
        value = self.widened(self.inlined(nest, index, {fold.axes[0].name: self.symbols["j"]}))
        if fold.op == "max" and value.dtype == "float32":
            if self.target is None:
                if SCORE not in nodes([value]):
                    raise NotAttention("the maximum of something else than the scores is taken")
                self.target = value
            found = MAXIMUM if value is self.target else None
        elif fold.op == "sum" and fold.dtype == "float32" and self.target is not None:
            found = TOTAL if value is self.power(shifted=True) else None
            if value is self.power(shifted=False):
                found = self.poisoned(TOTAL)
        elif fold.op == "all" and self.target is not None:
            lowest = pool.constant(float("-inf"), "float32")
            if value is pool.compute("eq", (self.target, lowest), "bool"):
                found = pool.compute("eq", (self.pooled(MAXIMUM), lowest), "bool")
        if found is None:
            raise NotAttention(f"the scores are folded by another {fold.op} than those of one softmax")
        return self.pooled(found)

    # One object for equal expressions ----------------------------------------

    def power(self, shifted: bool) -> Expr:
        """exp(target - maximum), or with 0 for a maximum that is infinite."""
        pool = self.pool
        assert self.target is not None
        most = self.pooled(MAXIMUM)
        if shifted:
            most = pool.compute("where", (self.infinite(), pool.constant(0.0, "float32"), most), "float32")
        return pool.compute("exp", (pool.compute("sub", (self.target, most), "float32"),), "float32")

    def infinite(self) -> Expr:
        pool = self.pool
        size = pool.compute("abs", (self.pooled(MAXIMUM),), "float32")
        return pool.compute("eq", (size, pool.constant(float("inf"), "float32")), "bool")

    def poisoned(self, value: Expr) -> Expr:
        """`value`, which is relative to `shift`, as of exponentials that are relative to the maximum itself."""
        pool = self.pool
        nan = pool.constant(float("nan"), "float32")
        return pool.compute("where", (self.infinite(), nan, self.pooled(value)), "float32")

    # The second product ----------------------------------------

    def finished(self, weights: Expr) -> Expr:
        """The product of `weights` with a column of v as an expression of `SUM`."""
        pool = self.pool
        powers = {id(self.power(shifted=False)): self.poisoned(SUM), id(self.power(shifted=True)): self.pooled(SUM)}

        def of_row(expr: Expr) -> bool:
            free = pool.free(expr)
            return "j" not in free and SCORE.name not in free

        def walk(expr: Expr) -> Expr:
            found = powers.get(id(expr))
            if found is not None:
                return found
            if type(expr) is Compute and expr.dtype == "float32":
                op, args = expr.op, expr.args
                if op == "div" and of_row(args[1]):
                    return pool.compute("div", (walk(args[0]), args[1]), "float32")
                if op == "mul" and (of_row(args[0]) or of_row(args[1])):
                    left, right = args if of_row(args[1]) else args[::-1]
                    return pool.compute("mul", (walk(left), right), "float32")
                if op == "where" and of_row(args[0]):
                    return pool.compute("where", (args[0], walk(args[1]), walk(args[2])), "float32")
                if op == "neg":
                    return pool.compute("neg", (walk(args[0]),), "float32")
            if type(expr) is Constant and expr.value == 0:
                # Weights that are 0: of an infinite v their products are NaN.
                zero = pool.constant(0.0, "float32")
                return pool.compute("mul", (self.pooled(SUM), zero), "float32")
            raise NotAttention("the weights are something else than one softmax")

        return walk(weights)


# -- The program with the item ----------------------------------------------------------------------------------------


def _with_item(lowered: Lowered, item: Attention, reader: _Reader, second: int) -> tuple[Lowered, int]:
    """The program with `item` in place of the second product, without what nobody reads any more; the item's number."""
    items: list[Item | None] = list(lowered.items)
    items[second] = item
    needed = _needed(lowered, items, reader.statistics)
    if any(name in needed for name in reader.dependent - reader.statistics.keys() if _is_wide(reader, name)):
        raise NotAttention("the scores, or what is made of them, are read elsewhere")
    stored = {name: value for name, value in reader.statistics.items() if name in needed}
    rows = []
    for name, value in stored.items():
        buffer = lowered.buffers[name]
        cast = reader.pool.compute("cast", (value,), buffer.dtype)
        rows.append(Store(name, reader.row_index(buffer), cast))
    item = replace(item, rows=tuple(rows))
    items[second] = item
    late = set(stored)
    moved: list[Item] = []
    for number in range(reader.first, len(items)):
        each = items[number]
        if each is None or number == second:
            continue
        reads, writes = accesses(each)
        if isinstance(each, LoopNest) and writes[0] not in needed and writes[0] in reader.dependent:
            items[number] = None
        elif number == reader.first or writes and set(writes) <= stored.keys():
            items[number] = None
        elif number < second and not late.isdisjoint(reads):
            plain = isinstance(each, LoopNest) and not each.partial and writes[0] not in item.read
            if not plain or any(len(reader.makers.get(name, ())) > 1 for name in (*reads, *writes)):
                raise NotAttention("a statistic of the softmax is read before its result is there")
            late.update(writes)
            moved.append(each)
            items[number] = None
    kept = [each for each in items[:second] if each is not None]
    rest = [each for each in items[second + 1 :] if each is not None]
    names = {name for each in (*kept, item, *moved, *rest) for part in accesses(each) for name in part}
    gone = reader.dependent - names
    buffers = {name: buffer for name, buffer in lowered.buffers.items() if name not in gone}
    return replace(lowered, items=(*kept, item, *moved, *rest), buffers=buffers), len(kept)


def _is_wide(reader: _Reader, name: str) -> bool:
    """Whether a buffer is the scores, or made of them in any other way than of their statistics."""
    if name == reader.scores:
        return True
    if name in reader.statistics:
        return False
    makers = [reader.lowered.items[number] for number in reader.makers[name]]
    return any(_is_wide(reader, read) for each in makers for read in accesses(each)[0] if read in reader.dependent)


def _needed(lowered: Lowered, items: Sequence[Item | None], statistics: Mapping[str, Expr]) -> set[str]:
    """Buffers that are read, when the statistics of a softmax need no nests any more."""
    needed = {each.view.buffer for each in lowered.results if isinstance(each, FromBuffer)}
    needed |= {write.source.buffer for write in lowered.writes}
    fixed = {*lowered.inputs, *(name for name, _ in lowered.found.values())}
    for item in reversed(items):
        if item is None:
            continue
        reads, writes = accesses(item)
        if isinstance(item, LoopNest):
            name = writes[0]
            if name in statistics or not (name in needed or name in fixed):
                continue
        needed.update(reads)
    return needed
