"""`WeightedSums`: rows weighed with functions of products, as one item of a program: attention's derivatives. No torch.

    for b<8, i<128:
      score[j], slope[j] = sum(d<64) query[b, i, d] * keys[b, j, d], sum(e<64) tangent[b, i, e] * values[b, j, e]
      sum[d] = sum(j<128) f(score[j], slope[j]) * keys[b, j, d]      f: any function of both, b, i, j and buffers
      result[b, i, d] = g(sum[d])

With i for a row of q it is the gradient of q; with i for a key and j for the rows of q, those of k and v, which are
two sums over the same products. What stands for `f` is an expression of the loop IR over `PRODUCTS`, for `g` one over
`SUM`.

A kernel of it (`sums_body`, read back by `read_sums`) is a tree of loops which computes the products anew for each
element of a sum. That is its meaning, not the way it is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property

from lampwork.ir.attention import Attention, attention_nests, compute, replaced, widened
from lampwork.ir.location import Origin
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Buffer,
    Compute,
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
from lampwork.ir.size import Size, Symbol, bounds, product

PRODUCTS = (Local("a0", "float32"), Local("a1", "float32"))
SUM = Local("a2", "float32")


@record
class RowProduct:
    """`sum(inner) left * right`: `left` is over the item's rows, `right` over what is summed."""

    inner: Axis
    left: Load
    right: Load


@record
class WeightedSum:
    """`weight` is over `PRODUCTS`, and rounded to `dtype` before it is multiplied with `factor`; what is stored is over
    `SUM`."""

    column: Axis
    weight: Expr
    dtype: str
    factor: Load
    result: Store


@record
class WeightedSums:
    """See the module. Loads and stores are multi-dimensional, over the axes' names."""

    batch: tuple[Axis, ...]
    row: Axis
    key: Axis
    products: tuple[RowProduct, ...]
    sums: tuple[WeightedSum, ...]
    origin: Origin = field(default=Origin("", ""), compare=False)

    @cached_property
    def parts(self) -> tuple[Expr, ...]:
        """Every distinct node object, operands before users."""
        found: list[Expr] = [load for each in self.products for load in (each.left, each.right)]
        for each in self.sums:
            found += [each.weight, each.factor, each.result.value]
        return tuple(nodes(found))

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple([each.result for each in self.sums])

    @cached_property
    def read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([part.buffer for part in self.parts if type(part) is Load]))

    @property
    def written(self) -> tuple[str, ...]:
        return tuple([store.buffer for store in self.stores])

    @property
    def axes(self) -> tuple[Axis, ...]:
        inner = [each.inner for each in self.products]
        return (*self.batch, self.row, self.key, *inner, *(each.column for each in self.sums))


def _weighed(each: WeightedSum, weight: Expr) -> Expr:
    if each.dtype != "float32":
        weight = compute("cast", compute("cast", weight, dtype=each.dtype))
    return compute("mul", weight, widened(each.factor))


# -- Meaning ----------------------------------------------------------------------------------------------------------


def sums_nests(item: WeightedSums, buffers: Mapping[str, Buffer]) -> tuple[list[LoopNest], dict[str, Buffer]]:
    """Loop nests that compute what `item` does, and the buffers between them."""
    name, rows = item.written[0], (*item.batch, item.row)
    symbols = {axis.name: Symbol(axis.name, 0, max(bounds(axis.extent)[1] - 1, 0)) for axis in item.axes}
    between: dict[str, Buffer] = {}

    def index(axes: Iterable[Axis]) -> tuple[Size, ...]:
        return tuple([symbols[axis.name] for axis in axes])

    def made(kind: str, *axes: Axis) -> Buffer:
        shape = tuple([axis.extent for axis in axes])
        strides = tuple([product(shape[place + 1 :]) for place in range(len(shape))])
        between[f"{name}.{kind}"] = Buffer(f"{name}.{kind}", "float32", shape, strides)
        return between[f"{name}.{kind}"]

    def nest(target: Buffer, axes: tuple[Axis, ...], value: Expr, over: Axis) -> LoopNest:
        store = Store(target.name, index(axes), value)
        return LoopNest(axes, store, Reduction("sum", (over,), "float32"), origin=item.origin)

    points = (*rows, item.key)
    nests: list[LoopNest] = []
    products: dict[Expr, Expr] = {}
    for place, each in enumerate(item.products):
        buffer = made(f"product{place}", *points)
        nests.append(nest(buffer, points, compute("mul", widened(each.left), widened(each.right)), each.inner))
        products[PRODUCTS[place]] = Load(buffer.name, index(points), "float32")
    for place, sum_ in enumerate(item.sums):
        columns = (*rows, sum_.column)
        summed = made(f"summed{place}", *columns)
        nests.append(nest(summed, columns, _weighed(sum_, replaced(sum_.weight, products)), item.key))
        value = replaced(sum_.result.value, {SUM: Load(summed.name, index(columns), "float32")})
        nests.append(LoopNest(columns, Store(sum_.result.buffer, sum_.result.index, value), origin=item.origin))
    return nests, between


