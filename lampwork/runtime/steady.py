"""`steady_check`: the check of static guards for programs that change what they read, such as training steps.

A step writes its learning rate into a dict and makes gradients anew, so stamps never hold, and every path has to be
walked on every call. At the end of most of them is the same tensor as last time, though. Such a tensor is looked at by
the native comparison of its words, and the check compares its identity alone:

    v7.dtype is ... and v7.shape == ... (ten questions)     ->      v7 is k7, with the words of k7 compared natively

What tensors are apart in memory need not be asked again either: only the others are compared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork.ir.guard import Distinct, Guard, StorageGroups, TensorIs
from lampwork.ir.source import Source
from lampwork.runtime.guards import Check, CheckWriter
from lampwork.runtime.reading import READ_ERRORS, tensor_extent_bytes
from lampwork.runtime.stamps import Overlap, Stamps, Unstable, compare

#: Fewer tensors are not worth a check of their own.
FEWEST_TENSORS = 8


class _SteadyWriter(CheckWriter):
    """Writes the check. `steady`: the tensors by the id of their source."""

    steady: dict[int, torch.Tensor]

    def _load(self, source: Source) -> str:
        known = id(source) in self._names
        name = super()._load(source)
        tensor = self.steady.get(id(source))
        if tensor is not None and not known:
            self._known_types[id(source)] = type(tensor)
            self.refuse(f"{name} is not {self.constant(tensor)}")
        return name

    def _storage_groups(self, test: StorageGroups) -> None:
        others = tuple(source for source in test.sources if id(source) not in self.steady)
        if test.groups:
            super()._storage_groups(test)
            return
        super()._storage_groups(StorageGroups(others, ()))
        same = [self.steady[id(source)] for source in test.sources if id(source) in self.steady]
        apart = self.constant(Overlap(same).apart)
        extent = self.constant(tensor_extent_bytes)
        for source in others:
            name = self._load(source)
            self.refuse(f"not {apart}({name}.data_ptr(), {extent}({name}))")


class SteadyCheck:
    """Called with the function: the values at the sources that are read, None where some guard may not hold."""

    def __init__(self, check: Check, stamps: Stamps, steady: frozenset[int]) -> None:
        self._check, self._stamps, self._steady = check, stamps, steady
        self._table = stamps.table()
        self._address, self._differ = self._table.buffer_info()[0], compare()

    def covers(self, sources: Sequence[Source]) -> bool:
        """Whether the tensors at all these sources stay."""
        return self._steady.issuperset(map(id, sources))

    def __call__(self, function: Any) -> tuple | None:
        return None if self._differ(self._address) else self._check(function, (), {})


def steady_check(
    guards: Sequence[Guard], reads: Sequence[Source], stays: Sequence[bool], now: Sequence[Any]
) -> SteadyCheck | None:
    """The check of `guards`; None where it would gain nothing.

    `now`: the values at `reads` in a call with all guards found to hold; `stays`: whether each is what it was in the
    call before.
    """
    stamps = Stamps(None)
    steady: dict[int, torch.Tensor] = {}
    kept: list[Guard] = []
    tests = {id(guard.source): guard.test for guard in guards if isinstance(guard.test, TensorIs)}
    for source, same, value in zip(reads, stays, now):
        expected = tests.get(id(source))
        if expected is not None and same:
            try:
                stamps.tensor(value, expected)
            except (Unstable, *READ_ERRORS):
                continue
            steady[id(source)] = value
    if len(steady) < FEWEST_TENSORS:
        return None
    for guard in guards:
        test = guard.test
        if isinstance(test, TensorIs) and id(guard.source) in steady:
            continue
        if isinstance(test, Distinct) and all(id(each) in steady for each in (guard.source, *test.others)):
            continue
        kept.append(guard)
    writer = _SteadyWriter(kept, reads)
    writer.steady = steady
    return SteadyCheck(writer.function(), stamps, frozenset(steady))
