"""Stages between the passes of scheduling, as loop nests that the interpreter runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lampwork.debug.interpret.nests import Nests
from lampwork.ir.loops import Axis, Buffer, LoopNest, Reduction, Store
from lampwork.ir.program import Item, Lowered
from lampwork.ir.size import Symbol
from lampwork.schedule.expressions import Pool, rewriter, substitute_sizes
from lampwork.schedule.group import FusionGroup, Member
from lampwork.schedule.inline import Operator


def run_items(lowered: Lowered, items: Sequence[Item], buffers: Mapping[str, Buffer], inputs: list[Any]) -> list[Any]:
    """The results of the program where these items stand for its own, its writes among them."""
    return Nests(replace(lowered, items=tuple(items), buffers=buffers, writes=(), copies=()), inputs).run()


# What scheduling makes of nests, as nests ----------------------------------------------------------------------------


def nest_of(operator: Operator) -> LoopNest:
    """The nest that computes what an operator does, whose producers are part of its value."""
    store = replace(operator.store, value=operator.value)
    return LoopNest(operator.axes, store, operator.reduction, operator.partial, operator.origins[-1])


def nests_of(group: FusionGroup) -> list[LoopNest]:
    """The nests of a group's members over the axes that they share."""
    return [_over_atoms(group, member) for member in group.members]


def _over_atoms(group: FusionGroup, member: Member) -> LoopNest:
    operator = member.operator
    if operator.reduction is not None and operator.reduction.op.startswith("arg"):
        return nest_of(operator)  # positions are counted over its own axes
    pool = Pool()
    values = {
        name: substitute_sizes(value, {}) if not isinstance(value, int) else value
        for name, value in member.values.items()
    }
    rewrite = rewriter(
        pool, values,
        lambda load, index, indirect, mask: pool.load(load.buffer, index, load.dtype, indirect, mask, load.other),
    )  # fmt: skip
    value = rewrite(operator.value)
    names: dict[str, Any] = {}
    indirect = []
    for name, bound in operator.store.indirect:
        made = rewrite(bound)
        new = pool.symbol_of(made)
        names[name] = Symbol(new)
        indirect.append((new, made))
    index = tuple(substitute_sizes(part, {**values, **names}) for part in operator.store.index)
    axes = tuple(Axis(atom, group.extents[atom]) for atom in member.kept)
    reduction = operator.reduction
    if reduction is not None:
        reduction = Reduction(
            reduction.op, tuple(Axis(atom, group.extents[atom]) for atom in member.reduced), reduction.dtype
        )
    store = Store(operator.store.buffer, index, value, operator.store.mode, tuple(indirect))
    return LoopNest(axes, store, reduction, operator.partial, operator.origins[-1])
