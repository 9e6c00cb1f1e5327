"""Rows that begin anywhere (50257 columns of bfloat16): read from the aligned address before them on.

    for r: fold b0[50257*x + r]     ->     first = 50257*x;  base = first // 64 * 64
                                           for r: fold b0[base + r] where first <= base + r < first + 50257

A thread then loads 16 bytes at a time where it would load an element at a time. What lies around the row is loaded and
left out of the fold; an aligned vector that holds one element of a buffer lies in the same page of memory as it. Only
the first and the last block are masked: full blocks between them have a loop of their own, free of masks' instructions.
"""

from __future__ import annotations

from lampwork.codegen.triton.tiles import ACCESS_BYTES, Nest, nest_loads
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Parameter, Store
from lampwork.ir.record import record
from lampwork.ir.size import Size, coefficient, mod, substitute, symbols

#: Where the reads of a row begin: a multiple of a cache line's bytes.
LINE_BYTES = 128


@record
class UnalignedRow:
    """The loads of a nest that read one row: at `first` plus the row's index, in vectors of `lanes` elements."""

    first: Size
    loads: tuple[Size, ...]
    lanes: int
    line: int


@record
class Moved:
    """Texts of such a load: its offset, whether its vector begins before the row's end (none where all do); and what
    dimensions they vary along."""

    offset: str
    inside: str
    dims: frozenset[str]


@record
class AlignedRow:
    """Texts of such a row: the aligned offset before it, how far after that it begins and ends, and what they vary
    along."""

    row: UnalignedRow
    base: str
    ahead: str
    end: str
    rows: frozenset[str]


@record
class Stretch:
    """Blocks of a row that are masked alike: a loop over `blocks` with the index `start`, or one block at `start`.

    `below`, `above`: something before the row, or after it, may lie in them.
    """

    start: str
    blocks: str
    below: bool
    above: bool
    aligned: AlignedRow | None = None


def unaligned_row(nest: Nest, parameters: dict[str, Parameter]) -> UnalignedRow | None:
    """What the nest reads of a row that begins anywhere; None if nothing does, or more is read along it."""
    axis = nest.axes[-1]
    if len(nest.axes) > 1 or any(isinstance(stmt, Store) for stmt in nest.body):
        return None
    found: dict[Size, int] = {}
    for load in nest_loads(nest):
        index = load.index[0]
        if axis.name not in symbols(index) and not load.indirect and load.mask is None:
            continue
        plain = load.mask is None and not load.indirect and parameters[load.buffer].access == "read"
        if not plain or coefficient(index, axis.name) != 1:
            return None
        found[index] = ITEM_SIZE_BYTES[parameters[load.buffer].dtype]
    firsts = {substitute(index, {axis.name: 0}) for index in found}
    if len(firsts) != 1 or len(set(found.values())) != 1:
        return None
    first, item_bytes = firsts.pop(), next(iter(found.values()))
    lanes = ACCESS_BYTES // item_bytes
    if lanes < 2 or not symbols(first) or mod(first, lanes) == 0:
        return None
    return UnalignedRow(first, tuple(found), lanes, LINE_BYTES // item_bytes)
