"""Many tensors of a call, compared with their guards by one native function.

    for x in tensors: ...            found = (*v0, )
                              ->     places = c0(found)
                                     if places is None: return None

Ten attributes of each of 10,000 tensors take 10 to 60 ms in Python; the native comparison (`native_tensors.py`) takes
0.2 ms. A list or tuple that consists of such tensors is spread as a whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import torch

from lampwork.ir.guard import Guard, TensorIs
from lampwork.ir.source import Argument, Item, Keyword, Source

#: Fewer tensors are looked at one by one.
FEWEST_TENSORS = 16

_NO_RANGES = array("Q", [0])


class TensorBatch:
    """`guards`: those compared together, in the order of the tuple of tensors that `look` takes."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.guards = tuple(guards)
        from lampwork.runtime.guards import native_tensors

        self.look = native_tensors.NativeTensorGuard([_test(guard) for guard in guards])
        self._positions = {id(guard.source): position for position, guard in enumerate(guards)}

    @staticmethod
    def of(guards: Sequence[Guard]) -> TensorBatch | None:
        """The batch of the tensors that `guards` are about and that arguments lead to through containers; None where
        they are few, or cannot be compared natively here."""
        if len(guards) < FEWEST_TENSORS:
            return None
        from lampwork.runtime.guards import native_tensors

        if not native_tensors.supported():
            return None
        chosen: dict[int, Guard] = {}
        for guard in guards:
            if (
                isinstance(guard.test, TensorIs)
                and native_tensors.can_look_at(guard.test)
                and _in_containers(guard.source)
            ):
                chosen.setdefault(id(guard.source), guard)
        return TensorBatch(list(chosen.values())) if len(chosen) >= FEWEST_TENSORS else None

    def runs(self) -> Iterator[tuple[Source | None, list[Guard]]]:
        """The guards, in order: items 0, 1, 2, ... of one container together with it, others with None."""
        run: list[Guard] = []
        base: Source | None = None
        for guard in self.guards:
            source = guard.source
            if run and isinstance(source, Item) and source.base is base and _is_index(source.key, len(run)):
                run.append(guard)
                continue
            if run:
                yield base, run
            base = source.base if isinstance(source, Item) and _is_index(source.key, 0) else None
            run = [guard]
            if base is None:
                yield None, run
                run = []
        if run:
            yield base, run

    def type_of(self, guard: Guard) -> type:
        return torch.nn.Parameter if _test(guard).tensor_type.endswith("Parameter") else torch.Tensor

    def joined(self, names: Sequence[str]) -> list[str]:
        """Texts that spread into a tuple what `names` do; runs of the batch's tensors become one slice."""
        positions = {f"found[{position}]": position for position in range(len(self.guards))}
        result: list[str] = []
        start = end = -1
        for name in (*names, ""):
            position = positions.get(name, -1)
            if start >= 0 and position == end:
                end += 1
                continue
            if start >= 0:
                whole = start == 0 and end == len(self.guards)
                result.append("*found" if whole else f"*found[{start}:{end}]")
            start, end = position, position + 1
            if position < 0 and name:
                result.append(name)
        return result

    def holds(self, sources: Sequence[Source]) -> bool:
        """Whether all of `sources` are in the batch."""
        return all(id(source) in self._positions for source in sources)

    def disjoint(self, sources: Sequence[Source]) -> Callable[[array], bool]:
        """Called with the places that `look` gave: whether the tensors at `sources` overlap nowhere."""
        from lampwork.runtime.guards import native_tensors

        asked = {self._positions[id(source)] for source in sources}
        look = native_tensors.NativeTensorGuard(
            [_test(guard) for guard in self.guards], [k in asked for k in range(len(self.guards))]
        )
        return lambda places: look.disjoint(places, _NO_RANGES)


def _test(guard: Guard) -> TensorIs:
    assert isinstance(guard.test, TensorIs)
    return guard.test


def _is_index(key: object, index: int) -> bool:
    return type(key) is int and key == index


def _in_containers(source: Source) -> bool:
    """Whether the path consists of items of arguments: nothing on the way is a tensor, or runs code of the program."""
    while isinstance(source, Item):
        if not isinstance(source.key, (int, str)):
            return False
        source = source.base
    return isinstance(source, (Argument, Keyword))
