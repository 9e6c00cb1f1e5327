"""Inlining: a pointwise nest disappears into the nests that read it.

    t[i, j] = exp(x[i, j])                      y[i] = sum_j(exp(x[i, j]) * w[j])
    y[i] = sum_j(t[i, j] * w[j])         ->

Indices are multi-dimensional, so the consumer's index replaces the producer's axes. A nest is inlined when that costs
no more work or memory traffic than storing it (see `_worth_inlining`); otherwise it stays, and fusion may still put
it in
its consumers' kernel. Precondition: nests in program order, buffers of one segment. Guarantee: the operators returned
compute every live-out buffer, in program order. Non-goal: removing stores; a live-out nest stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lampwork.ir.loops import Axis, Buffer, Compute, Expr, Load, LoopNest, Origin, Reduction, Store, nodes
from lampwork.ir.scalar_operators import SCALARS
from lampwork.ir.size import Size, Symbol, product, symbols
from lampwork.schedule.expressions import (
    EXPENSIVE,
    Pool,
    estimate,
    find_symbol,
    height,
    operation_cost,
    rewriter,
    substitute_sizes,
)
from lampwork.schedule.masks import simplify_masks
from lampwork.turns import give_way

#: Uses of one producer beyond which it is stored: bounds the work of analysis and the size of kernels.
MOST_USES = 16
#: Total operations that inlining one chain into several consumers may repeat.
MOST_REPEATED = 24
#: Operations that may depend on one another in one expression: passes over expressions are recursive.
DEEPEST = 96
#: A hoisted value may add one operation to this many elements of its consumer.
HOISTED_SHARE = 8
#: One reader may compute a value this share more often than it has elements: it pads.
PADDED_SHARE = 8


@dataclass(eq=False)
class Operator:
    """A nest whose producers may have been inlined: `store.buffer[store.index] = reduce(value)` over `axes`.

    `value` is pooled; `loads` are its distinct loads, those in masks and gathers included.
    """

    position: int
    axes: tuple[Axis, ...]
    reduction: Reduction | None
    value: Expr
    store: Store
    partial: bool
    loads: list[Load]
    cost: int
    origins: tuple[Origin, ...] = ()
    domain: tuple[Axis, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.domain = self.axes + (self.reduction.axes if self.reduction else ())


@dataclass
class _Nest:
    """What the decision needs to know of one nest."""

    nest: LoopNest
    loads: list[Load]
    cost: int
    domain: tuple[Axis, ...]
    height: int
    uses: dict[tuple[int, tuple[Size, ...]], None]
    inlined: bool = False
    blocked: bool = False
    masked: bool = False
    dead: bool = False
    repeated: int = 0
    #: How many operations of the consumers depend on it one after the other.
    depth: int = 0


def inline(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    written_at: Mapping[str, Sequence[int]],
    pool: Pool,
) -> list[Operator]:
    """The nests that remain, with everything inlined into them.

    `written_at`: for each buffer stored by several nests or visible to the caller, the positions (in `nests`) of its
    stores; all other buffers are written once, before they are read.
    """
    infos = [_inspect(nest) for nest in nests]
    producers = {
        info.nest.store.buffer: number
        for number, info in enumerate(infos)
        if _inlinable(info.nest, buffers, written_at) and info.nest.store.buffer not in live_out
    }
    _drop_dead(infos, live_out, written_at)
    _decide(infos, producers, buffers, written_at)
    return [
        _expand(number, infos, producers, buffers, pool)
        for number, info in enumerate(infos)
        if not info.inlined and not info.dead
    ]


def _drop_dead(infos: Sequence[_Nest], live_out: frozenset[str], written_at: Mapping[str, Sequence[int]]) -> None:
    """Marks nests whose result nobody reads."""
    read = set(live_out) | set(written_at)
    for info in reversed(infos):
        if info.nest.store.buffer in read:
            read.update(load.buffer for load in info.loads)
        else:
            info.dead = True


def _inspect(nest: LoopNest) -> _Nest:
    values = [nest.store.value, *(value for _, value in nest.store.indirect)]
    loads, cost = [], 0
    below = nodes(values)
    for node in below:
        if type(node) is Load:
            loads.append(node)
        elif type(node) is Compute:
            cost += operation_cost(node)
    domain = nest.axes + (nest.reduction.axes if nest.reduction else ())
    return _Nest(nest, loads, cost, domain, height(below), {})


def _inlinable(nest: LoopNest, buffers: Mapping[str, Buffer], written_at: Mapping[str, Sequence[int]]) -> bool:
    store = nest.store
    if nest.reduction or nest.partial or store.mode != "write" or store.indirect or store.buffer in written_at:
        return False
    return buffers[store.buffer].kind == "intermediate" and stores_every_element(nest)


def stores_every_element(nest: LoopNest | Operator) -> bool:
    """Whether each dimension of the store index is an axis of its own, or 0: then loads can be mapped back to axes."""
    names = {axis.name for axis in nest.axes}
    seen = set()
    for part in nest.store.index:
        if type(part) is Symbol and part.name in names and part.name not in seen:
            seen.add(part.name)
        elif part != 0:
            return False
    return len(seen) == len(names) or all(axis.extent == 1 for axis in nest.axes if axis.name not in seen)


def axis_values(nest: LoopNest | Operator, index: Sequence[Size]) -> dict[str, Size]:
    """The producer's axes when element `index` of its buffer is asked for."""
    values: dict[str, Size] = {axis.name: 0 for axis in nest.axes}
    for part, value in zip(nest.store.index, index):
        if type(part) is Symbol:
            values[part.name] = value
    return values


