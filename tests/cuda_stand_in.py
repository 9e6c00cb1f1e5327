"""Programs on CUDA tensors without CUDA: real tensors are captured as fakes that lie on a CUDA device.

    with cuda_stand_in():
        region = capture(model, (x,), {}, Settings())      # every tensor of model and x is said to be on cuda:0

Nothing runs: kernels of CUDA do not exist here. What can be looked at is the graph, the devices of its values and what
later stages make of it. Operators that ask CUDA's libraries (attention's choice, the layout of convolutions) answer as a
build without them does.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from lampwork import _torch
from lampwork.capture.record.recorder import Recorder
from lampwork.fakes.fake import Fake, make_fake, spec_of

CUDA = torch.device("cuda", 0)


@functools.cache
def _register_view_kernels() -> torch.library.Library:
    """The view kernels that a build without CUDA lacks, and a device guard that does nothing."""
    if not torch.backends.cuda.is_built():
        _register_device_guard()
    library = torch.library.Library("aten", "IMPL")

    def as_strided(x: torch.Tensor, size: Any, stride: Any, storage_offset: Any = None) -> torch.Tensor:
        result = torch.ops.aten.alias.default(x)
        offset = x.storage_offset() if storage_offset is None else storage_offset
        return torch.ops.aten.as_strided_.default(result, size, stride, offset)

    def view(x: torch.Tensor, size: Any) -> torch.Tensor:
        like = torch.empty_strided(x.size(), x.stride(), device="meta").view(size)
        return as_strided(x, like.size(), like.stride())

    def unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
        like = torch.empty_strided(x.size(), x.stride(), device="meta").unfold(dimension, size, step)
        return as_strided(x, like.size(), like.stride())

    library.impl("as_strided", as_strided, "CUDA")
    library.impl("_reshape_alias", as_strided, "CUDA")
    library.impl("view", view, "CUDA")
    library.impl("unfold", unfold, "CUDA")
    return library


def _register_device_guard() -> None:
    """CUDA gets the device guard of meta tensors, which does nothing (asked for the current device it says "meta": a
    program must name the index in `x.to("cuda:0")`)."""
    meta, cuda = 14, 1  # c10::DeviceType
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    registry = (ctypes.c_void_p * 20).in_dll(ctypes.CDLL(path), "_ZN3c104impl26device_guard_impl_registryE")
    assert registry[meta]
    if not registry[cuda]:
        registry[cuda] = registry[meta]


@contextmanager
def cuda_stand_in(on_cpu: Iterable[torch.Tensor] = (), elsewhere: dict[int, str] | None = None) -> Iterator[None]:
    """Inputs of recordings are said to be on cuda:0, but for those `on_cpu` and those whose `id` is in `elsewhere`."""
    _register_view_kernels()
    places = {id(tensor): torch.device("cpu") for tensor in on_cpu}
    places.update({key: torch.device(name) for key, name in (elsewhere or {}).items()})

    def record_input(self: Recorder, tensor: torch.Tensor, source: Any = None, layout: Any = None) -> Any:
        device = places.get(id(tensor), CUDA)
        spec = spec_of(tensor)
        if layout is not None:
            with self._paused():
                spec = replace(spec, shape=layout[0], strides=layout[1], device=device)
                fake = make_fake(spec, source=source)
            self.uses_cuda |= fake.is_cuda
            return self.placeholder(fake)
        with self._paused(), torch.no_grad(), _torch.kernels_only():
            key = _torch.storage_key(tensor)
            if key not in self._storages:
                size = tensor.untyped_storage().nbytes()
                owner = _torch.tensor_without_memory(Fake, (size,), (1,), torch.uint8, device)
                self._storages[key] = owner  # type: ignore[assignment]
            plain = self._storages[key].view(spec.dtype).as_strided(spec.shape, spec.strides, spec.offset)  # type: ignore
            fake = _torch.as_subclass(Fake, plain, spec.requires_grad)
        fake.real_class, fake.lampwork_source = spec.real_class, source
        if isinstance(tensor, torch.nn.Parameter):
            fake._is_param = True
        self.uses_cuda |= fake.is_cuda
        return self.placeholder(fake)

    with mock.patch.object(Recorder, "input", record_input), mock.patch("torch.cuda._lazy_init"):
        yield
