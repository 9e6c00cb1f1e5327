"""Memory for what a captured graph returns: if that is separate, what it uses in passing can be other graphs', too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.program import FromBuffer, Program, storages_of_results
from lampwork.ir.size import span
from lampwork.runtime.launch.host import view

#: A graph with more results than this that ATen makes by itself has memory of its own: each is copied.
COPIED_BYTES = 1 << 20


def known_sizes(program: Program) -> bool:
    """Whether there is an `Outside` for the program."""
    return not program.sizes and not program.found


def shares_what_passes(program: Program) -> bool:
    """Whether a graph of the program shares memory with others, by an `Outside` whose copies cost next to nothing."""
    if not known_sizes(program):
        return False
    _, numbers = storages_of_results(program)
    made = zip(program.results, numbers)
    copied = [result.view for result, number in made if number is None and isinstance(result, FromBuffer)]
    size_bytes = sum(math.prod(map(int, view.shape)) * ITEM_SIZE_BYTES[view.dtype] for view in copied)  # type: ignore
    # Those that are views of one are to stay that.
    return size_bytes <= COPIED_BYTES and len({view.buffer for view in copied}) == len(copied)


class Outside:
    """Memory for the results of a captured run that are not its inputs, outside of what the capture allocates.

    `storages`: for the program's result storages, by number; a run takes them out. What a run makes elsewhere, as ATen
    does, is copied (`moved`), each result on its own. Needs a program with `known_sizes`.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.storages: dict[int, torch.Tensor] = {}
        self._copies: dict[int, torch.Tensor] = {}  # by result
        storages, self._numbers = storages_of_results(program)
        with torch.inference_mode(False):
            for index, (result, number) in enumerate(zip(program.results, self._numbers)):
                if not isinstance(result, FromBuffer):
                    continue
                if number is None:
                    numel = span(result.view.shape, result.view.strides)
                    self._copies[index] = self._empty((numel,), (1,), result.view.dtype)
                elif number not in self.storages:
                    whole = storages[number]
                    self.storages[number] = self._empty(whole.shape, whole.strides, whole.dtype)

    def _empty(self, shape: Sequence[object], strides: Sequence[object], dtype: str) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=self._program.device)

    @property
    def memory(self) -> list[torch.Tensor]:
        """All that is not taken yet."""
        return [*self.storages.values(), *self._copies.values()]

    def moved(self, made: Sequence[Any]) -> tuple:
        """`made`, with what is not in memory from here copied to it. Once: the memory is the results' alone then."""
        found = list(made)
        with torch.inference_mode(False), _torch.below_autograd():
            for number in tuple(self.storages):  # not taken
                self._move_storage(number, self.storages.pop(number), found)
            for index, memory in self._copies.items():
                lies = found[index].conj() if found[index].is_conj() else found[index]
                memory.copy_(lies.as_strided(memory.shape, (1,)))
                found[index] = memory.as_strided(lies.shape, lies.stride(), 0)
            self._copies.clear()
        return tuple(found)

    def _move_storage(self, number: int, memory: torch.Tensor, found: list[Any]) -> None:
        """Copies result storage `number`; what shows it is replaced in `found`."""
        whole: torch.Tensor | None = None
        for index, place in enumerate(self._numbers):
            if place != number:
                continue
            made = found[index].conj() if found[index].is_conj() else found[index]
            if whole is None:
                empty = torch.empty(0, dtype=memory.dtype, device=memory.device)
                whole = empty.set_(made.untyped_storage(), 0, memory.shape, memory.stride())
                memory.copy_(whole)
            # Never through `memory.untyped_storage()`: that Python object would be one more owner.
            found[index] = view(memory, made.dtype, made.shape, made.stride(), made.storage_offset())
