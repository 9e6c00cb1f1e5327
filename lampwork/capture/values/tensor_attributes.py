"""Attributes of tensors: metadata is plain data, methods run natively on fakes, the rest is the real tensor's state."""

from __future__ import annotations

import types
from collections import OrderedDict
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.capture.autograd.backward import HOOK_TABLES
from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.outside import facts
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.outside.tensor_inputs import TENSOR_ATTRIBUTES
from lampwork.capture.record.fake import Fake
from lampwork.capture.record.writes import rebind

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

#: Where a program replaces these, PyTorch, and checks of guards, cannot read them either.
_READ_BY_ALL = frozenset({"shape", "dtype", "device", "layout", "ndim", "requires_grad"})


class TensorAttributes:
    """What tensors have for the program."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world
        self.loader, self.guards, self.sources, self.recorder = (
            world.loader,
            world.guards,
            world.sources,
            world.recorder,
        )
        #: Leaves from outside, by id, whose gradients the autograd engine is adding to.
        self.accumulating: set[int] = set()

    def load(self, tensor: Any, name: str) -> Any:
        """`tensor.name`."""
        if name in TENSOR_ATTRIBUTES:
            if name not in _READ_BY_ALL:
                self.world.class_lookup(Fake, name)
            return getattr(tensor, name)
        if name == "__class__":
            return getattr(tensor, "real_class", torch.Tensor)
        origin = self.loader.origin(tensor)
        if name == "data":
            # As `detach()`, with a version of its own: writes to it are none of the tensor's to autograd.
            return tensor.data if type(tensor) is Fake or _torch.is_batched(tensor) else tensor.detach()
        if name == "grad":
            return self._gradient(tensor, origin)
        if name in HOOK_TABLES:
            return self._hook_table(tensor, name, origin)
        if name == "grad_fn":
            return self.world.histories.of(tensor)
        if name == "_version":
            raise Break("tensor-attribute", f"{name} of a tensor is read")
        if name in _torch.KIND_FLAGS:
            return getattr(tensor, name, False)
        found, attribute = self.world.class_lookup(type(tensor), name)
        if found:
            kind = type(attribute)
            if kind is FunctionType:
                return MethodType(attribute, tensor)
            if kind is property:
                if attribute.fget is not None and not str(attribute.fget.__module__).startswith("torch"):
                    return self.world.call(attribute.fget, (tensor,), {})
            elif kind in (types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType):
                return attribute.__get__(tensor, type(tensor))
            elif kind is not types.GetSetDescriptorType and kind not in NATIVE_KINDS:
                return self.world.descriptor_get(attribute, tensor, torch.Tensor)
            raise Break("tensor-attribute", f"the attribute {name} of a tensor is read")
        return self._own_attribute(tensor, name, origin)

    def _own_attribute(self, tensor: Any, name: str, origin: Any) -> Any:
        """An attribute that the program put on the tensor object."""
        values = self._tensor_values(tensor)
        if name in values:
            value = values[name]
        elif origin is None:
            value = MISSING
        else:
            value = values[name] = facts.instance_attribute(self.loader, origin, name)
        if value is MISSING:
            cls = self.world.type_of(tensor)
            raise AttributeError(f"'{cls.__name__}' object has no attribute '{name}'", name=name, obj=tensor)
        return value

    def _tensor_values(self, tensor: Any) -> dict[str, Any]:
        overlay = self.loader.slots.get(id(tensor))
        if overlay is None:
            from lampwork.capture.outside.overlay import SlotOverlay

            overlay = self.loader.slots[id(tensor)] = SlotOverlay(tensor)
        return overlay.values

    def _hook_table(self, tensor: Any, name: str, origin: Any) -> Any:
        values = self._tensor_values(tensor)
        if name not in values:
            value = None if origin is None else facts.attribute(self.loader, origin, name)
            values[name] = self.loader.slots[id(tensor)].initial[name] = value
        if name == "_backward_hooks" and values[name] is not None and _has_later_history(tensor):
            values[name] = None  # as in eager: the hooks stay where they were registered
        return values[name]

    def _gradient(self, tensor: Any, origin: Any) -> Any:
        if id(tensor) in self.accumulating:
            return tensor.grad
        values = self._tensor_values(tensor)
        if "grad" not in values:
            if origin is None:
                return tensor.grad  # what `backward` left there
            values["grad"] = facts.attribute(self.loader, origin, "grad")
            self.loader.slots[id(tensor)].initial["grad"] = values["grad"]
        return values["grad"]

    def may_require_grad(self, tensor: Any) -> None:
        """Breaks where autograd looks whether a tensor was made in inference mode: fakes of those from outside were
        not."""
        key = _torch.storage_key(tensor) if type(tensor) is Fake else None
        if any(_torch.storage_key(each) == key for each in self.world.recorder.made_in_inference):
            raise Break("tensor-attribute", "a tensor that was made in inference mode is to require grad")

    def store(self, tensor: Any, name: str, value: Any) -> None:
        """`tensor.name = value`."""
        if name == "grad":
            self._store_gradient(tensor, value)
            return
        if name == "data":
            self._store_data(tensor, value)
            return
        if name == "requires_grad" and type(value) is bool and (type(tensor) is Fake or value == tensor.requires_grad):
            if value:
                self.may_require_grad(tensor)
            tensor.requires_grad = value  # as `requires_grad_` does; what the caller holds follows
            return
        if name in HOOK_TABLES and (value is None or type(value) is OrderedDict):
            self._hook_table(tensor, name, self.loader.origin(tensor))
            self.loader.slots[id(tensor)].write(name, value)
            return
        known, _ = self.world.class_lookup(Fake, name)
        if known or name in TENSOR_ATTRIBUTES:
            raise Break("tensor-attribute", f"the attribute {name} of a tensor is written")
        self._tensor_values(tensor)
        overlay = self.loader.slots[id(tensor)]
        if name not in overlay.values:
            try:
                overlay.initial[name] = self._own_attribute(tensor, name, self.loader.origin(tensor))
            except AttributeError:
                overlay.initial[name] = MISSING
        overlay.write(name, value)

    def _store_gradient(self, tensor: Any, value: Any) -> None:
        if self.loader.origin(tensor) is None or id(tensor) in self.accumulating:
            tensor.grad = value  # where the engine finds it
            return
        self._tensor_values(tensor)  # what is there is not looked at
        if value is not None:
            same = isinstance(value, Fake) and (value.dtype, value.device, value.size()) == (
                tensor.dtype, tensor.device, tensor.size()
            )  # fmt: skip
            if not same or value is tensor:
                raise Break("tensor-attribute", "grad of a tensor is set to something of another kind")
        overlay = self.loader.slots[id(tensor)]
        overlay.write("grad", value)

    def _store_data(self, tensor: Any, value: Any) -> None:
        """`tensor.data = value`: from here on the tensor names the memory of `value`."""
        if not isinstance(value, Fake) or value.device != tensor.device or tensor.grad_fn is not None:
            raise Break("tensor-attribute", "data of a tensor is set to something of another kind")
        rebind(self.recorder, tensor, value)

    def note_data(self, tensor: Any, value: Any) -> None:
        """The recorder made `tensor` name the memory of `value`: what the caller holds must follow."""
        if self.loader.origin(tensor) is not None:
            self._tensor_values(tensor)
            overlay = self.loader.slots[id(tensor)]
            overlay.write("data", value)

    def keep_plain(self, tensor: Any) -> None:
        """Breaks if the program or its caller put attributes on the tensor object; guards that there are none."""
        if self._tensor_values(tensor).keys() - {"grad", "data"}:
            raise Break("tensor-attribute", "a tensor that carries attributes is copied")
        origin = self.loader.origin(tensor)
        if origin is not None and facts.count_of_attributes(self.loader, origin):
            raise Break("tensor-attribute", "a tensor that carries attributes is copied")


__all__ = ["TensorAttributes", "HEAP_TYPE"]


def _has_later_history(tensor: Fake) -> bool:
    """Whether the tensor got the history that it has behind the hooks that were registered on it: autograd lets go of
    the table then."""
    node = tensor.grad_fn
    return node is not None and node is not tensor.lampwork_edge and tensor._backward_hooks is None
