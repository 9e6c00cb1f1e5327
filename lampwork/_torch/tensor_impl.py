"""`TensorImpl` and `StorageImpl`: where they keep metadata (probed when the process starts), owners, versions."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from lampwork._torch.private import private


class TensorLayout(NamedTuple):
    """Byte offsets of what the runtime looks at in tensors.

    In a Python tensor: of its `at::Tensor`. In a `TensorImpl`: of the first and past the last word of its metadata, of
    its storage and its autograd metadata. In that: of `requires_grad` and of the gradient function. In a `StorageImpl`:
    of its data.
    """

    handle: int
    first: int
    last: int
    storage: int
    autograd: int
    requires_grad: int
    grad_fn: int
    data: int


class MetadataLayout(NamedTuple):
    """Byte offsets, in a `TensorImpl`, of what makes two tensors alike; see `metadata_layout`.

    `sizes` and `strides`: the first of each, where there are up to five, with the number of dimensions in front of the
    sizes. `offset`: of the storage, in elements. `traits`: the word of element type, device and flags. `keys`: dispatch
    keys. `plain_autograd`: what autograd metadata of tensors that are no views begin with.
    """

    dimensions: int
    sizes: int
    strides: int
    offset: int
    traits: int
    keys: int
    plain_autograd: int


@functools.cache
def metadata_layout() -> MetadataLayout | None:
    """Where a `TensorImpl` keeps sizes, strides, element type, device and flags; None where they are not found."""
    layout = tensor_layout()
    if layout is None:
        return None
    with torch.inference_mode(False), torch.no_grad():
        odd = torch.empty(2, 11, dtype=torch.float64)[:, 3:8:2]
        cube = torch.empty(3, 5, 7, 11, 13, dtype=torch.int16)
        line = torch.empty(17, dtype=torch.float32)
        samples = (odd, cube, line)
        sizes = _offset_of([(each._cdata, each.shape[0]) for each in samples], 400)
        offset = _offset_of([(each._cdata, each.storage_offset()) for each in (odd, odd[:, 1:], odd[1:])], 400)
        if sizes is None or offset is None:
            return None
        dimensions, strides = sizes - 8, sizes + 40
        for each in samples:
            at = each._cdata
            for axis, (size, stride) in enumerate(zip(each.shape, each.stride())):
                if _word(at + sizes + 8 * axis) != size or _word(at + strides + 8 * axis) != stride:
                    return None
            if _word(at + dimensions) != each.dim() or _word(at + offset + 8) != each.numel():
                return None
        traits, keys = offset + 16, layout.last - 8
        # Nothing lies between the number of elements and the keys but that one word: the element type, a device that
        # may be absent, and bits.
        if keys != traits + 8 or strides + 40 > offset or _word(line._cdata + traits) == _word(odd._cdata + traits):
            return None
        leaf, other = torch.empty(3).requires_grad_(), torch.empty(5, 2).requires_grad_()
        plain = [_word(_word(each._cdata + layout.autograd)) for each in (leaf, other)]
        if plain[0] != plain[1] or not plain[0]:
            return None
        return MetadataLayout(dimensions, sizes, strides, offset, traits, keys, plain[0])


@functools.cache
def tensor_layout() -> TensorLayout | None:
    """The layout, found by looking for known values in tensors made for the purpose; None where they are not found."""
    with torch.inference_mode(False), torch.no_grad():
        plain = torch.empty(5, 7, dtype=torch.float32)
        odd = torch.empty(2, 11, dtype=torch.float64)[:, 3:8:2]
        leaf = torch.empty(3).requires_grad_()
        handle = _offset_of([(id(each), each._cdata) for each in (plain, odd, leaf)], 64)
        storage = _offset_of([(each._cdata, each.untyped_storage()._cdata) for each in (plain, odd, leaf)], 64)
        keys = _offset_of([(each._cdata, torch._C._dispatch_keys(each).raw_repr()) for each in (plain, odd, leaf)], 400)
        sizes = _offset_of([(plain._cdata, 5), (odd._cdata, 2), (leaf._cdata, 3)], 400)
        strides = _offset_of([(plain._cdata, 7), (odd._cdata, 11), (leaf._cdata, 1)], 400)
        right, lower = odd[:, 1:], odd[1:]
        offset = _offset_of([(odd._cdata, 3), (right._cdata, 5), (lower._cdata, 14)], 400)
        storages = [each.untyped_storage() for each in (plain, leaf)]
        data = _offset_of([(each._cdata, each.data_ptr()) for each in storages], 96)
        if None in (handle, storage, keys, sizes, strides, offset, data):
            return None
        assert storage is not None and keys is not None and sizes and strides and offset and handle and data
        # In order: storage, autograd metadata, ..., sizes and strides, offset, count, dtype, device, flags, keys.
        autograd = storage + 8
        if not storage < autograd < sizes < offset < keys or not storage < strides < keys:
            return None
        if _word(plain._cdata + autograd) or not _word(leaf._cdata + autograd):
            return None
        other = torch.empty(5, 7, dtype=torch.int32)
        between = range(storage + 8, keys, 8)
        if all(_word(plain._cdata + at) == _word(other._cdata + at) for at in between):
            return None  # the element type is kept somewhere else
        requires_grad = _requires_grad_offset(leaf, _word(leaf._cdata + autograd))
        with torch.enable_grad():
            result = leaf.requires_grad_() * 2
        function = result.grad_fn  # kept: what lay where a freed object was says nothing
        node = _word(id(function) + 16)  # the C++ node that it stands for
        grad_fn = _offset_of([(_word(result._cdata + autograd), node), (_word(leaf._cdata + autograd), 0)], 200)
        if requires_grad is None or grad_fn is None or not node:
            return None
        return TensorLayout(handle, storage, keys + 8, storage, autograd, requires_grad, grad_fn, data)


def _word(address: int) -> int:
    return int.from_bytes(ctypes.string_at(address, 8), "little")


def _offset_of(places: list[tuple[int, int]], limit: int) -> int | None:
    """The first offset at which every object holds its value."""
    for offset in range(8, limit, 8):
        if all(_word(address + offset) == value & 0xFFFFFFFFFFFFFFFF for address, value in places):
            return offset
    return None


def _requires_grad_offset(leaf: torch.Tensor, meta: int) -> int | None:
    """The byte of autograd metadata that follows `requires_grad_`; 1 for true."""
    found = set(range(8, 160))
    for value in (True, False, True, False):
        leaf.requires_grad_(value)
        data = ctypes.string_at(meta, 160)
        found = {at for at in found if data[at] == value}
    return found.pop() if len(found) == 1 else None


def storage_address(tensor: torch.Tensor) -> int:
    """What `untyped_storage()._cdata` is, without making the storage's Python object. Needs `tensor_layout()`."""
    layout = tensor_layout()
    assert layout is not None
    return _word(tensor._cdata + layout.storage)