def nests_of(item: Attention | WeightedSums, buffers: Mapping[str, Buffer]) -> tuple[list[LoopNest], dict[str, Buffer]]:
    """What an item means that stands for several loop nests."""
    return attention_nests(item, buffers) if isinstance(item, Attention) else sums_nests(item, buffers)


# -- Kernels ----------------------------------------------------------------------------------------------------------


def sums_body(item: WeightedSums) -> tuple[Stmt, ...]:
    """The kernel of a `WeightedSums` whose indices are flat."""

    def of_key(each: WeightedSum) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for local, factors in zip(PRODUCTS, item.products):
            value = compute("mul", widened(factors.left), widened(factors.right))
            found += [_zero(local), Loop(factors.inner, (Accumulate(local.name, value),))]
        return (*found, Accumulate(SUM.name, _weighed(each, each.weight)))

    body: tuple[Stmt, ...] = tuple(
        [Loop(each.column, (_zero(SUM), Loop(item.key, of_key(each)), each.result)) for each in item.sums]
    )
    for axis in reversed((*item.batch, item.row)):
        body = (Loop(axis, body, "parallel"),)
    return body


def _zero(local: Local) -> Accumulator:
    return Accumulator(local.name, "sum", local.dtype)


def read_sums(kernel: Kernel) -> WeightedSums | None:
    """The `WeightedSums` that `kernel` was made of; None for other kernels."""
    outer: list[Axis] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
        outer.append(body[0].axis)
        body = body[0].body
    if not outer or not body:
        return None
    key: Axis | None = None
    products: tuple[RowProduct, ...] = ()
    sums: list[WeightedSum] = []
    for loop in body:
        if not isinstance(loop, Loop) or len(loop.body) != 3:
            return None
        over, result = loop.body[1], loop.body[2]
        if not isinstance(over, Loop) or not isinstance(result, Store) or len(over.body) not in (3, 5):
            return None
        last, inner = over.body[-1], over.body[1:-1:2]
        key, products = over.axis, tuple(filter(None, map(_read_product, inner)))
        factors = last.value if isinstance(last, Accumulate) else None
        if not isinstance(factors, Compute) or factors.op != "mul":
            return None
        weight, factor = factors.args[0], _narrow(factors.args[1])
        dtype = "float32"
        if _is_cast(weight) and _is_cast(weight.args[0]) and weight.args[0].dtype != "float32":  # type: ignore[union-attr]
            dtype, weight = weight.args[0].dtype, weight.args[0].args[0]  # type: ignore[union-attr]
        if not isinstance(factor, Load):
            return None
        sums.append(WeightedSum(loop.axis, weight, dtype, factor, result))
    if key is None or not products:
        return None
    found = WeightedSums(tuple(outer[:-1]), outer[-1], key, products, tuple(sums))
    return found if sums_body(found) == kernel.body else None


def _read_product(loop: Stmt) -> RowProduct | None:
    if not isinstance(loop, Loop) or not isinstance(loop.body[0], Accumulate):
        return None
    value = loop.body[0].value
    if not isinstance(value, Compute) or value.op != "mul":
        return None
    left, right = (_narrow(factor) for factor in value.args)
    if not isinstance(left, Load) or not isinstance(right, Load):
        return None
    return RowProduct(loop.axis, left, right)


def _is_cast(value: Expr) -> bool:
    return isinstance(value, Compute) and value.op == "cast"


def _narrow(value: Expr) -> Expr:
    return value.args[0] if isinstance(value, Compute) and value.op == "cast" else value
