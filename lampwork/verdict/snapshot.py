"""What a call changes, put back: so that many candidates make the same call, and none is made twice for the user.

Covered: parameters, buffers and gradients of the modules that ran, the state and settings of the optimizers that
stepped, everything else that was found with a `state_dict`, tensors among the arguments, what the program keeps in
plain Python (`plain_state.py`), and the generators of torch, Python and numpy. Iterators and files are not.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lampwork.verdict.plain_state import PlainState

#: Of tensors that a program holds outside of modules, so many are saved: a data set is more, and is not written to.
MOST_BYTES = 2**28

Undo = Callable[[], None]


class Snapshot:
    """State as it was when each holder was added; `restore` writes it back into the same objects.

    only_buffers   of modules, leave parameters and gradients alone: what a forward pass may change is saved
    """

    def __init__(self, only_buffers: bool = False) -> None:
        self._only_buffers = only_buffers
        self._undo: list[Undo] = [_generators()]
        self._seen: dict[int, object] = {}

    def restore(self) -> None:
        with torch.no_grad():
            for undo in self._undo:
                undo()

    def add(self, holder: object) -> None:
        """A module, an optimizer, a tensor, or an object with `state_dict` and `load_state_dict`; each once."""
        if id(holder) in self._seen:
            return
        self._seen[id(holder)] = holder
        if isinstance(holder, torch.nn.Module):
            self._module(holder)
        elif isinstance(holder, torch.optim.Optimizer):
            self._undo.append(_optimizer(holder))
            self.add_tensors(each for group in holder.param_groups for each in group["params"])
        elif isinstance(holder, torch.Tensor):
            if not _is_stretched(holder):
                self._undo.append(_tensor(holder))
        else:
            self._undo.append(_state_dict(holder))

    def add_program(self, function: object) -> None:
        """The plain state that `function` reaches, and the tensors in it, as far as these are few."""
        found = PlainState(function)
        self._undo += found.undo
        for holder in found.holders:
            self.add(holder)
        room = MOST_BYTES
        for each in found.tensors:
            size = each.numel() * each.element_size() if each.layout == torch.strided else MOST_BYTES
            if size < room:
                room -= size
                self.add(each)

    def add_tensors(self, tensors: Iterable[torch.Tensor]) -> None:
        for each in tensors:
            self.add(each)

    def _module(self, module: torch.nn.Module) -> None:
        for each in module.modules():
            self._undo.append(_registered(each))
        tensors = [*([] if self._only_buffers else module.parameters()), *module.buffers()]
        self.add_tensors(each for each in tensors if not torch.nn.parameter.is_lazy(each))


def _is_stretched(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, as those of `x.expand(...)`: PyTorch refuses to write to it, for programs, too."""
    strided = tensor.layout == torch.strided
    return strided and any(size > 1 and stride == 0 for size, stride in zip(tensor.size(), tensor.stride()))


def _tensor(tensor: torch.Tensor) -> Undo:
    value = tensor.detach().clone()
    grad = tensor.grad if tensor.is_leaf else None
    grad_value = None if grad is None else grad.detach().clone()

    def undo() -> None:
        tensor.detach().copy_(value)
        if tensor.is_leaf:
            tensor.grad = grad
            if grad is not None and grad_value is not None:
                grad.detach().copy_(grad_value)

    return undo


def _registered(module: torch.nn.Module) -> Undo:
    """Buffers that a call replaces by other tensors, and plain attributes such as counters."""
    plain = {name: value for name, value in vars(module).items() if isinstance(value, int | float | str | None)}
    buffers = dict(module.named_buffers(recurse=False))

    def undo() -> None:
        vars(module).update(plain)
        for name, value in buffers.items():
            if getattr(module, name, None) is not value:
                setattr(module, name, value)

    return undo


def _optimizer(optimizer: torch.optim.Optimizer) -> Undo:
    """State tensors are written in place, so that whoever holds them still does; what came later goes."""
    saved = {
        parameter: {name: (value, copy.deepcopy(value)) for name, value in state.items()}
        for parameter, state in optimizer.state.items()
    }
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]

    def undo() -> None:
        for parameter in list(optimizer.state):
            if parameter not in saved:
                del optimizer.state[parameter]
        for parameter, state in saved.items():
            optimizer.state[parameter] = {name: _put_back(value, before) for name, (value, before) in state.items()}
        for group, values in zip(optimizer.param_groups, groups):
            group.update(values)

    return undo


def _put_back(value: Any, before: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value.copy_(before)
        return value
    return copy.deepcopy(before)


def _state_dict(holder: Any) -> Undo:
    saved = copy.deepcopy(holder.state_dict())
    return lambda: holder.load_state_dict(copy.deepcopy(saved))


def _generators() -> Undo:
    state = torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    plain = random.getstate()
    numpy = sys.modules.get("numpy")
    array = None if numpy is None else numpy.random.get_state()

    def undo() -> None:
        torch.set_rng_state(state)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
        random.setstate(plain)
        if numpy is not None:
            numpy.random.set_state(array)

    return undo


def seed_all(seed: int) -> None:
    """The generators that a snapshot covers begin anew."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
