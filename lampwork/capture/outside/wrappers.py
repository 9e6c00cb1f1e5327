"""Tensors of wrapper subclasses from outside: what stands for one, and the guards on what that says.

The tensor itself is no input of the graph: it has no memory. What the program reads of it (`self.int_data`) is loaded
as of any other object, through its instance dict, and is where the graph's inputs come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import UninitializedTensorMixin

from lampwork import _torch
from lampwork.capture.outside.dynamic_sizes import symbolic_layout
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.tensor_inputs import tensor_test
from lampwork.capture.record.fake import Fake
from lampwork.fakes.wrappers import Wrapper
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader
    from lampwork.capture.outside.overlay import Origin


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_wrapper(raw: torch.Tensor) -> bool:
    """Whether a tensor is of a subclass of the program's."""
    return type(raw) not in _PLAIN and not isinstance(raw, (Wrapper, Fake, UninitializedTensorMixin))


def dispatches(cls: type) -> bool:
    """Whether a class of tensors says in Python what operators do. Else they read and write its memory."""
    return getattr(cls, "__torch_dispatch__", _torch.no_torch_dispatch) is not _torch.no_torch_dispatch


def load_wrapper(loader: Loader, raw: torch.Tensor, source: Source) -> Any:
    """What stands for `raw`, which was not met before."""
    kind = type(raw)
    with _torch.without_torch_function():
        if raw.layout is not torch.strided or not all(type(each) is int for each in (*raw.size(), *raw.stride())):
            raise Break("tensor-layout", f"a tensor of class {kind.__qualname__} and layout {raw.layout} is read")
        if raw.requires_grad and (not raw.is_leaf or torch.is_grad_enabled()):
            remedy = "Call the compiled function under torch.no_grad()."
            raise Break("tensor-subclass", f"a tensor of class {kind.__qualname__} that requires grad is read", remedy)
        if raw.is_conj() or raw.is_neg():
            raise Break("tensor-layout", f"a lazily conjugated tensor of class {kind.__qualname__} is read")
        loader.guards.type_is(source, kind)
        loader.class_source(kind, source)
        made = _without_memory(loader, raw, source) if dispatches(kind) else _with_memory(loader, raw, source)
        layout = tuple(made.size()), tuple(made.stride())
        loader.guards.add(source, ("tensor",), lambda: tensor_test(raw, layout))
    for name in _torch.KIND_FLAGS:
        if name in raw.__dict__:
            made.__dict__[name] = True
    loader.remember(made, raw, source)
    loader.subclasses.outside.append((loader.by_value[id(made)], layout))
    return made


def _without_memory(loader: Loader, raw: torch.Tensor, source: Source) -> Wrapper:
    kind, layout = type(raw), None
    if loader.subclasses.class_of(kind).__torch_function__ is _torch.no_torch_function:  # `x.shape` asks nobody
        tensors, shape = loader.tensors, loader.sources.attribute(source, "shape")
        layout = symbolic_layout(
            raw, source, tensors.policy, tensors.recorder.sizes,
            lambda axis, size: tensors.part(size, loader.sources.item(shape, axis)),
        )  # fmt: skip
    sizes, strides = layout or (tuple(raw.size()), raw.stride())
    options = {"dtype": raw.dtype, "device": raw.device, "requires_grad": raw.requires_grad}
    options |= {"strides": strides, "storage_offset": raw.storage_offset()}
    with _torch.without_modes(), torch.inference_mode(raw.is_inference()):
        made = loader.subclasses.made(kind, (sizes,), options)
    _torch.set_versions((made,), (0,))  # from here on it counts the program's writes
    return made


def _with_memory(loader: Loader, raw: torch.Tensor, source: Source) -> Wrapper:
    with _torch.without_modes():
        plain = raw.detach()
    fake = loader.tensors.load(plain, loader.sources.plain_tensor(source))
    return loader.subclasses.over(type(raw), fake, raw.requires_grad)


def is_changed(origin: Origin, layout: tuple[tuple, tuple]) -> bool:
    """Whether what stands for a wrapper from outside, of that layout, is another tensor to autograd by now."""
    made = origin.value
    with _torch.without_torch_function():
        same = made.is_leaf and made.requires_grad == origin.raw.requires_grad
        return not same or (tuple(made.size()), tuple(made.stride())) != layout


def writes(origin: Origin) -> int:
    """How often the program wrote to a wrapper from outside; what has memory is a graph's input, which tells that."""
    if dispatches(type(origin.raw)):
        return 0 if origin.value.is_inference() else _version(origin.value)
    return 0


def _version(made: Wrapper) -> int:
    with _torch.without_torch_function():
        return made._version


__all__ = ["dispatches", "is_changed", "is_wrapper", "load_wrapper", "writes"]