def _decide(
    infos: list[_Nest],
    producers: Mapping[str, int],
    buffers: Mapping[str, Buffer],
    written_at: Mapping[str, Sequence[int]],
) -> None:
    """Consumers first, so that a producer sees the nests it would really end up in."""
    for number in range(len(infos) - 1, -1, -1):
        info = infos[number]
        if info.dead:
            continue
        if info.nest.store.buffer in producers:
            info.inlined = _worth_inlining(info, infos) and _readable(number, info, infos, written_at)
        places: list[tuple[int, dict[str, Size] | None]]
        if info.inlined:
            places = [(root, axis_values(info.nest, index)) for root, index in info.uses]
            repeated = info.repeated + (info.cost if len(places) > 1 else 0)
        else:
            places, repeated = [(number, None)], 0
        for load in info.loads:
            producer = producers.get(load.buffer)
            if producer is None:
                continue
            target = infos[producer]
            target.repeated = max(target.repeated, repeated)
            target.depth = max(target.depth, info.height + (info.depth if info.inlined else 0))
            for root, values in places:
                index = load.index if values is None else tuple([substitute_sizes(p, values) for p in load.index])
                target.uses[root, index] = None
                target.masked |= load.mask is not None or (info.inlined and info.masked)
                target.blocked |= target.masked and _traps(target.nest)


def _traps(nest: LoopNest) -> bool:
    """Integer division, which must not run on the made-up operands of a masked-off load."""
    return any(
        type(node) is Compute and SCALARS[node.op].divides and not node.dtype.startswith("f")
        for node in nodes([nest.store.value])
    )


def _worth_inlining(info: _Nest, infos: Sequence[_Nest]) -> bool:
    uses = len(info.uses)
    if uses > MOST_USES or info.blocked or info.depth + info.height > DEEPEST:
        return False
    numel = max(estimate(product(axis.extent for axis in info.nest.axes)), 1)
    evaluations = sum(_evaluations(infos[root].domain, index) for root, index in info.uses) / numel
    if evaluations <= 1 or (uses == 1 and evaluations <= 1 + 1 / PADDED_SHARE):
        return True
    total = sum(estimate(product(axis.extent for axis in infos[root].domain)) for root, _ in info.uses)
    if evaluations * numel * info.cost * HOISTED_SHARE <= total and info.cost + info.repeated <= MOST_REPEATED:
        return True  # Computed once per row of the consumer: a few operations more there are nothing.
    if info.cost >= EXPENSIVE or info.repeated + info.cost > MOST_REPEATED:
        return False
    if uses == 1:
        return info.cost <= 3
    # Bytes, in units of this buffer: every use reads the inputs again, or one nest reads them, writes, and all read.
    inputs = sum(_share(load, info.nest.axes, numel) for load in info.loads)
    return uses * inputs <= inputs + 1 + uses


def _evaluations(domain: tuple[Axis, ...], index: tuple[Size, ...]) -> int:
    """How often the value is computed: trailing axes that `index` lacks do not count, the value is hoisted out of
    them."""
    used = frozenset().union(*(symbols(part) for part in index)) if index else frozenset()
    if used - {axis.name for axis in domain}:
        return estimate(product(axis.extent for axis in domain))  # A gather, or a dynamic offset.
    last = max((place for place, axis in enumerate(domain) if axis.name in used), default=-1)
    return estimate(product(axis.extent for axis in domain[: last + 1]))


def _share(load: Load, axes: tuple[Axis, ...], numel: int) -> float:
    """Elements `load` touches per element produced; gathers and masked loads count double."""
    if load.indirect:
        return 2.0
    used = frozenset().union(*(symbols(part) for part in load.index)) if load.index else frozenset()
    touched = estimate(product(axis.extent for axis in axes if axis.name in used))
    return min(1.0, touched / numel) * (1.0 if load.mask is None else 2.0)


