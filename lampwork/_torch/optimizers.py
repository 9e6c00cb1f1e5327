"""The state that optimizers of `torch.optim` make in their first step (`Optimizer._init_group`), made ahead of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from types import FunctionType
from typing import Any

import torch


def undecorated(function: object) -> Any:
    """The function that `torch._dynamo` wrapped when it was loaded, as it does with methods of optimizers."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def makes_initial_state(function: FunctionType) -> bool:
    """Whether it is the part of an optimizer of PyTorch's that makes what its step finds missing:
    `_init_group(self, group, *lists)` puts state into `self.state` and fills the lists."""
    return function.__name__ == "_init_group" and (function.__module__ or "").startswith("torch.optim.")


def without_state(optimizer: torch.optim.Optimizer, params: Iterable[torch.Tensor]) -> tuple[int, ...]:
    """The positions of those parameters that the optimizer has no state for."""
    return tuple([position for position, param in enumerate(params) if not dict.get(optimizer.state, param)])


class InitialStates:
    """States of optimizers, made for one call before its program runs; `undo` takes them back where it does not."""

    def __init__(self) -> None:
        self._made: list[tuple[torch.optim.Optimizer, list[tuple[torch.Tensor, bool]], Any]] = []

    @property
    def notes(self) -> tuple[Any, ...]:
        """What was noted of all that was made."""
        return tuple([note for _, _, note in self._made])

    def make(
        self, optimizer: torch.optim.Optimizer, group: dict[str, object], params: Sequence[torch.Tensor], note: Any
    ) -> bool:
        """Gives `params`, which have none, the state that a step of the optimizer begins with. False where it makes
        none or refuses, and nothing has changed. A parameter without a gradient is lent one of its kind meanwhile."""
        function = undecorated(getattr(type(optimizer), "_init_group", None))
        if not isinstance(function, FunctionType) or not makes_initial_state(function):
            return False
        lists = function.__code__.co_argcount - 2
        attributes = dict(vars(optimizer))
        lent = [param for param in params if param.grad is None]
        self._made.append((optimizer, [(param, param in optimizer.state) for param in params], note))
        try:
            for param in lent:
                param.grad = param.detach()
            function(optimizer, {**group, "params": list(params)}, *([] for _ in range(lists)))
            complete = not without_state(optimizer, params)
        except Exception:  # the program raises it, too, if it comes to that
            complete = False
        finally:
            for param in lent:
                param.grad = None
        if not complete:
            self._undo_last()
            for name in [name for name in vars(optimizer) if name not in attributes]:
                del vars(optimizer)[name]
            vars(optimizer).update(attributes)
        return complete

    def _undo_last(self) -> None:
        optimizer, params, _ = self._made.pop()
        for param, was_there in params:
            if was_there:
                optimizer.state[param].clear()
            else:
                optimizer.state.pop(param, None)

    def undo(self) -> None:
        """Takes all of it back."""
        while self._made:
            self._undo_last()

    def keep(self, optimizers: Collection[int]) -> None:
        """Takes back what was made for others than these optimizers (their ids)."""
        kept = [made for made in self._made if id(made[0]) in optimizers]
        self._made = [made for made in self._made if id(made[0]) not in optimizers]
        self.undo()
        self._made = kept
