"""`Attention`: two products with a softmax between them, as one item of a program. No torch.

    for b<8, i<128:
      score[j] = f(sum(d<64) query[b, i, d] * keys[b, j, d])        any function of the score, b, i, j and buffers
      maximum = max(j<128) score[j]
      total = sum(j<128) exp(score[j] - shift(maximum))              shift: the maximum, or 0 where that is infinite
      sum[e] = sum(j<128) exp(score[j] - shift(maximum)) * values[b, j, e]
      result[b, i, e] = g(sum[e], maximum, total)
      rows: buffer[b, i] = h(maximum, total)

What stands for `f`, `g` and `h` is an expression of the loop IR over `SCORE`, `SUM`, `MAXIMUM` and `TOTAL`. What all of
it means is what its loop nests mean (`attention_nests`), which is how it is verified and interpreted.

A kernel of it (`attention_body`, read back by `read_attention`) is a tree of loops like every other one, which computes
the scores anew in each of its three passes over the keys. That is its meaning, not the way it is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from lampwork.ir.location import Origin
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Buffer,
    Compute,
    Constant,
    Expr,
    Kernel,
    Load,
    Local,
    Loop,
    LoopNest,
    Reduction,
    Stmt,
    Store,
    nodes,
)
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol, add, bounds, mul, product, substitute

SCORE, MAXIMUM, TOTAL, SUM = (Local(f"a{place}", "float32") for place in range(4))


@record
class Attention:
    """See the module. Loads and stores are multi-dimensional, over the axes' names; `score` is over `SCORE`, the values
    of `result` and `rows` over the others. `weights`: the type that exponentials are rounded to before they are
    multiplied with values."""

    batch: tuple[Axis, ...]
    row: Axis
    key: Axis
    inner: Axis
    column: Axis
    query: Load
    keys: Load
    values: Load
    score: Expr
    weights: str
    result: Store
    rows: tuple[Store, ...] = ()
    origin: Origin = field(default=Origin("", ""), compare=False)

    @cached_property
    def parts(self) -> tuple[Expr, ...]:
        """Every distinct node object, operands before users."""
        stored = [store.value for store in self.stores]
        return tuple(nodes([self.query, self.keys, self.values, self.score, *stored]))

    @property
    def stores(self) -> tuple[Store, ...]:
        return (*self.rows, self.result)

    @cached_property
    def read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([part.buffer for part in self.parts if type(part) is Load]))

    @property
    def written(self) -> tuple[str, ...]:
        return tuple([store.buffer for store in self.stores])

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.batch, self.row, self.key, self.inner, self.column)


def compute(op: str, *args: Expr, dtype: str = "float32") -> Compute:
    return Compute(op, args, dtype)


def widened(value: Expr) -> Expr:
    return value if value.dtype == "float32" else compute("cast", value)


def is_infinite(value: Expr) -> Expr:
    return compute("eq", compute("abs", value), Constant(float("inf"), "float32"), dtype="bool")


def shift(maximum: Expr) -> Expr:
    """What exponents are taken relative to: where all scores are -inf, their differences to it would be NaN."""
    return compute("where", is_infinite(maximum), Constant(0.0, "float32"), maximum)


def exponential(score: Expr, maximum: Expr) -> Expr:
    return compute("exp", compute("sub", score, shift(maximum)))


def replaced(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`expr` with locals replaced; what holds none of them stays the same object."""
    memo: dict[int, Expr] = {}

    def walk(part: Expr) -> Expr:
        found = memo.get(id(part))
        if found is not None:
            return found
        new = part
        if type(part) is Local:
            new = values.get(part, part)
        elif type(part) is Compute:
            args = tuple([walk(arg) for arg in part.args])
            if any(one is not other for one, other in zip(args, part.args)):
                new = Compute(part.op, args, part.dtype)
        elif type(part) is Load and (part.indirect or part.mask is not None):
            indirect = tuple([(name, walk(bound)) for name, bound in part.indirect])
            mask = walk(part.mask) if part.mask is not None else None
            new = Load(part.buffer, part.index, part.dtype, indirect, mask, part.other)
        memo[id(part)] = new
        return new

    return walk(expr)


# -- Meaning ----------------------------------------------------------------------------------------------------------


def attention_nests(item: Attention, buffers: Mapping[str, Buffer]) -> tuple[list[LoopNest], dict[str, Buffer]]:
    """Loop nests that compute what `item` does, and the buffers between them."""
    name, rows = item.result.buffer, (*item.batch, item.row)
    symbols = {axis.name: Symbol(axis.name, 0, max(bounds(axis.extent)[1] - 1, 0)) for axis in item.axes}

    def index(*axes: Axis) -> tuple[Size, ...]:
        return tuple([symbols[axis.name] for axis in axes])

    def made(kind: str, *axes: Axis) -> Buffer:
        shape = tuple([axis.extent for axis in axes])
        strides = tuple([product(shape[place + 1 :]) for place in range(len(shape))])
        return Buffer(f"{name}.{kind}", "float32", shape, strides)

    def load(buffer: Buffer, *axes: Axis) -> Load:
        return Load(buffer.name, index(*axes), "float32")

    def nest(target: Buffer, axes: tuple[Axis, ...], value: Expr, op: str = "", over: Axis | None = None) -> LoopNest:
        fold = Reduction(op, (over,), "float32") if over is not None else None
        return LoopNest(axes, Store(target.name, index(*axes), value), fold, origin=item.origin)

    points, columns = (*rows, item.key), (*rows, item.column)
    scores, weights = made("scores", *points), made("weights", *points)
    maximum, total, summed = made("maximum", *rows), made("total", *rows), made("summed", *columns)
    power = exponential(replaced(item.score, {SCORE: load(scores, *points)}), load(maximum, *rows))
    stats: dict[Expr, Expr] = {
        MAXIMUM: load(maximum, *rows),
        TOTAL: load(total, *rows),
        SUM: load(summed, *columns),
    }
    rounded = compute("cast", load(weights, *points), dtype=item.weights) if item.weights != "float32" else None
    weight = load(weights, *points) if rounded is None else compute("cast", rounded)
    nests = [
        nest(scores, points, compute("mul", widened(item.query), widened(item.keys)), "sum", item.inner),
        nest(maximum, rows, replaced(item.score, {SCORE: load(scores, *points)}), "max", item.key),
        nest(weights, points, power),
        nest(total, rows, load(weights, *points), "sum", item.key),
        nest(summed, columns, compute("mul", weight, widened(item.values)), "sum", item.key),
    ]
    nests += [row_nest(item, store, buffers, maximum, total) for store in item.rows]
    result = item.result
    nests.append(
        LoopNest(columns, Store(result.buffer, result.index, replaced(result.value, stats)), origin=item.origin)
    )
    return nests, {buffer.name: buffer for buffer in (scores, weights, maximum, total, summed)}


