"""Which memory overlaps which: that of a call's own tensors, and that of static tensors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import torch

from lampwork.runtime.guards.interpreter import tensor_extent_bytes


def merged_ranges(places: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Begin and end of the memory at `places` (begin and size of each), sorted; no two overlap."""
    merged: list[list[int]] = []
    for start, end in sorted([(start, start + size) for start, size in places if size]):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


class Overlap:
    """Tells whether memory of a call's own tensors overlaps that of static tensors, which stay where they are."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        merged = merged_ranges([(tensor.data_ptr(), tensor_extent_bytes(tensor)) for tensor in tensors])
        self._starts = [start for start, _ in merged]
        self._ends = [end for _, end in merged]

    def disjoint(self, pointer: int, extent: int) -> bool:
        """No byte of `[pointer, pointer + extent)` is in a static tensor."""
        index = bisect_right(self._starts, pointer + extent - 1) - 1
        return extent == 0 or index < 0 or self._ends[index] <= pointer
