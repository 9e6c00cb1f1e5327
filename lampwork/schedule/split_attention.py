"""Attention of few rows over many keys, cut in parts that run side by side and are put together afterwards.

    attention o: result sum(exp(t - m) * v) / z over j<4096
    ->
    attention over s<16, j<256: m'[s], z'[s], u'[s, e]        statistics and sums of each part
    m = max(m'[s]);  f[s] = exp(m'[s] - m)                    0 where all scores of a part are -inf
    z = sum(z'[s] * f[s]);  u[e] = sum(u'[s, e] * f[s]);  o = u / z

Rows alone are too few programs for a machine when tokens are generated one by one. Licence: `reassociates`. The number
of keys is a multiple of the parts'; a mask that bounds them bounds those of each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lampwork.ir.attention import MAXIMUM, SUM, TOTAL, Attention, compute, replaced, row_nest, shift
from lampwork.ir.loops import Axis, Buffer, Constant, Expr, Load, LoopNest, Reduction, Store
from lampwork.ir.size import Size, add, bounds, mul, product
from lampwork.schedule.expressions import Pool, rewriter
from lampwork.schedule.group import loop_symbol

#: Keys of a part, at least, and of what it is a multiple.
SHORTEST = 128


def parts_of_keys(item: Attention, programs: int) -> int:
    """Into how many parts the keys are to be cut so that there are about so many programs; 1: into none."""
    extent = item.key.extent
    others = bounds(product(axis.extent for axis in item.batch))[1]
    if not isinstance(extent, int):
        return 1
    wanted = min(programs // max(others, 1), extent // SHORTEST)
    fitting = [parts for parts in range(1, wanted + 1) if extent % parts == 0 and extent // parts % 16 == 0]
    return fitting[-1] if fitting else 1


def split_keys(
    item: Attention, parts: int, buffers: Mapping[str, Buffer]
) -> tuple[Attention, list[LoopNest], dict[str, Buffer]]:
    """`item` over parts of the keys, the nests that follow, and the buffers in between."""
    assert isinstance(item.key.extent, int)
    part, key = Axis("s", parts), Axis(item.key.name, item.key.extent // parts)
    rows = (*item.batch, item.row)
    symbols = {axis.name: loop_symbol(axis.name, axis.extent) for axis in (*rows, part, key, item.column)}
    between: dict[str, Buffer] = {}

    def index(*axes: Axis) -> tuple[Size, ...]:
        return tuple([symbols[axis.name] for axis in axes])

    def made(kind: str, *axes: Axis) -> Buffer:
        name, shape = f"{item.result.buffer}.{kind}", tuple([axis.extent for axis in axes])
        strides = tuple([product(shape[place + 1 :]) for place in range(len(shape))])
        between[name] = Buffer(name, "float32", shape, strides)
        return between[name]

    def load(buffer: Buffer, *axes: Axis) -> Load:
        return Load(buffer.name, index(*axes), "float32")

    def nest(target: Buffer, axes: tuple[Axis, ...], value: Expr, op: str = "") -> LoopNest:
        fold = Reduction(op, (part,), "float32") if op else None
        return LoopNest(axes, Store(target.name, index(*axes), value), fold, origin=item.origin)

    pool = Pool()
    place = add(mul(symbols["s"], key.extent), symbols[key.name])

    def on_load(load: Load, place: tuple[Size, ...], indirect: tuple, mask: Expr | None) -> Expr:
        return pool.load(load.buffer, place, load.dtype, indirect, mask, load.other)

    rewrite = rewriter(pool, {key.name: place}, on_load)
    keys, values = rewrite(item.keys), rewrite(item.values)
    assert isinstance(keys, Load) and isinstance(values, Load)
    cut, columns = (*rows, part), (*rows, part, item.column)
    maxima, totals, sums = made("maxima", *cut), made("totals", *cut), made("sums", *columns)
    split = replace(
        item, batch=(*item.batch, part), key=key, keys=keys, values=values, score=rewrite(item.score),
        result=Store(sums.name, index(*columns), SUM),
        rows=(Store(maxima.name, index(*cut), MAXIMUM), Store(totals.name, index(*cut), TOTAL)),
    )  # fmt: skip
    maximum, scale = made("maximum", *rows), made("scale", *cut)
    total, summed = made("total", *rows), made("sum", *rows, item.column)
    largest = load(maxima, *cut)
    without = compute("eq", largest, Constant(float("-inf"), "float32"), dtype="bool")
    power = compute("exp", compute("sub", shift(largest), shift(load(maximum, *rows))))
    nests = [
        nest(maximum, rows, largest, "max"),
        nest(scale, cut, compute("where", without, Constant(0.0, "float32"), power)),
        nest(total, rows, compute("mul", load(totals, *cut), load(scale, *cut)), "sum"),
        nest(summed, (*rows, item.column), compute("mul", load(sums, *columns), load(scale, *cut)), "sum"),
    ]
    nests += [row_nest(item, store, buffers, maximum, total) for store in item.rows]
    whole: dict[Expr, Expr] = {
        MAXIMUM: load(maximum, *rows),
        TOTAL: load(total, *rows),
        SUM: load(summed, *rows, item.column),
    }
    result = Store(item.result.buffer, item.result.index, replaced(item.result.value, whole))
    nests.append(LoopNest((*rows, item.column), result, origin=item.origin))
    return split, nests, between
