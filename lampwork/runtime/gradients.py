"""One captured backward pass, and the memory of its gradients: the caller's for as long as he holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.artifact import Artifact
from lampwork.ir.program import FromBuffer, Program
from lampwork.runtime.cuda_graphs import copier, owners_alone
from lampwork.runtime.host import view


class Gradients:
    """A captured backward pass that is replayed while nobody holds its gradients.

    `spends`: nothing of what the forward pass saved is there any more afterwards.
    """

    def __init__(
        self,
        half: Artifact,
        replay: Callable[[], None],
        results: Sequence[torch.Tensor],
        passed: set[int],
        spends: bool = False,
    ) -> None:
        """`passed`: storages of what the run was captured on."""
        self.replay, self.spends, self._kinds = replay, spends, half.program.results
        self._results = owners_alone(results, [True] * len(results))
        owners: dict[int, int] = {}
        for made in {id(each): each for each in self._results}.values():
            address = _torch.storage_address(made)
            if address not in passed:
                owners[address] = owners.get(address, 0) + 1
        self._owners = tuple(owners.items())
        #: Each is a tensor of its own that the program made.
        self._plain = len(owners) == len(results) and not any(getattr(kind, "conjugate", False) for kind in self._kinds)

    def is_free(self) -> bool:
        """Nobody but us owns memory of the gradients."""
        count = _torch.storage_use_count_at
        return all(count(address) <= ours for address, ours in self._owners)

    def hand_out(self) -> list[Any]:
        """Fresh tensors over the gradients' memory. Below autograd."""
        if self._plain:
            return [made.detach() for made in self._results]
        owned = dict(self._owners)
        given: dict[int, torch.Tensor] = {}
        found = []
        for kind, made in zip(self._kinds, self._results):
            tensor = given.get(id(made))  # one tensor for two inputs is one object: autograd copies it for each
            if tensor is None:
                # What is no gradient's own memory is an input of the graph, which the next replay writes to.
                tensor = made.detach() if _torch.storage_address(made) in owned else copier()(made)
                given[id(made)] = tensor
            found.append(tensor.conj() if getattr(kind, "conjugate", False) else tensor)
        return found


class Outside:
    """Memory for the gradients of a captured backward pass, outside of what the capture allocates.

    `storages`: for the program's result storages, by number; a run takes them out. What a run makes elsewhere, as ATen
    does, is copied (`moved`). Needs a program without symbolic sizes.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.storages: dict[int, torch.Tensor] = {}
        self._copies: dict[int, torch.Tensor] = {}  # by result
        with torch.inference_mode(False):
            for index, result in enumerate(program.results):
                if not isinstance(result, FromBuffer):
                    continue
                view, place = result.view, program.placements[result.view.buffer]
                buffer = program.buffers[view.buffer]
                if place.kind != "result":
                    self._copies[index] = self._empty((_span(view.shape, view.strides),), (1,), view.dtype)
                elif place.index not in self.storages:
                    self.storages[place.index] = self._empty(buffer.shape, buffer.strides, buffer.dtype)

    def _empty(self, shape: Sequence[Any], strides: Sequence[Any], dtype: str) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=self._program.device)

    @property
    def memory(self) -> list[torch.Tensor]:
        """All that is not taken yet."""
        return [*self.storages.values(), *self._copies.values()]

    def moved(self, made: Sequence[Any]) -> list[Any]:
        """`made`, with what is not in memory from here copied to it. Once: the memory is the gradients' alone then."""
        found = list(made)
        with torch.inference_mode(False), _torch.below_autograd():
            for number in tuple(self.storages):  # not taken
                self._move_storage(number, self.storages.pop(number), found)
            for index, memory in self._copies.items():
                lies = found[index].conj() if found[index].is_conj() else found[index]
                memory.copy_(lies.as_strided(memory.shape, (1,)))
                found[index] = memory.as_strided(lies.shape, lies.stride(), 0)
            self._copies.clear()
        return found

    def _move_storage(self, number: int, memory: torch.Tensor, found: list[Any]) -> None:
        """Copies result storage `number`; what shows it is replaced in `found`."""
        results, placements = self._program.results, self._program.placements
        whole: torch.Tensor | None = None
        for index, result in enumerate(results):
            place = placements[result.view.buffer] if isinstance(result, FromBuffer) else None
            if place is None or place.kind != "result" or place.index != number:
                continue
            made = found[index].conj() if found[index].is_conj() else found[index]
            if whole is None:
                empty = torch.empty(0, dtype=memory.dtype, device=memory.device)
                whole = empty.set_(made.untyped_storage(), 0, memory.shape, memory.stride())  # type: ignore[call-overload]
                memory.copy_(whole)
            # Never through `memory.untyped_storage()`: that Python object would be one more owner.
            found[index] = view(memory, made.dtype, made.shape, made.stride(), made.storage_offset())


def _span(shape: Sequence[Any], strides: Sequence[Any]) -> int:
    """Elements from the first to the last."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
