"""Sums of exponentials in the pass that finds the maximum: a long row of a softmax is read once less.

    accumulator a0 max; for i1: a0 <- x[i1]                       for i1: (a0, a1) <- x[i1]
    accumulator a1 sum; for i2: a1 <- exp(x[i2] - a0)      ->     where a1 is the sum of exp(x - a0) for the a0 so far

When the maximum grows, the sum so far is scaled (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867).
Precondition: a kernel that folds the row block by block. Licence: `reassociates`; NaN and infinities come out the same.
"""

from __future__ import annotations

from dataclasses import replace

from lampwork.codegen.triton.tiles import MOST_WARPS, Form, Nest, Rescaled, Tiling
from lampwork.ir.loops import FIRSTS, Accumulate, Accumulator, Compute, Expr, Index, Let, Load, Local, Store, children
from lampwork.ir.size import Size, Symbol, substitute

#: Neighbours that are summed with one shift: an exponential for each and one to rescale, where two for each would bind
#: a GPU (H100, rows of 32000 in bfloat16: 94% of copy bandwidth; 55% without groups, 84% with two passes).
RESCALED_GROUP = 8
#: Percent of a row that the empty part of its last block may add.
MOST_EMPTY = 3
#: Elements of a row that one thread folds at a time.
THREAD_ELEMENTS = 16


def merge_exponential_sums(form: Form) -> Form:
    """`form` with such pairs of nests merged."""
    row = list(form.row)
    accumulators = {stmt.name: stmt for stmt in row if isinstance(stmt, Accumulator)}
    for place, first in enumerate(row):
        if not isinstance(first, Nest):
            continue
        later = next((k for k in range(place + 1, len(row)) if isinstance(row[k], Nest)), None)
        second = row[later] if later is not None else None
        found = _pair(first, second, accumulators) if isinstance(second, Nest) else None
        if found is None:
            continue
        assert later is not None
        merged = [*row[:place], accumulators[found.total], Nest(first.axes, (found,)), *row[place + 1 : later]]
        return merge_exponential_sums(replace(form, row=(*merged, *row[later + 1 :])))
    return form


def summed_exponentials(form: Form) -> frozenset[str]:
    """The accumulators of such sums in `form` whose exponentials nothing else can use: only the sum has to be exact."""
    accumulators = {stmt.name: stmt for stmt in form.row if isinstance(stmt, Accumulator)}
    found = set()
    nests = form.nests
    for first, second in zip(nests, nests[1:]):
        pair = _pair(first, second, accumulators)
        if pair is None:
            continue
        values = [stmt.value for nest in nests if nest is not second for stmt in nest.body]
        values += [stmt.value for stmt in form.row if isinstance(stmt, (Let, Store))]
        if not any(_takes_exponential(value, pair.maximum) for value in values):
            found.add(pair.total)
    return frozenset(found)


def _takes_exponential(expr: Expr, maximum: str, inside: bool = False) -> bool:
    """Whether an exponential of something made of `maximum` is in `expr`."""
    if isinstance(expr, Local):
        return inside and expr.name == maximum
    inside = inside or isinstance(expr, Compute) and expr.op == "exp"
    return any(_takes_exponential(child, maximum, inside) for child in children(expr))


def online_tiling(tiling: Tiling, length: int) -> Tiling:
    """The same tile with as many threads as a merged pass wants: more elements each are registers, fewer are waits.

    Blocks are halved where that leaves less of the last one empty (H200, rows of 50257: 98% of copy bandwidth with
    blocks of 2048 and 4 warps, 96% with 8 warps; rows of 32000 do not care).
    """
    half = tiling.r_block // 2
    spared = -(-length // tiling.r_block) * tiling.r_block - -(-length // half) * half
    block = half if 100 * spared > MOST_EMPTY * length else tiling.r_block
    warps = max(1, min(tiling.x_block * block // (32 * THREAD_ELEMENTS), MOST_WARPS))
    return replace(tiling, r_block=block, num_warps=warps)


def _pair(first: Nest, second: Nest, accumulators: dict[str, Accumulator]) -> Rescaled | None:
    if len(first.body) != 1 or len(second.body) != 1:
        return None
    top, total = first.body[0], second.body[0]
    if not isinstance(top, Accumulate) or not isinstance(total, Accumulate):
        return None
    for stmt, op in ((top, "max"), (total, "sum")):
        found = accumulators[stmt.name]
        if (FIRSTS.get(found.op, found.op), found.dtype) != (op, "float32"):
            return None
    power = total.value
    if not (isinstance(power, Compute) and power.op == "exp"):
        return None
    difference = power.args[0]
    if not (isinstance(difference, Compute) and difference.op == "sub"):
        return None
    value, subtracted = difference.args
    if subtracted != Local(top.name, "float32"):
        return None
    if [axis.extent for axis in first.axes] != [axis.extent for axis in second.axes]:
        return None
    names: dict[str, Size] = {}
    for one, other in zip(second.axes, first.axes):
        upper = one.extent - 1 if isinstance(one.extent, int) else None
        if upper is None:
            return None
        names[one.name] = Symbol(other.name, 0, upper)
    return Rescaled(top.name, total.name, top.value) if _renamed(value, names) == top.value else None


def _renamed(expr: Expr, names: dict[str, Size]) -> Expr:
    if isinstance(expr, Compute):
        return Compute(expr.op, tuple(_renamed(arg, names) for arg in expr.args), expr.dtype)
    if isinstance(expr, Index):
        return Index(substitute(expr.value, names))
    if isinstance(expr, Load):
        return replace(
            expr,
            index=tuple(substitute(part, names) for part in expr.index),
            indirect=tuple((name, _renamed(value, names)) for name, value in expr.indirect),
            mask=None if expr.mask is None else _renamed(expr.mask, names),
        )
    return expr
