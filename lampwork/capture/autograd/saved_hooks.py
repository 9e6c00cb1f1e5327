"""Hooks on saved tensors that the program sets: `saved_tensors_hooks`, `save_on_cpu`.

    with saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        y = x * x

Fakes have eager's own history, so eager's autograd calls the hooks for what it saves and for what it reads again. One
native pair has the machine interpret the program's: what it packs is recorded with the forward pass, what it unpacks
with the backward pass. While hooks are set the graph cannot break, as eager's would not see them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break, LeftToEager
from lampwork.capture.record.fake import Fake


class _Set:
    """A pair of hooks that is set, which is left like a context where capture stops."""

    def __exit__(self, *error: Any) -> None:
        _torch.SET_SAVED_HOOKS[1]()


def _push(world: Any, pack: Any, unpack: Any) -> None:
    if "saved hooks" in world.natively:
        raise Break("backward-effect", f"hooks on saved tensors are left to eager: {world.natively['saved hooks']}")
    if world.saved_hooks_refusal is not None:
        raise RuntimeError(world.saved_hooks_refusal)

    def run_pack(tensor: Any) -> Any:
        if type(tensor) is not Fake:
            raise Break("autograd", "a hook on saved tensors is given one that a function transform wraps")
        packed = world.machine.call(pack, (tensor,))
        if any(each.device != tensor.device for each in _tensors(packed)):
            raise LeftToEager("saved hooks", "what is saved is to be on another device, whatever is fast")
        return packed, tensor

    def run_unpack(packed: Any) -> Any:
        value, tensor = packed
        if not _torch.is_recording():  # somebody asks whether it has been freed
            return tensor
        found = world.machine.call(unpack, (value,))
        if not isinstance(found, Fake):
            raise Break("autograd", "a hook on saved tensors unpacks something else than a tensor")
        return found

    world.recorder.own_gradients = "hooks on saved tensors change them"
    world.sets_saved_hooks = True
    _torch.SET_SAVED_HOOKS[0](run_pack, run_unpack)
    world.process.entered.append(_Set())


def _tensors(packed: Any) -> Iterator[Fake]:
    if type(packed) is Fake:
        yield packed
    elif isinstance(packed, (tuple, list)):
        for each in packed:
            yield from _tensors(each)


def _pop(world: Any) -> None:
    inner = world.process.entered.pop() if world.process.entered else None
    if type(inner) is not _Set:
        raise Break("autograd", "hooks on saved tensors are taken away that others set")
    inner.__exit__()


NATIVES: dict[Any, Answer] = dict(zip(_torch.SET_SAVED_HOOKS, (_push, _pop)))
