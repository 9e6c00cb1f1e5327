"""Loop order of one kernel: which axis is contiguous, which axes merge, what runs in parallel.

    atoms of the group      a row-wise softmax [32, 128, 768], reduced over the last axis
    -> order, merged        outer [4096], inner [768]
    -> loops                parallel i0 in 4096 (grain 20) / vector i1 in 768

Analysis reads flat offsets only: a stride is the coefficient of an atom in an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from lampwork.ir.loops import LoopKind
from lampwork.ir.record import record
from lampwork.ir.size import Size, add, floordiv, minimum, mul
from lampwork.ir.target import Target
from lampwork.schedule.expressions import affine_strides, estimate
from lampwork.schedule.group import loop_symbol

#: A parallel region is worth its 0.5 us and the wake-up from this much work a thread on (measured on 2 cores, libgomp).
WORTH_A_THREAD_NS = 20_000
#: Enough iterations for any thread count we know to share evenly.
ENOUGH_ITERATIONS = 64
#: With fewer than this the vector loop is cut as well.
FEW_ITERATIONS = 32
#: Elements of one vector loop when a single long axis is cut for threads: 16 KB of float32, inside the first cache.
SMALLEST_CHUNK, LARGEST_CHUNK = 2048, 16384
#: Columns one thread reduces at a time: whole cache lines of every row it passes.
COLUMN_BLOCK = 128


@record(frozen=False, eq=False)
class Access:
    """One load or store as strides over atoms. `weight` is executions times bytes. `store` counts double."""

    offset: Size
    item_bytes: int
    store: bool
    elements: int
    strides: dict[str, Size] = field(default_factory=dict)
    irregular: frozenset[str] = frozenset()
    gathered: bool = False


@record(frozen=False, eq=False)
class PlannedLoop:
    """A loop to emit: atoms that it runs over are replaced by expressions in its symbol."""

    name: str
    extent: Size
    kind: LoopKind = "serial"
    grain: int = 1
    #: Each iteration adds up in accumulators of its own (see cascade.py).
    cascades: bool = False
    #: A piece of a loop that was cut: it never is empty.
    piece: bool = False


@record(frozen=False, eq=False)
class LoopPlan:
    """`values`: outer atoms as expressions of loop symbols. `inner`, `inner_values`: the same for each inner space (a
    set of atoms) and time."""

    outer: list[PlannedLoop] = field(default_factory=list)
    inner: dict[tuple[frozenset[str], int], list[PlannedLoop]] = field(default_factory=dict)
    inner_values: dict[tuple[frozenset[str], int], dict[str, Size]] = field(default_factory=dict)
    values: dict[str, Size] = field(default_factory=dict)
    column_mode: bool = False


def make_access(
    offset: Size, item_bytes: int, store: bool, atoms: Sequence[str], extents: dict[str, Size], gathered: bool
) -> Access:
    """The access of a member that runs over `atoms`."""
    elements = 1
    for atom in atoms:
        elements *= max(estimate(extents[atom]), 1)
    strides, irregular = affine_strides(offset, extents)
    return Access(offset, item_bytes, store, elements, strides, irregular, gathered)


#: Cost of one element by how an access meets the vector axis, relative to a contiguous load: gathers and scatters run
#: element by element, a broadcast is loaded once for the whole vector (or hoisted).
CONTIGUOUS, BROADCAST, GATHER, SCATTER = 1.0, 0.1, 8.0, 16.0
#: Adding up the lanes of one accumulator, and starting a loop, as so many bytes of contiguous access.
FOLD_COST = 160.0


def vector_cost(atom: str, accesses: Iterable[Access], extent: int, lanes: int) -> float:
    """Cost of all accesses when `atom` is the vector axis; short axes leave lanes empty."""
    cost = 0.0
    for access in accesses:
        weight = float(access.elements * access.item_bytes)
        stride = access.strides.get(atom, 0)
        if access.gathered or atom in access.irregular:
            each = SCATTER if access.store else GATHER
        elif stride == 1:
            each = CONTIGUOUS
        elif stride == 0:
            each = BROADCAST
        else:
            each = SCATTER if access.store else GATHER
        cost += weight * each
    return cost * max(1.0, lanes / max(extent, 1))


def order_atoms(atoms: Sequence[str], accesses: Sequence[Access]) -> list[str]:
    """Atoms by falling stride in the access that moves most, stores first: memory order."""
    if not accesses or len(atoms) < 2:
        return list(atoms)
    chosen = max(accesses, key=lambda access: access.elements * (2 if access.store else 1))
    place = {atom: number for number, atom in enumerate(atoms)}

    def key(atom: str) -> tuple[int, int]:
        stride = chosen.strides.get(atom)
        return (-estimate(stride) if stride is not None else 0, place[atom])

    if any(atom in chosen.irregular for atom in atoms):
        return list(atoms)
    return sorted(atoms, key=key)


def mergeable(first: str, second: str, second_extent: Size, strides: Sequence[tuple[dict, frozenset]]) -> bool:
    """Whether loops (first, second) are one loop: every offset has stride(first) == stride(second) * extent(second)."""
    for known, irregular in strides:
        if first in irregular or second in irregular:
            return False
        if known.get(first, 0) != mul(known.get(second, 0), second_extent):
            return False
    return True


def merge_atoms(
    atoms: Sequence[str], extents: dict[str, Size], strides: Sequence[tuple[dict, frozenset]]
) -> list[tuple[tuple[str, ...], Size]]:
    """Runs of atoms that become one loop each, with its extent."""
    runs: list[tuple[tuple[str, ...], Size]] = []
    for atom in atoms:
        if runs and mergeable(runs[-1][0][-1], atom, extents[atom], strides):
            run, extent = runs[-1]
            runs[-1] = ((*run, atom), mul(extent, extents[atom]))
        else:
            runs.append(((atom,), extents[atom]))
    return runs


def cut(extent: Size, chunk: int, outer_name: str, inner_name: str) -> tuple[Size, Size, Size]:
    """A loop over `extent` as chunks: (number of chunks, extent inside one, index as an expression of both)."""
    chunks = floordiv(add(extent, chunk - 1), chunk)
    outer = loop_symbol(outer_name, chunks)
    whole = isinstance(extent, int) and extent % chunk == 0
    inner_extent: Size = chunk if whole else minimum(chunk, add(extent, mul(outer, -chunk)))
    return chunks, inner_extent, add(mul(outer, chunk), loop_symbol(inner_name, chunk))


def chunk_elements(extent: Size, wanted_chunks: int, smallest: int, largest: int, multiple: int) -> int:
    """Elements in a chunk so that about `wanted_chunks` result, a multiple of `multiple`."""
    numel = extent if isinstance(extent, int) else None
    size = largest if numel is None else -(-numel // max(wanted_chunks, 1))
    size = min(max(size, smallest), largest)
    return -(-size // multiple) * multiple


def parallelize(loops: list[PlannedLoop], work_ns: float, safe: bool) -> None:
    """Mark the outermost loops parallel, as many as give threads enough to share; set the grain of the last.

    `loops` holds those outside the vector loop, outermost first. `work_ns` is the whole kernel's.
    """
    if not safe or work_ns < 2 * WORTH_A_THREAD_NS:
        return
    iterations, marked = 1, []
    for loop in loops:
        if loop.kind != "serial":
            break
        loop.kind = "parallel"
        marked.append(loop)
        iterations *= max(estimate(loop.extent), 1)
        if iterations >= ENOUGH_ITERATIONS:
            break
    grain = max(1, min(iterations, int(WORTH_A_THREAD_NS / max(work_ns / max(iterations, 1), 1e-3))))
    for loop in marked:
        loop.grain = grain


def work_estimate_ns(elements: float, cost: float, traffic_bytes: float, target: Target) -> float:
    """Time of one thread: 2 vector operations a nanosecond, 10 bytes a nanosecond from memory."""
    lanes = max(target.vector_bytes // 4, 1)
    return max(elements * cost / (2 * lanes), traffic_bytes / 10)
