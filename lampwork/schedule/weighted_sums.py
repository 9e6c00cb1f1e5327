"""Products whose left factor is made of one or two others, element by element, become sums that never have it in
memory: what attention's backward pass consists of.

    s = bmm(q, k^T);  g = bmm(dout, v^T);  nests over s and g:  p, ds
    dv = bmm(p^T, dout);  dq = bmm(ds, k);  dk = bmm(ds^T, q)
    ->
    weighted sums dq: of rows of q over keys        weighted sums dk, dv: of keys over rows of q

From each product backwards, pointwise nests are put in place of what they made, up to the products at the start, whose
elements at (b, i, j), or at (b, j, i) for all of them, are `PRODUCTS` then. Sums over the same products in the same
order are one item: these are computed once for both. Nothing is added up by several programs: results do not vary
from run to run.

Licences: `reassociates` and `keeps_precision`, as for attention. Blocks of keys for which a mask on indices makes all
weights 0 are skipped by whoever writes the kernel: there factors may be anything, where 0 * inf would be NaN.

Preconditions: nothing else reads the products, nor what is made of them; what is read is not written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Axis, Compute, Expr, LoopNest, Store, nodes
from lampwork.ir.masked_keys import Block, KeyRange, needed_keys, nonzero_of
from lampwork.ir.program import Extern, FromBuffer, Item, Lowered, RefusedFusion, TensorRef
from lampwork.ir.record import record
from lampwork.ir.size import Size, add, bounds, product
from lampwork.ir.target import Target
from lampwork.ir.weighted_sums import PRODUCTS, SUM, RowProduct, WeightedSum, WeightedSums
from lampwork.schedule.attention import FEWEST_ROWS, FEWEST_SCORES, WIDEST, likely
from lampwork.schedule.dependences import accesses
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.read_nests import HALF, FoldedScores, NestReader, NotAttention

#: Products of batches: others are of layers, whose rows are few beside what they are multiplied with.
PRODUCT = "aten::bmm.default"


def pays(item: WeightedSums, target: Target) -> None:
    """Raises `NotAttention` where the item's kernel is not expected to be faster than what it stands for."""
    rows, keys = likely(item.row.extent), likely(item.key.extent)
    if target.device == "cpu":
        raise NotAttention("it is for GPUs")
    if likely(product(axis.extent for axis in item.batch)) * rows * keys < FEWEST_SCORES:
        raise NotAttention("the scores are few")
    if min(rows, keys) < FEWEST_ROWS:
        raise NotAttention("there are few rows of scores")
    axes = [each.inner for each in item.products] + [each.column for each in item.sums]
    if max(bounds(axis.extent)[1] for axis in axes) > WIDEST:
        raise NotAttention(f"a row of a factor has more than {WIDEST} elements")
    if not any(_is_softmax(part) for each in item.sums for part in nodes([each.weight])):
        raise NotAttention("the weights are no softmax's")
    types = {each.left.dtype for each in item.products} | {each.dtype for each in item.sums}
    if "float32" in types and not _skips_keys(item):
        raise NotAttention("float32 is multiplied as fast by the vendor, and no key is skipped")


def _is_softmax(part: Expr) -> bool:
    """Whether `part` is an exponential relative to something: of scores."""
    relative = part.args[0] if isinstance(part, Compute) and part.op == "exp" else None
    return isinstance(relative, Compute) and relative.op == "sub"


def _skips_keys(item: WeightedSums) -> bool:
    first = loop_symbol("first", item.row.extent)
    block = Block(item.row.name, item.key.name, first, add(first, FEWEST_ROWS - 1))
    masks = [nonzero_of(each.weight) for each in item.sums]
    return all(mask is not None and needed_keys(mask, block) != KeyRange() for mask in masks)