@functools.cache
def _size_offset() -> int | None:
    """Where a storage keeps its size, found as in `tensor_layout`."""
    storages = [torch.empty(size, dtype=torch.uint8).untyped_storage() for size in (4099, 70001, 1237)]
    return _offset_of([(each._cdata, each.nbytes()) for each in storages], 96)


def storage_bytes(tensor: torch.Tensor) -> int:
    """`tensor.untyped_storage().nbytes()`, without making the storage's Python object, which would own it for good."""
    offset = _size_offset() if tensor_layout() is not None and type(tensor) in _PLAIN else None
    address = storage_address(tensor) if offset is not None else 0
    return _word(address + offset) if address and offset is not None else tensor.untyped_storage().nbytes()


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def storage_use_count_at(address: int) -> int:
    """How many owners (tensors, views, exports) the storage whose `_cdata` is `address` has. It must be alive."""
    return torch._C._storage_Use_Count(address)


def can_lend() -> bool:
    """Whether `lent` works with this build of PyTorch."""
    return hasattr(torch._C, "_construct_storage_from_data_pointer")


def lent(memory: int, size_bytes: int, device: torch.device) -> torch.Tensor:
    """The bytes at an address as a tensor that owns nothing: whoever asks sees to it that the memory stays."""
    storage = torch._C._construct_storage_from_data_pointer(memory, device, size_bytes)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def copy_to_each(targets: Sequence[torch.Tensor], source: torch.Tensor) -> None:
    """Writes `source` to each of `targets` by one call."""
    torch._foreach_copy_(targets, [source] * len(targets))


def increment_version(*tensors: torch.Tensor) -> None:
    """The tensors were written: autograd and version checks see it. Inference tensors keep no version."""
    increment_versions(with_versions(tensors))


def with_versions(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Those that keep a version: all but inference tensors."""
    return [tensor for tensor in tensors if not tensor.is_inference()]


def version_of(tensor: torch.Tensor) -> int:
    """How often autograd has seen the tensor's memory written. 0 for inference tensors, which keep no version."""
    return 0 if tensor.is_inference() else tensor._version


def set_versions(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    """Makes each tensor one that was written so often. Inference tensors keep no version."""
    kept = [each for each in zip(tensors, versions, strict=True) if not each[0].is_inference()]
    if kept:
        torch._C._autograd._unsafe_set_version_counter(*map(tuple, zip(*kept)))


def shares_version(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether a write to one raises the version of both: a view does what `.data` does not. Asks by a change of one,
    which is taken back."""
    if left.is_inference() or right.is_inference():
        return left.is_inference() and right.is_inference()
    before, other = left._version, right._version
    set_versions((left,), (before + 1,))
    shared = right._version != other
    set_versions((left,), (before,))
    return shared


def track_view(view: torch.Tensor) -> None:
    """Makes a view, made where gradients are off, one that was made where they are on: it, and its base, may be written
    where gradients flow."""
    _set_creation(view, _MADE_WITH_GRADIENTS)


_set_creation = private("_C._autograd._set_creation_meta")
_MADE_WITH_GRADIENTS = private("_C._autograd.CreationMeta.DEFAULT")


def increment_versions(tensors: Sequence[torch.Tensor]) -> None:
    """As `increment_version`, for tensors that are known to keep a version."""
    if tensors:
        torch._C._increment_version(tensors)
