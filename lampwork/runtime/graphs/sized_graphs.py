"""CUDA graphs for a program of symbolic sizes: a graph replays launches as they were, so each combination of sizes that
comes up often has its own, and the others run plainly.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.guard import TensorIs

#: Combinations of sizes that have graphs at once.
GRAPHED_SIZES = 8
#: Calls with the same sizes before they get graphs.
CALLS_BEFORE = 2
#: Combinations whose calls are counted; when there are more, counting begins anew.
COUNTED_SIZES = 256

NUMBERS = Diagnostic(
    "graph-number-input", "a number that may differ from call to call is an input of the program",
    remedy="Pass it as a tensor on the device, or keep it the same.",
)  # fmt: skip
MANY_SIZES = Diagnostic(
    "graph-many-sizes", f"more than {GRAPHED_SIZES} combinations of sizes come up; the first of them have graphs",
    remedy="Pad to few sizes.",
)  # fmt: skip


class SizedGraphs:
    """The `GraphRunner`s (or `TrainingGraphs`) of one program, by sizes. Safe to use from many threads and streams.

    `plain` runs a call without a graph; `make()` makes a runner.
    """

    def __init__(self, artifact: Artifact, plain: Callable[..., object], make: Callable[[], object]) -> None:
        self._plain, self._make = plain, make
        self._lock = threading.Lock()
        self._runners: dict[tuple[int, ...], Any] = {}
        self._counts: dict[tuple[int, ...], int] = {}
        self._full = False
        places = _symbolic_dimensions(artifact)
        self._places = places or ()
        self.refused: Diagnostic | None = NUMBERS if places is None else None

    def call(self, values: Sequence[Any], generation: object = None) -> Any:
        if self.refused is not None:
            return self._plain(values, generation)
        sizes = tuple([values[index].shape[axis] for index, axis in self._places])
        runner = self._runners.get(sizes)
        if runner is None:
            runner = self._runner_for(sizes)
            if runner is None:
                return self._plain(values, generation)
        return runner.call(values, generation)

    def _runner_for(self, sizes: tuple[int, ...]) -> Any:
        with self._lock:
            count = self._counts[sizes] = self._counts.get(sizes, 0) + 1
            if count <= CALLS_BEFORE:
                if len(self._counts) > COUNTED_SIZES:
                    self._counts.clear()
                return None
            if len(self._runners) >= GRAPHED_SIZES:
                self._full = True
                return None
            return self._runners.setdefault(sizes, self._make())

    def account(self) -> dict[str, object]:
        """As `GraphRunner.account`, over all sizes."""
        found = [runner.account() for runner in self._runners.values()]
        refused = self.refused or (
            MANY_SIZES if self._full else next(filter(None, (each["refused"] for each in found)), None)
        )
        counts: Counter[str] = Counter(captures=0, replays=0)
        for each in found:
            counts.update({name: count for name, count in each.items() if name != "refused"})
        return {**counts, "refused": refused}

    def release(self) -> None:
        """Give back captures and their memory."""
        for runner in tuple(self._runners.values()):
            runner.release()


def _symbolic_dimensions(artifact: Artifact) -> tuple[tuple[int, int], ...] | None:
    """(input, dimension) of every size that differs between calls; None where an input is a number."""
    if artifact.program.numbers:
        return None
    numbers = {id(source): index for index, source in enumerate(artifact.inputs)}
    found: list[tuple[int, int]] = []
    for guard in artifact.guards:
        index = numbers.get(id(guard.source))
        if index is not None and isinstance(guard.test, TensorIs):
            found += [(index, axis) for axis, size in enumerate(guard.test.shape) if size is None]
    return tuple(found)