def _readable(number: int, info: _Nest, infos: Sequence[_Nest], written_at: Mapping[str, Sequence[int]]) -> bool:
    """Whether what this nest loads is still there when its consumers run."""
    for load in info.loads:
        positions = written_at.get(load.buffer)
        if not positions:
            continue
        for root, index in info.uses:
            if any(number < position < root for position in positions):
                return False
            if root in positions:
                values = axis_values(info.nest, index)
                if tuple(substitute_sizes(part, values) for part in load.index) != infos[root].nest.store.index:
                    return False
    return True


def _expand(
    number: int, infos: list[_Nest], producers: Mapping[str, int], buffers: Mapping[str, Buffer], pool: Pool
) -> Operator:
    give_way()
    origins: list[Origin] = []
    values: dict[tuple, Expr] = {}

    def on_load(load: Load, index: tuple[Size, ...], indirect: tuple, mask: Expr | None) -> Expr:
        producer = producers.get(load.buffer)
        if producer is None or not infos[producer].inlined:
            return pool.load(load.buffer, index, load.dtype, indirect, mask, load.other)
        key = (producer, index, tuple((name, id(value)) for name, value in indirect), id(mask), repr(load.other))
        value = values.get(key)
        if value is None:
            source = infos[producer].nest
            origins.append(source.origin)

            def on_inner_load(inner: Load, inner_index: tuple, inner_indirect: tuple, inner_mask: Expr | None) -> Expr:
                # The producer's index may use gathered integers of the consumer; its loads must not run where the
                # consumer's would not.
                bound = _merge_bindings(inner_index, inner_indirect, indirect)
                both = _conjunction(pool, mask, inner_mask)
                return on_load(inner, inner_index, bound, both)

            rewrite = rewriter(pool, axis_values(source, index), on_inner_load, dict(indirect))
            value = rewrite(source.store.value)
            value = pool.compute("cast", (value,), load.dtype)
            if mask is not None:
                value = pool.compute("where", (mask, value, pool.constant(load.other, load.dtype)), load.dtype)
            values[key] = value
        return value

    nest = infos[number].nest
    reduction = nest.reduction
    of_one = reduction if reduction is not None and all(axis.extent == 1 for axis in reduction.axes) else None
    rewrite = rewriter(pool, {axis.name: 0 for axis in of_one.axes} if of_one is not None else {}, on_load)
    value = rewrite(nest.store.value)
    if of_one is not None:
        # One element folds to itself, at position 0.
        is_position = of_one.op.startswith("arg")
        value = pool.constant(0, "int64") if is_position else pool.compute("cast", (value,), of_one.dtype)
        reduction = None
    axes = nest.axes + (reduction.axes if reduction is not None else ())
    bound_values = [rewrite(bound) for _, bound in nest.store.indirect]
    value, *bound_values = simplify_masks(pool, [value, *bound_values], axes)
    store_indirect: list[tuple[str, Expr]] = []
    names: dict[str, Size] = {}
    for (name, _), pooled in zip(nest.store.indirect, bound_values):
        from_symbol = next((s for s in (find_symbol(part, name) for part in nest.store.index) if s is not None), None)
        if from_symbol is not None:
            new_name = pool.symbol_of(pooled)
            names[name] = Symbol(new_name, from_symbol.lower, from_symbol.upper)
            store_indirect.append((new_name, pooled))
    index = tuple(substitute_sizes(part, names) for part in nest.store.index) if names else nest.store.index
    store = Store(nest.store.buffer, index, value, nest.store.mode, tuple(dict(store_indirect).items()))
    found = nodes([value, *(bound for _, bound in store_indirect)])
    return Operator(
        number,
        nest.axes,
        reduction,
        value,
        store,
        nest.partial,
        [node for node in found if type(node) is Load],
        sum(operation_cost(node) for node in found),
        (*origins, nest.origin),
    )


def _merge_bindings(index: tuple[Size, ...], own: tuple, outer: tuple) -> tuple:
    """Bindings of the symbols that `index` uses: the load's own, and those the consumer's index brought along."""
    if not outer:
        return own
    used = frozenset().union(*(symbols(part) for part in index)) if index else frozenset()
    merged = dict(own)
    for name, value in outer:
        if name in used:
            merged[name] = value
    return tuple(merged.items())


def _conjunction(pool: Pool, left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None or left is right:
        return right if left is None else left
    return pool.compute("and", (left, right), "bool")
