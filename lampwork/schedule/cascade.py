"""Long float sums in blocks: an accumulator per block, folded into the accumulator of the blocks.

    accumulator a0; serial i1 in 4096: a0 += x     ->     accumulator a0
                                                          serial i2 in 64:
                                                              accumulator a1; serial i1 in 64: a1 += x
                                                              a0 += a1

A sum of n terms of one sign in a row is off by about sqrt(n) / 3 roundings; in blocks of sqrt(n), by a fourth root.
ATen adds this way, so its error is the yardstick. Non-goal: products, whose error does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterator

from lampwork.ir.size import Size, bounds
from lampwork.schedule.expressions import substitute_sizes
from lampwork.schedule.loops import PlannedLoop, cut

#: Additions in a row to one accumulator (in a vector loop: to each of its LANES) and, further out, of blocks. Folding
#: the lanes of one block costs as much as adding some 2000 elements from the first cache.
STEPS, VECTOR_STEPS, BLOCKS = 24, 256, 16
LANES = 64
#: Loops that one loop of unknown extent is cut into, less one: it may well be short.
DYNAMIC_CUTS = 2


def cascade(loops: list[PlannedLoop], values: dict[str, Size], names: Iterator[str]) -> list[PlannedLoop]:
    """`loops` (outermost first) of one float sum, cut where too many additions would meet in one accumulator.

    `values`, expressions of the loops' indices, are updated. Loops marked `cascades` start accumulators of their own
    in each iteration.
    """
    result: list[PlannedLoop] = []
    vector = loops[-1].kind == "vector"
    limit, steps = VECTOR_STEPS if vector else STEPS, 1
    for loop in reversed(loops):
        unit = LANES if loop.kind == "vector" else 1
        current, dynamic, cuts = loop, not isinstance(loop.extent, int), 0
        while True:
            most = max(limit // steps, 1) * unit
            longest = bounds(current.extent)[1]
            if longest <= 2 * most or (dynamic and cuts == DYNAMIC_CUTS):
                steps *= max(longest // unit, 1)
                break
            if most > unit or not result:
                length = _block(current.extent, most, unit)
                name = next(names)
                chunks, extent, index = cut(current.extent, length, name, current.name)
                for atom, value in values.items():
                    values[atom] = substitute_sizes(value, {current.name: index})
                for inner in result:
                    inner.extent = substitute_sizes(inner.extent, {current.name: index})
                current.extent = extent
                current.piece = True
                current.kind = "vector" if current.kind == "vector" else "serial"
                result.append(current)
                current, unit, cuts = PlannedLoop(name, chunks), 1, cuts + 1
            current.cascades = True
            limit, steps = BLOCKS, 1
        result.append(current)
    return result[::-1]


def _block(extent: Size, most: int, multiple: int) -> int:
    """About `most`, dividing `extent` if something near does: then all blocks are alike."""
    if not isinstance(extent, int):
        return most
    start = 2 * most - (2 * most) % multiple
    even = [length for length in range(start, most // 2, -multiple) if extent % length == 0]
    if even:
        return min(even, key=lambda length: abs(length - most))
    blocks = -(-extent // most)
    length = -(-extent // blocks)
    return -(-length // multiple) * multiple
