"""Tensors of wrapper subclasses from outside: what stands for one, and the guards on what that says.

The tensor itself is no input of the graph: it has no memory. What the program reads of it (`self.int_data`) is loaded
as of any other object, through its instance dict, and is where the graph's inputs come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.capture.outside.dynamic_sizes import symbolic_layout
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.tensor_inputs import tensor_test
from lampwork.fakes.wrappers import Wrapper
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader
    from lampwork.capture.outside.overlay import Origin


def is_wrapper(raw: torch.Tensor) -> bool:
    """Whether the class of a tensor, a subclass of `Tensor`, says in Python what operators do. (That it does is guarded
    where its method is looked up.)"""
    method = type(raw).__torch_dispatch__
    return method is not _torch.no_torch_dispatch and not isinstance(raw, Wrapper)


def load_wrapper(loader: Loader, raw: torch.Tensor, source: Source) -> Any:
    """What stands for `raw`, which was not met before."""
    kind = type(raw)
    with _torch.without_torch_function():
        if raw.layout is not torch.strided or not all(type(each) is int for each in (*raw.size(), *raw.stride())):
            raise Break("tensor-layout", f"a tensor of class {kind.__qualname__} and layout {raw.layout} is read")
        if raw.requires_grad and (not raw.is_leaf or torch.is_grad_enabled()):
            remedy = "Call the compiled function under torch.no_grad()."
            raise Break("tensor-subclass", f"a tensor of class {kind.__qualname__} that requires grad is read", remedy)
        loader.guards.type_is(source, kind)
        loader.class_source(kind, source)
        layout = None
        if loader.subclasses.class_of(kind).__torch_function__ is _torch.no_torch_function:  # `x.shape` asks nobody
            tensors, shape = loader.tensors, loader.sources.attribute(source, "shape")
            layout = symbolic_layout(
                raw, source, tensors.policy, tensors.recorder.sizes,
                lambda axis, size: tensors.part(size, loader.sources.item(shape, axis)),
            )  # fmt: skip
        loader.guards.add(source, ("tensor",), lambda: tensor_test(raw, layout))
        sizes, strides = layout or (tuple(raw.size()), raw.stride())
        options = {"dtype": raw.dtype, "device": raw.device, "requires_grad": raw.requires_grad}
        options |= {"strides": strides, "storage_offset": raw.storage_offset()}
        with _torch.without_modes(), torch.inference_mode(raw.is_inference()):
            made = loader.subclasses.made(kind, (sizes,), options)
        _torch.set_versions((made,), (0,))  # from here on it counts the program's writes
    for name in _torch.KIND_FLAGS:
        if name in raw.__dict__:
            made.__dict__[name] = True
    loader.remember(made, raw, source)
    loader.subclasses.outside.append((loader.by_value[id(made)], (tuple(sizes), tuple(strides))))
    return made


def is_changed(origin: Origin, layout: tuple[tuple, tuple]) -> bool:
    """Whether what stands for a wrapper from outside, of that layout, is another tensor to autograd by now."""
    made = origin.value
    with _torch.without_torch_function():
        same = made.is_leaf and made.requires_grad == origin.raw.requires_grad
        return not same or (tuple(made.size()), tuple(made.stride())) != layout


def writes(origin: Origin) -> int:
    """How often the program wrote to a wrapper from outside."""
    with _torch.without_torch_function():
        return 0 if origin.value.is_inference() else origin.value._version


__all__ = ["is_wrapper", "is_changed", "load_wrapper", "writes"]
