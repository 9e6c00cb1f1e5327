"""Optimizers of `torch.optim`: gradients forgotten unseen, and the state that a first step makes, made before it.

A loop's first step differs from the later ones in two ways that matter to nobody: there are no gradients yet, and the
optimizer makes its state. Each would be a program of its own, captured, compiled and kept.

`zero_grad()` looks at every `.grad` before it sets it to None. Here it is set without a look: eager's `.grad` is None
afterwards as well, and nothing is guarded.

An optimizer's step asks for each parameter whether it has state. Where the program comes to that with parameters that
have none, nothing has looked at the optimizer's state yet, so it is made there and then, natively and for real, and the
program goes on as in every later step. It is the one thing that capture changes outside: `InitialStates` remembers it,
and takes it back where the program is not run after all.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.bytecode.decode import decode
from lampwork.capture.leave.effects import dict_written, list_written
from lampwork.capture.machine import Answer, Enter
from lampwork.ir.artifact import InitialState


def _zero_grad_of_optimizer(world: Any, *args: Any, **kwargs: Any) -> Any:
    if _sets_to_none(*args, **kwargs):
        return Enter(_forget_gradients_of_optimizer, args[:1])
    return Enter(_torch.undecorated(torch.optim.Optimizer.zero_grad), args, kwargs)


def _zero_grad_of_module(world: Any, *args: Any, **kwargs: Any) -> Any:
    if _sets_to_none(*args, **kwargs) and "_is_replica" not in vars(args[0]):
        return Enter(_forget_gradients_of_module, args[:1])
    return Enter(torch.nn.Module.zero_grad, args, kwargs)


def _sets_to_none(*args: Any, set_to_none: Any = True, **others: Any) -> bool:
    """Whether `zero_grad` with these arguments is right, and sets gradients to None."""
    return not others and (len(args) == 1 and set_to_none is True or len(args) == 2 and args[1] is True)


def _forget_gradients_of_optimizer(self: Any) -> None:
    if not hasattr(self, "_zero_grad_profile_name"):
        self._patch_step_function()
    for group in self.param_groups:
        for param in group["params"]:
            param.grad = None


def _forget_gradients_of_module(self: Any) -> None:
    if getattr(self, "_is_replica", False):  # guarded; eager warns of those
        torch.nn.Module.zero_grad(self)
    for param in self.parameters():
        param.grad = None


# States ---------------------------------------------------------------------------------------------------------------


def make_initial_states(world: Any, args: tuple) -> None:
    """Before `_init_group(optimizer, ...)` is interpreted: what the optimizer's step would find missing is made, if it
    can be told that it will be made just so."""
    states: _torch.InitialStates | None = world.initial_states
    if states is None or not args:
        return
    origin = world.loader.origin(args[0])
    if origin is None or not isinstance(origin.raw, torch.optim.Optimizer):
        return
    optimizer = origin.raw
    world.stepped.add(id(optimizer))
    if not _is_untouched(world, args[0], optimizer) or torch.is_inference_mode_enabled():
        return
    missing = []
    for number, group in enumerate(optimizer.param_groups):
        params = group["params"]
        stateless = _torch.without_state(optimizer, params)
        positions = tuple([each for each in stateless if _moves(world, params[each])])
        if not all(_is_as_outside(world, params[each]) for each in positions):
            return
        if positions:
            missing.append((number, group, positions))
    with world.recorder._paused():
        for number, group, positions in missing:
            params = [group["params"][position] for position in positions]
            states.make(optimizer, group, params, InitialState(origin.source, number, positions))


def _is_untouched(world: Any, held: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Whether the program has not looked at the optimizer's state, and changed nothing that making it depends on."""
    if _torch.function_modes_length() or _torch.active_transforms():
        return False
    loader = world.loader
    attributes = loader.instance_dict(held)
    if attributes is None or "state" not in attributes.pending:
        return False
    groups = optimizer.param_groups
    if "param_groups" not in attributes.pending:
        known = loader.by_raw.get(id(groups))
        if known is None or known.value is not dict.get(attributes.copy, "param_groups"):
            return False
    containers = [groups, *groups, *[group["params"] for group in groups]]
    if id(optimizer.state) in loader.by_raw or any(_is_written(loader, each) for each in containers):
        return False
    tensors = [value for group in groups for value in group.values() if isinstance(value, torch.Tensor)]
    met = [loader.by_raw[id(each)].value for each in tensors if id(each) in loader.by_raw]
    return not any(_torch.storage_key(each) in world.recorder.written for each in met)


def _is_written(loader: Any, raw: Any) -> bool:
    """Whether the program has changed a dict or list from outside."""
    origin = loader.by_raw.get(id(raw))
    if origin is None:
        return False
    if isinstance(raw, dict):
        return dict_written(loader.dicts[id(origin.value)], loader)
    overlay = loader.lists[id(origin.value)]
    return overlay.changed or (overlay.state == "settled" and list_written(overlay, loader))


def _held_gradient(world: Any, param: torch.Tensor) -> tuple[Any, Any]:
    """(what the program holds for a parameter, what it would read for its gradient), without a guard."""
    origin = world.loader.by_raw.get(id(param))
    if origin is None:
        return param, param.grad
    slots = world.loader.slots.get(id(origin.value))
    return origin.value, slots.values.get("grad", param.grad) if slots is not None else param.grad


def _moves(world: Any, param: torch.Tensor) -> bool:
    """Whether the parameter has a gradient by now, so that the optimizer makes state for it."""
    return _held_gradient(world, param)[1] is not None


def _is_as_outside(world: Any, param: torch.Tensor) -> bool:
    """Whether a state made for the parameter as it is outside, where it may have no gradient, is the one that the
    program would make."""
    held, gradient = _held_gradient(world, param)
    outside = param if param.grad is None else param.grad
    return _metadata(held) == _metadata(param) and _metadata(gradient) == _metadata(outside)


def _metadata(tensor: torch.Tensor) -> tuple:
    if tensor.layout is not torch.strided:
        return tensor.layout, id(tensor)
    return tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride()


# Code of lampwork is left to CPython, which would give real tensors real gradients. This is not.
for _function in (_forget_gradients_of_optimizer, _forget_gradients_of_module):
    _code = decode(_function.__code__)
    _code.hidden, _code.is_native = True, False


NATIVES: dict[Any, Answer] = {
    _torch.undecorated(torch.optim.Optimizer.zero_grad): _zero_grad_of_optimizer,
    torch.nn.Module.zero_grad: _zero_grad_of_module,
}
