"""States of optimizers that a first step would make, made before it.

An optimizer's step asks for each parameter whether it has state. Where the program comes to that with parameters that
have none, nothing has looked at the optimizer's state yet, so it is made there and then, natively and for real, and the
program goes on as in every later step. It is the one thing that capture changes outside: `InitialStates` remembers it,
and takes it back where the program is not run after all.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.outside.changes import dict_written, list_written
from lampwork.ir.artifact import InitialState


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
