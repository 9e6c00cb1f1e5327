"""The loops of one kernel for a GPU: independent programs outside, one index space for each phase inside.

    row-wise softmax [4096, 768]     parallel i0 in 4096: vector i1 in 768 (three times)
    sum down columns [768, 4096]     parallel i0 in 4096: vector i1 in 768
    transpose [512, 500]             parallel i0 in 512, i1 in 500

Threads, blocks and registers are the code generator's choice: it reads strides and makes tiles. What a later phase
needs again is computed again, as nothing is handed from thread to thread but the results of reductions.

Precondition: members with their times. Guarantee: every atom is an expression of loop indices, and all phases over one
inner space run over it in the same way, so that a program that keeps a whole row shares what it loads.
"""

from __future__ import annotations

from lampwork.backends import backend_of
from lampwork.backends.backend import Kernels
from lampwork.ir.size import Size
from lampwork.ir.target import Target
from lampwork.schedule import loops as planning
from lampwork.schedule.expressions import affine_strides, substitute_sizes
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.loops import LoopPlan, PlannedLoop
from lampwork.schedule.timing import Phase, Timing

#: One multiprocessor folds so many elements (some 50 bytes a nanosecond) in the time that a second kernel, which adds
#: up partial results, takes.
LONG_ROW = 1 << 16
#: Results that lie side by side are folded so many at a time. One number for all element types: sums over the same
#: elements are cut alike, so that they share a kernel.
COLUMNS = 64
#: Programs that a multiprocessor should have where columns are cut: they are small, and some wait for memory while
#: others fold. (H100, gelu's derivative and its sum down 8192 x 3072 bfloat16: 130 us uncut; 95, 76 and 75 with 3, 6
#: and 12 of them.)
COLUMN_PROGRAMS = 5
#: Rows of a part of columns, at least.
FEWEST_ROWS = 64


def kernels_of(target: Target) -> Kernels:
    """What kernels for this machine can do, and what pays."""
    return backend_of(target.device).kernels


def leaves_idle(results: int, folded: int, side_by_side: bool, target: Target, again: bool = False) -> bool:
    """Whether a reduction with so few results keeps multiprocessors idle long enough to be cut in two stages.

    `again`: what is folded would be read again by the same kernel, where some of it still is in a cache.
    """
    if not side_by_side:
        return 2 * results <= target.threads and folded >= LONG_ROW
    # Three programs for two multiprocessors keep memory busy. With fewer, others would take over this share of it all.
    enough = target.threads if again else 3 * target.threads
    missing = enough - 2 * _column_programs(results)
    return folded * min(results, COLUMNS) * missing >= LONG_ROW * enough


def wanted_chunks(results: int, folded: int, side_by_side: bool, target: Target) -> int:
    """How many parts of a reduction together occupy all multiprocessors, with enough work each."""
    if not side_by_side:
        return max(2, min(-(-2 * target.threads // max(results, 1)), folded // (LONG_ROW // 16)))
    return max(2, min(COLUMN_PROGRAMS * target.threads // _column_programs(results), folded // FEWEST_ROWS))


def _column_programs(results: int) -> int:
    return max(-(-results // COLUMNS), 1)


def arrange_tiles(timing: Timing) -> LoopPlan:
    """Loops for all members."""
    group, plan = timing.group, LoopPlan()
    every = [access for _, access in timing.accesses]
    names = (f"i{number}" for number in range(1 << 30))
    outer = planning.order_atoms(group.outer_atoms, [a for a in every if a.store] if group.outer is None else every)
    for run, extent in planning.merge_atoms(outer, group.extents, _strides(timing, None)):
        loop = PlannedLoop(next(names), extent, "parallel")
        plan.outer.append(loop)
        _spread(plan.values, run, loop_symbol(loop.name, extent))
    for space in dict.fromkeys(timed.space for timed in timing.timed if timed.space):
        found = [access for timed, access in timing.accesses if timed.space == space]
        atoms = timing.window_order(space) or planning.order_atoms(timing.space_order(space), found)
        runs = planning.merge_atoms(atoms, group.extents, _strides(timing, space))
        for time in sorted({timed.time for timed in timing.timed if timed.space == space}):
            _plan_phase(plan, (space, time), runs, names)
    return plan


def _plan_phase(plan: LoopPlan, phase: Phase, runs, names) -> None:
    planned: list[PlannedLoop] = []
    values: dict[str, Size] = {}
    for run, extent in runs:
        loop = PlannedLoop(next(names), substitute_sizes(extent, plan.values))
        _spread(values, run, loop_symbol(loop.name, loop.extent))
        planned.append(loop)
    planned[-1].kind = "vector"
    plan.inner[phase], plan.inner_values[phase] = planned, values


def _strides(timing: Timing, space: frozenset[str] | None) -> list[tuple[dict[str, Size], frozenset[str]]]:
    """Strides of every offset and position that loops over `space` see; None: the outer loops, which see all."""
    extents = timing.group.extents
    inside = [timed for timed in timing.timed if space is None or timed.space <= space]
    found = [(access.strides, access.irregular) for timed, access in timing.accesses if timed in inside]
    found += [affine_strides(value, extents) for timed, value in timing.positions if timed in inside]
    found += [affine_strides(extent, extents) for extent in extents.values() if not isinstance(extent, int)]
    return found


def _spread(values: dict[str, Size], run: tuple[str, ...], index: Size) -> None:
    """Atoms of a merged run: offsets see only the last one, which carries the whole index."""
    for atom in run[:-1]:
        values[atom] = 0
    values[run[-1]] = index