def row_nest(item: Attention, store: Store, buffers: Mapping[str, Buffer], maximum: Buffer, total: Buffer) -> LoopNest:
    """The nest of one of the item's `rows`, where its statistics are in buffers over the batch and the rows."""
    # The batch may be several dimensions of the buffer: the nest runs over these.
    shape = buffers[store.buffer].shape
    axes = tuple([Axis(f"p{place}", extent) for place, extent in enumerate(shape) if store.index[place] != 0])
    parts = [Symbol(axis.name, 0, max(bounds(axis.extent)[1] - 1, 0)) for axis in axes]
    last = len(parts) - (item.row.name in [str(part) for part in store.index])
    whole: Size = 0
    for part, axis in zip(parts[:last], axes):
        whole = add(mul(whole, axis.extent), part)
    names = {item.row.name: parts[last] if last < len(parts) else 0, **{axis.name: whole for axis in item.batch}}
    found = [substitute(part, names) for part in store.index]
    at = tuple([names[axis.name] for axis in (*item.batch, item.row)])
    own: dict[Expr, Expr] = {MAXIMUM: Load(maximum.name, at, "float32"), TOTAL: Load(total.name, at, "float32")}
    return LoopNest(axes, Store(store.buffer, tuple(found), replaced(store.value, own)), origin=item.origin)


# -- Kernels ----------------------------------------------------------------------------------------------------------


def attention_body(item: Attention) -> tuple[Stmt, ...]:
    """The kernel of an `Attention` whose indices are flat."""

    def start(local: Local, op: str) -> Accumulator:
        return Accumulator(local.name, op, local.dtype)

    def over_keys(local: Local, value: Expr) -> Loop:
        factors = compute("mul", widened(item.query), widened(item.keys))
        inner = Loop(item.inner, (Accumulate(SCORE.name, factors),))
        return Loop(item.key, (start(SCORE, "sum"), inner, Accumulate(local.name, value)))

    power = exponential(item.score, MAXIMUM)
    weight = power if item.weights == "float32" else compute("cast", compute("cast", power, dtype=item.weights))
    summed = over_keys(SUM, compute("mul", weight, widened(item.values)))
    body: tuple[Stmt, ...] = (
        start(MAXIMUM, "max"),
        over_keys(MAXIMUM, item.score),
        start(TOTAL, "sum"),
        over_keys(TOTAL, power),
        *item.rows,
        Loop(item.column, (start(SUM, "sum"), summed, item.result)),
    )
    for axis in reversed((*item.batch, item.row)):
        body = (Loop(axis, body, "parallel"),)
    return body


def read_attention(kernel: Kernel) -> Attention | None:
    """The `Attention` that `kernel` was made of; None for other kernels."""
    outer: list[Axis] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
        outer.append(body[0].axis)
        body = body[0].body
    if not outer or len(body) < 5 or not isinstance(body[-1], Loop) or len(body[-1].body) != 3:
        return None
    scores, column = body[1], body[-1]
    result, rows = column.body[2], tuple([stmt for stmt in body[4:-1] if isinstance(stmt, Store)])
    if not isinstance(scores, Loop) or len(scores.body) != 3 or not isinstance(result, Store):
        return None
    inner, score, summed = scores.body[1], scores.body[2], column.body[1]
    if not isinstance(inner, Loop) or not isinstance(score, Accumulate) or not isinstance(summed, Loop):
        return None
    last = summed.body[-1]
    factors = inner.body[0].value if isinstance(inner.body[0], Accumulate) else None
    parts = last.value if isinstance(last, Accumulate) else None
    if not isinstance(factors, Compute) or not isinstance(parts, Compute) or {factors.op, parts.op} != {"mul"}:
        return None
    query, keys = (_narrow(factor) for factor in factors.args)
    values, weight = _narrow(parts.args[1]), _narrow(parts.args[0])
    if not isinstance(query, Load) or not isinstance(keys, Load) or not isinstance(values, Load):
        return None
    found = Attention(
        tuple(outer[:-1]), outer[-1], scores.axis, inner.axis, column.axis, query, keys, values, score.value,
        weight.dtype, result, rows,
    )  # fmt: skip
    return found if attention_body(found) == kernel.body else None


def _narrow(value: Expr) -> Expr:
    return value.args[0] if isinstance(value, Compute) and value.op == "cast" else value