def fuse_weighted_sums(lowered: Lowered, target: Target) -> tuple[Lowered, list[RefusedFusion]]:
    """The program with `WeightedSums` in place of the products that are some, and why others are none."""
    refused: dict[str, RefusedFusion | None] = {}
    if target.device == "cpu" or lowered.copies:
        return lowered, []
    while True:
        makers: dict[str, list[int]] = {}
        for number, item in enumerate(lowered.items):
            for name in accesses(item)[1]:
                makers.setdefault(name, []).append(number)
        for first, second in _groups(lowered, makers):
            key = accesses(lowered.items[second[-1]])[1][0]
            if key in refused:
                continue
            try:
                lowered = _fused(lowered, first, second, makers, target)
                break  # numbers of items are others now
            except FoldedScores:
                refused[key] = None
            except NotAttention as stop:
                refused[key] = _refusal(lowered, first, second, str(stop))
        else:
            return lowered, [each for each in refused.values() if each is not None]


def _groups(lowered: Lowered, makers: Mapping[str, list[int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """First and second products that belong together: the weights of v's gradient are made of the scores alone."""
    found: dict[frozenset[int], list[int]] = {}
    for number, item in enumerate(lowered.items):
        if isinstance(item, Extern) and item.op == PRODUCT and not item.kwargs:
            first = _first_products(lowered, number, makers)
            if first:
                found.setdefault(first, []).append(number)
    groups: list[tuple[frozenset[int], list[int]]] = []
    for first, second in sorted(found.items(), key=lambda pair: -len(pair[0])):
        for whole, members in groups:
            if first <= whole:
                members += second
                break
        else:
            groups.append((first, list(second)))
    return [(tuple(sorted(first)), tuple(sorted(second))) for first, second in groups]


def _refusal(lowered: Lowered, first: tuple[int, ...], second: tuple[int, ...], reason: str) -> RefusedFusion:
    one, other = lowered.items[first[0]], lowered.items[second[-1]]
    assert isinstance(one, Extern) and isinstance(other, Extern)
    buffer = lowered.buffers[one.outputs[0] or ""]
    size = likely(product(buffer.shape)) * ITEM_SIZE_BYTES[buffer.dtype]
    return RefusedFusion("fusion-attention", one.origin, other.origin, reason, size)


def _first_products(lowered: Lowered, second: int, makers: Mapping[str, list[int]]) -> frozenset[int]:
    """The one or two products whose elements the left factor of another one is made of, without folds of them."""
    call = lowered.items[second]
    assert isinstance(call, Extern)
    weights = call.args[0]
    if not isinstance(weights, TensorRef) or call.outputs[0] is None:
        return frozenset()
    size = product(weights.shape)
    if 1 in weights.shape[-2:]:
        return frozenset()
    pending, seen, found = [weights.buffer], {weights.buffer}, set()
    while pending:
        numbers = makers.get(pending.pop(), ())
        if len(numbers) != 1:
            continue
        item = lowered.items[numbers[0]]
        if isinstance(item, LoopNest) and item.reduction is None:
            new = [name for name in item.read if name not in seen and product(lowered.buffers[name].shape) == size]
            pending += new
            seen.update(new)
        elif isinstance(item, Extern) and item.op == PRODUCT and not item.kwargs:
            found.add(numbers[0])
    found.discard(second)
    return frozenset(found) if len(found) <= len(PRODUCTS) and second not in found else frozenset()


# -- Reading the pattern ----------------------------------------------------------------------------------------------


@record(frozen=False)
class _Read:
    """One sum. `swapped`: its rows are the last dimension of the products."""

    swapped: bool
    number: int
    sum: WeightedSum


class _SumReader(NestReader):
    """The left factor of one product, by elements of others."""

    def __init__(
        self, lowered: Lowered, first: tuple[int, ...], second: int, makers: Mapping[str, list[int]], swapped: bool
    ) -> None:
        items = [lowered.items[number] for number in (*first, second)]
        *starts, call = [each for each in items if isinstance(each, Extern)]
        assert len(starts) == len(first)
        self.starts = starts
        self.scores = [start.outputs[0] or "" for start in starts]
        shapes = {lowered.buffers[name].shape for name in self.scores}
        if len(shapes) != 1:
            raise NotAttention("the products have other sizes")
        *outer, rows, keys = shapes.pop()
        if swapped:
            rows, keys = keys, rows
        self.call = call
        self.result = lowered.buffers[self.call.outputs[0] or ""]
        if self.call.args[0].shape != (*outer, rows, keys):
            raise NotAttention("the left factor of a product has other sizes than those before it")
        self.front = tuple([Axis(f"b{place}", extent) for place, extent in enumerate(outer)])
        self.batch = tuple([axis for axis in self.front if axis.extent != 1])
        self.row, self.key = Axis("i", rows), Axis("j", keys)
        self.inner = [Axis(f"d{place}", start.args[0].shape[-1]) for place, start in enumerate(starts)]
        self.column = Axis(f"e{second}", self.result.shape[-1])
        axes = (*self.batch, self.row, self.key, *self.inner, self.column)
        super().__init__(lowered, makers, _made_of(lowered, self.scores), axes)
        self.swapped = swapped
        order = (self.key, self.row) if swapped else (self.row, self.key)
        self.place = self.index(*self.front, *order)
        self.products: list[RowProduct] = []
        self.scored: list[Expr] = []

    def read_products(self) -> None:
        for local, inner, start in zip(PRODUCTS, self.inner, self.starts):
            rows, keys = (self.key, self.row) if self.swapped else (self.row, self.key)
            left, of_left = self.factor(start.args[0], (*self.front, rows, inner))
            right, of_right = self.factor(start.args[1], (*self.front, inner, keys))
            if left.dtype != right.dtype or left.dtype not in (*HALF, "float32"):
                raise NotAttention("factors of these types")
            self.products.append(RowProduct(inner, *((right, left) if self.swapped else (left, right))))
            value: Expr = self.pool.local(local.name, local.dtype)
            if of_left * of_right != 1.0:
                factor = self.pool.constant(of_left * of_right, "float32")
                value = self.pool.compute("mul", (value, factor), "float32")
            self.scored.append(value)

    def product(self, name: str, index: tuple[Size, ...]) -> Expr | None:
        if name not in self.scores:
            return None
        if index != self.place:
            raise NotAttention("the scores are read in another order")
        return self.scored[self.scores.index(name)]

    def read(self) -> WeightedSum:
        axes = (*self.batch, self.row, self.key, *self.inner, self.column)
        if any(bounds(axis.extent)[0] < 1 for axis in axes):
            raise NotAttention("a size may be 0")
        if 1 in (axis.extent for axis in axes):
            raise NotAttention("a size is 1")
        self.read_products()
        factor, scale = self.factor(self.call.args[1], (*self.front, self.key, self.column))
        left = self.call.args[0]
        assert isinstance(left, TensorRef)
        weight = self.widened(self.viewed(left, self.index(*self.front, self.row, self.key)))
        if weight.dtype != "float32" or factor.dtype not in (*HALF, "float32"):
            raise NotAttention("weights of these types")
        if not {part.name for part in nodes([weight]) if part in PRODUCTS}:
            raise NotAttention("the weights are made of no product")
        value: Expr = self.pool.local(SUM.name, SUM.dtype)
        if scale != 1.0:
            value = self.pool.compute("mul", (value, self.pool.constant(scale, "float32")), "float32")
        cast = self.pool.compute("cast", (value,), self.result.dtype)
        store = Store(self.result.name, self.index(*self.front, self.row, self.column), cast)
        return WeightedSum(self.column, weight, left.dtype, factor, store)


def _made_of(lowered: Lowered, scores: list[str]) -> frozenset[str]:
    """Buffers that are made of the products by nests."""
    found = set(scores)
    for item in lowered.items:
        if isinstance(item, LoopNest) and not found.isdisjoint(item.read):
            found.add(item.store.buffer)
    return frozenset(found)


def _read(
    lowered: Lowered, first: tuple[int, ...], second: int, makers: Mapping[str, list[int]]
) -> tuple[bool, WeightedSum, _SumReader]:
    """A sum, whose rows are the products' last dimension (that is True, then) or the one before."""
    try:
        reader = _SumReader(lowered, first, second, makers, swapped=False)
        return False, reader.read(), reader
    except NotAttention as stop:
        try:
            reader = _SumReader(lowered, first, second, makers, swapped=True)
            return True, reader.read(), reader
        except NotAttention:
            raise stop from None


# -- The program with the items ---------------------------------------------------------------------------------------


def _fused(
    lowered: Lowered, first: tuple[int, ...], second: tuple[int, ...], makers: Mapping[str, list[int]], target: Target
) -> Lowered:
    sums: dict[bool, list[tuple[int, WeightedSum, _SumReader]]] = {}
    for number in second:
        swapped, found, reader = _sum_of(lowered, first, number, makers)
        sums.setdefault(swapped, []).append((number, found, reader))
    made: dict[int, WeightedSums] = {}
    for members in sums.values():
        _, _, reader = members[0]
        origin = lowered.items[members[-1][0]].origin
        each = WeightedSums(
            reader.batch,
            reader.row,
            reader.key,
            tuple(reader.products),
            tuple([found for _, found, _ in members]),
            origin,
        )
        pays(each, target)
        _check(lowered, each, reader, first, makers)
        made[members[-1][0]] = each
    dependent = next(iter(sums.values()))[0][2].dependent
    return _with_items(lowered, made, set(second), set(first), dependent, makers)


def _sum_of(
    lowered: Lowered, first: tuple[int, ...], second: int, makers: Mapping[str, list[int]]
) -> tuple[bool, WeightedSum, _SumReader]:
    try:
        return _read(lowered, first, second, makers)
    except AttributeError as error:  # an argument that is no tensor
        raise NotAttention("a product of something else than tensors") from error


def _check(
    lowered: Lowered, item: WeightedSums, reader: NestReader, first: tuple[int, ...], makers: Mapping[str, list[int]]
) -> None:
    """Raises `NotAttention` for what a kernel of it could not compute, or would read at the wrong time."""
    reader.check_scores([each.weight for each in item.sums], item.parts, item.read)
    for name in item.read:
        times = makers.get(name, [])
        if lowered.buffers[name].kind == "input" and any(number > first[0] for number in times) or len(times) > 1:
            raise NotAttention("what is read is written in between")


def _with_items(
    lowered: Lowered, made: Mapping[int, WeightedSums], second: set[int], first: set[int], dependent: frozenset[str],
    makers: Mapping[str, list[int]],
) -> Lowered:  # fmt: skip
    """The program with `made` where their last products were, without what nobody reads any more."""
    items: list[Item | None] = [made.get(number, item) for number, item in enumerate(lowered.items)]
    for number in second - made.keys():
        items[number] = None
    _drop_unread(lowered, items, dependent, first)
    if any(items[number] is not None for number in first):
        raise NotAttention("the scores, or what is made of them, are read elsewhere")
    kept: list[Item] = []
    moved: list[Item] = []
    pending = {name for item in made.values() for name in item.written}
    for number, item in enumerate(items):
        if item is None:
            continue
        reads, writes = accesses(item)
        if not pending.isdisjoint(reads):
            plain = isinstance(item, LoopNest) and not item.partial
            if not plain or any(len(makers.get(name, ())) > 1 for name in (*reads, *writes)):
                raise NotAttention("a sum is read before another one can be computed")
            pending.update(writes)
            moved.append(item)
            continue
        kept.append(item)
        if number in made:
            pending.difference_update(writes)
            waiting: list[Item] = []
            for each in moved:
                if pending.isdisjoint(accesses(each)[0]):
                    kept.append(each)
                    pending.difference_update(accesses(each)[1])
                else:
                    waiting.append(each)
            moved = waiting
    names = {name for each in kept for part in accesses(each) for name in part}
    buffers = {name: buffer for name, buffer in lowered.buffers.items() if name not in dependent - names}
    return replace(lowered, items=tuple(kept), buffers=buffers)


def _drop_unread(lowered: Lowered, items: list[Item | None], dependent: frozenset[str], first: set[int]) -> None:
    """Takes out what is made of the products, and these, where nobody reads it."""
    needed = {each.view.buffer for each in lowered.results if isinstance(each, FromBuffer)}
    needed |= {write.source.buffer for write in lowered.writes}
    needed |= {*lowered.inputs, *(name for name, _ in lowered.found.values())}
    for number in range(len(items) - 1, -1, -1):
        item = items[number]
        if item is None:
            continue
        reads, writes = accesses(item)
        made = isinstance(item, LoopNest) and writes[0] in dependent
        if (made or number in first) and needed.isdisjoint(writes):
            items[number] = None
        else:
            needed.update(reads)
