"""One captured backward pass, and the memory of its gradients: the caller's for as long as he holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.artifact import Artifact
from lampwork.runtime.graphs.cuda_graphs import copier, owners_alone


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
