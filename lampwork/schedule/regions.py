"""Concatenations of many large tensors in regions: an axis is cut where masks change along it, a kernel each.

    y[i] = x0[i] where i < 4096 else x1[i - 4096]      ->      y[i] = x0[i]        for i in 0..4096
                                                               y[i] = x1[i - 4096] for i in 4096..8192

Inside a region the comparisons are known, so nothing is masked. Precondition: a group after fusion. Guarantee: the
regions store every element that the group stores, once. Non-goals: reductions, dynamic sizes, regions so small that a
launch would cost more than their masks.
"""

from __future__ import annotations

from dataclasses import replace

from lampwork.ir.loops import Compute, Constant, Expr, Index, Load, children, nodes
from lampwork.ir.size import Size, Sum, Symbol, add, bounds
from lampwork.schedule.expressions import Pool, substitute_sizes
from lampwork.schedule.group import FusionGroup, Member, loop_symbol
from lampwork.schedule.inline import Operator

#: A launch on all threads costs about as much as this many elements; borders of a pad stay with its inside.
SMALLEST_REGION = 1 << 16
#: Two or three masked loads run as fast as memory does (measured: cat of two [2048, 512] 0.46 ms, in regions 0.77 ms,
#: whose stores are far from each other; cat of eight [1024, 256] 2.3 ms, in regions 0.79 ms).
FEWEST_REGIONS, MOST_REGIONS = 4, 16
#: Comparison of an index with a constant -> by how much the first place with the other answer exceeds the constant.
_STEP = {"lt": 0, "ge": 0, "le": 1, "gt": 1}


def split_regions(group: FusionGroup, pool: Pool, mutable: frozenset[str]) -> list[FusionGroup]:
    """The group, or groups that together do its work, in any order."""
    if group.outer is not None or any(_keeps_order(member, group, mutable) for member in group.members):
        return [group]
    elements = 1
    for extent in group.extents.values():
        if not isinstance(extent, int):
            return [group]
        elements *= extent
    if elements < 2 * SMALLEST_REGION:
        return [group]
    for atom, places in _changes(group).items():
        extent = group.extents[atom]
        assert isinstance(extent, int)
        ends = [*sorted(places), extent]
        starts = [0, *ends[:-1]]
        if not FEWEST_REGIONS <= len(ends) <= MOST_REGIONS:
            continue
        smallest = min(end - start for start, end in zip(starts, ends))
        if smallest * (elements // extent) >= SMALLEST_REGION and 2 * smallest * len(ends) >= extent:
            return [
                part
                for start, end in zip(starts, ends)
                for part in split_regions(_region(group, atom, start, end, pool), pool, mutable)
            ]
    return [group]


def _keeps_order(member: Member, group: FusionGroup, mutable: frozenset[str]) -> bool:
    operator = member.operator
    if operator.reduction or operator.store.indirect or operator.store.mode != "write":
        return True
    # An overwritten buffer is read in the same iteration, not in another kernel.
    return member.buffer in mutable and any(
        load.buffer == member.buffer for other in group.members for load in other.operator.loads
    )


def _changes(group: FusionGroup) -> dict[str, set[int]]:
    """Places inside the range of each atom where a comparison with a constant changes its answer."""
    found: dict[str, set[int]] = {}
    for member in group.members:
        for node in nodes([member.operator.value]):
            compared = _comparison(node)
            if compared is None:
                continue
            value = substitute_sizes(compared[0], member.values)
            offset = 0
            if type(value) is Sum and len(value.terms) == 1 and value.terms[0][0] == 1:
                offset, value = value.constant, value.terms[0][1]
            if type(value) is not Symbol or value.name not in group.extents:
                continue
            place = compared[1] - offset + _STEP[compared[2]]
            if 0 < place <= value.upper:
                found.setdefault(value.name, set()).add(place)
    return found


def _comparison(node: Expr) -> tuple[Size, int, str] | None:
    if type(node) is Compute and node.op in _STEP and type(node.args[0]) is Index:
        limit = node.args[1]
        if type(limit) is Constant and isinstance(limit.value, int):
            return node.args[0].value, limit.value, node.op
    return None


def _region(group: FusionGroup, atom: str, start: int, end: int, pool: Pool) -> FusionGroup:
    """The group where `start <= atom < end`."""
    extents = {name: end - start if name == atom else extent for name, extent in group.extents.items()}
    if end - start == 1:
        del extents[atom]
        step: dict[str, Size] = {atom: start}
    else:
        step = {atom: add(loop_symbol(atom, end - start), start)}
    members = []
    for member in group.members:
        values = {name: substitute_sizes(value, step) for name, value in member.values.items()}
        kept = tuple(name for name in member.kept if name in extents)
        members.append(Member(_specialised(member.operator, values, pool), values, kept))
    return FusionGroup(extents, members, None, group.next_atom)


def _specialised(operator: Operator, values: dict[str, Size], pool: Pool) -> Operator:
    """The operator with comparisons replaced that the bounds of `values` decide."""
    memo: dict[int, Expr] = {}
    for node in nodes([operator.value]):
        memo[id(node)] = _folded(node, memo, values, pool)
    value = memo[id(operator.value)]
    loads = [node for node in nodes([value]) if type(node) is Load]
    return replace(operator, value=value, store=replace(operator.store, value=value), loads=loads)


def _folded(node: Expr, memo: dict[int, Expr], values: dict[str, Size], pool: Pool) -> Expr:
    """`node` with operands as `memo` has them."""
    compared = _comparison(node)
    if compared is not None:
        low, high = bounds(substitute_sizes(compared[0], values))
        limit = compared[1] + _STEP[compared[2]]
        less = compared[2] in ("lt", "le")
        if high < limit:
            return pool.constant(less, "bool")
        if low >= limit:
            return pool.constant(not less, "bool")
        return node
    if type(node) is Load:
        mask = memo[id(node.mask)] if node.mask is not None else None
        if type(mask) is Constant:
            if not mask.value:
                return pool.constant(node.other, node.dtype)
            mask = None
        indirect = tuple((name, memo[id(value)]) for name, value in node.indirect)
        return pool.load(node.buffer, node.index, node.dtype, indirect, mask, node.other)
    if type(node) is not Compute:
        return node
    args = tuple([memo[id(child)] for child in children(node)])
    if node.op == "where" and type(args[0]) is Constant:
        return args[1] if args[0].value else args[2]
    if node.dtype == "bool" and node.op in ("and", "or", "not"):
        if node.op == "not" and type(args[0]) is Constant:
            return pool.constant(not args[0].value, "bool")
        for one, other in (args, args[::-1]) if len(args) == 2 else ():
            if type(one) is Constant:
                decides = bool(one.value) == (node.op == "or")
                return one if decides else other
    return pool.compute(node.op, args, node.dtype)
