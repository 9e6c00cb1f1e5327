"""Weights: what they look like (signatures), and the tensors of a package under their names.

gathered:   a tensor of the program and where it was found  ->  its name, one for all places where it is found
in a file:  a row of the manifest each, and one safetensors section
restored:   the same strides, classes and gradients flags; tensors that shared memory share it again
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lampwork.ir.record import record
from lampwork.ir.source import InstanceDict, Item, Root, Source, describe
from lampwork.shipping import safetensors

#: Classes that a weight may have, by the name that `TensorIs` has for them.
_CLASSES: dict[str, type] = {
    "torch.Tensor": torch.Tensor,
    "torch.nn.parameter.Parameter": torch.nn.Parameter,
}
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")


# Signatures ----------------------------------------------------------------------------------------------------------


def signatures(function: object) -> list[list[Any]]:
    """[name, dtype, shape, device] of each parameter and buffer of a module; of a function none."""
    if not isinstance(function, torch.nn.Module):
        return []
    every = [*function.named_parameters(remove_duplicate=False), *function.named_buffers(remove_duplicate=False)]
    return sorted([name, *_looks(tensor)] for name, tensor in every)


def _looks(tensor: torch.Tensor) -> tuple[str, list[int], str]:
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape), str(tensor.device)


def other_signatures(stored: object, function: object) -> list[str]:
    """In what the weights of `function` differ from stored signatures, each in words. Raises ValueError where these
    have not the form of signatures."""
    if not isinstance(stored, list):
        raise ValueError("it has no signatures of weights")
    before = {name: (dtype, shape, device) for name, dtype, shape, device in stored}
    now = {name: (dtype, shape, device) for name, dtype, shape, device in signatures(function)}
    found = []
    for name in sorted({*before, *now}):
        if name not in now:
            found.append(f"the model has no weight {name}, which was {_shown(before[name])}")
        elif name not in before:
            found.append(f"the model has a weight {name}, which there was none of")
        elif before[name] != now[name]:
            found.append(f"the weight {name} was {_shown(before[name])}, is now {_shown(now[name])}")
    return found


def _shown(looks: tuple) -> str:
    dtype, shape, device = looks
    return f"{dtype}{shape} on {device}"


# The tensors of a package --------------------------------------------------------------------------------------------


class Unfit(ValueError):
    """A tensor cannot be a weight of a package. The text says which and why."""


@record
class Weight:
    """A weight in a manifest. `given`: who loads the package brings it. `part_of`: the stored tensor in whose memory it
    lies, `offset` elements after its beginning; empty where it is stored under its own name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    cls: str
    requires_grad: bool
    given: bool = False
    part_of: str = ""
    offset: int = 0


class Weights:
    """The weights that a package needs. `without`: names of those that whoever loads it brings."""

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.without = without
        self._names: dict[int, str] = {}

    def name(self, tensor: torch.Tensor, source: Source) -> str:
        """The name of a tensor that was found at `source`. Raises `Unfit` where a file cannot bring it back."""
        name = self._names.get(id(tensor))
        if name is None:
            shown = describe(source)
            cls = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
            if cls not in _CLASSES:
                raise Unfit(f"{shown} is of the class {cls}")
            if (
                tensor.layout is not torch.strided
                or tensor.is_conj()
                or tensor.is_neg()
                or tensor.device.type == "meta"
            ):
                raise Unfit(f"{shown} is not a plain tensor with memory")
            if tensor.is_inference() or not tensor.is_leaf:
                raise Unfit(f"{shown} was made in inference mode, or by a program that gradients go through")
            if tensor.dtype not in safetensors.NAMES:
                raise Unfit(f"{shown} is of type {tensor.dtype}, which safetensors does not have")
            name = _dotted(source) or shown
            while name in self.tensors:
                name += "'"
            self._names[id(tensor)] = name
            self.tensors[name] = tensor
        return name

    def packed(self) -> tuple[list[Weight], dict[str, torch.Tensor]]:
        """A row for each weight, and what is stored. Raises `Unfit`."""
        by_memory: dict[tuple[str, int], list[str]] = {}
        for name, tensor in self.tensors.items():
            by_memory.setdefault((str(tensor.device), tensor.untyped_storage().data_ptr()), []).append(name)
        rows, stored = [], {}
        for names in by_memory.values():
            first = self.tensors[names[0]]
            if first.numel() == 0 or len(names) == 1 and _is_plain(first):
                for name in names:
                    rows.append(self._row(name))
                    if not rows[-1].given:
                        stored[name] = self.tensors[name]
            else:
                memory, start = self._common_memory(names)
                whole = f"memory of {names[0]}"
                stored[whole] = memory
                for name in names:
                    rows.append(self._row(name, whole, self.tensors[name].storage_offset() - start))
        return rows, stored

    def _row(self, name: str, part_of: str = "", offset: int = 0) -> Weight:
        tensor = self.tensors[name]
        dtype, shape, device = _looks(tensor)
        cls = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        given = name in self.without and not part_of
        strides = tuple(tensor.stride())
        return Weight(name, dtype, tuple(shape), strides, device, cls, tensor.requires_grad, given, part_of, offset)

    def _common_memory(self, names: Sequence[str]) -> tuple[torch.Tensor, int]:
        """The elements from the first to the last that these tensors reach, in a row, and where that begins."""
        tensors = [self.tensors[name].detach() for name in names]
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise Unfit(f"{' and '.join(names)} share memory and are of different types")
        if not self.without.isdisjoint(names):
            raise Unfit(f"{names[0]} shares memory with another tensor, or overlaps itself: it cannot be left out")
        start = min(tensor.storage_offset() for tensor in tensors)
        end = max(tensor.storage_offset() + _extent(tensor.shape, tensor.stride()) for tensor in tensors)
        return torch.as_strided(tensors[0], (end - start,), (1,), start), start


def _dotted(source: Source) -> str:
    """The name that `state_dict` has for the parameter or buffer at `source`; empty where it is none."""
    parts: list[str] = []
    while isinstance(source, Item) and isinstance(source.base, Item) and isinstance(source.base.base, InstanceDict):
        if source.base.key not in _MODULE_DICTS or type(source.key) is not str:
            return ""
        parts.append(source.key)
        source = source.base.base.base
    return ".".join(reversed(parts)) if isinstance(source, Root) else ""


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Each element has a place of its own, in any order of dimensions, without holes."""
    return _extent(tensor.shape, tensor.stride()) == tensor.numel()


# Back from a file ----------------------------------------------------------------------------------------------------


def rows_of(described: object) -> list[Weight]:
    """The rows of a manifest. Raises ValueError where they have another form."""
    if not isinstance(described, list):
        raise ValueError("it names no weights")
    rows = []
    for each in described:
        if not isinstance(each, dict):
            raise ValueError("a weight is described otherwise")
        try:
            row = Weight(**each | {"shape": tuple(each["shape"]), "strides": tuple(each["strides"])})
        except (TypeError, KeyError):
            raise ValueError("a weight is described otherwise") from None
        texts, numbers = (row.name, row.dtype, row.device, row.cls, row.part_of), (*row.shape, *row.strides, row.offset)
        if not {str}.issuperset(map(type, texts)) or not {int}.issuperset(map(type, numbers)) or min((0, *numbers)) < 0:
            raise ValueError(f"the weight {row.name!s:.60} is described otherwise")
        if not {bool}.issuperset(map(type, (row.requires_grad, row.given))) or len(row.shape) != len(row.strides):
            raise ValueError(f"the weight {row.name:.60} is described otherwise")
        if row.cls not in _CLASSES or not isinstance(getattr(torch, row.dtype, None), torch.dtype):
            raise ValueError(f"the weight {row.name:.60} is of no class or type of a weight")
        if math.prod(row.shape) >= 1 << 62 or _extent(row.shape, row.strides) >= 1 << 62:
            raise ValueError(f"the weight {row.name:.60} is too large")
        rows.append(row)
    return rows


def restored(
    rows: Sequence[Weight], stored: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights by name, on their devices. Raises ValueError where one is missing, or does not fit its row."""
    on_device: dict[tuple[str, str], torch.Tensor] = {}
    found = {}
    for row in rows:
        kept = given if row.given else stored
        name = row.part_of or row.name
        value = kept.get(name)
        if value is None:
            raise ValueError(f"the weight {name} is missing" + (": it is not in the package" if row.given else ""))
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype != row.dtype or not row.part_of and tuple(value.shape) != row.shape:
            raise ValueError(
                f"the weight {name} is {dtype}{list(value.shape)}, where {row.dtype}{list(row.shape)} was packed"
            )
        moved = on_device.get((name, row.device))
        if moved is None:
            moved = on_device[name, row.device] = _moved(value.detach(), row.device)
        found[row.name] = _restored(row, moved)
    return found


def _moved(value: torch.Tensor, device: str) -> torch.Tensor:
    try:
        return value.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:  # PyTorch says with the latter that it was built without one
        raise ValueError(f"weights are for the device {device:.40}, which cannot be used here ({error})") from None


def _restored(row: Weight, value: torch.Tensor) -> torch.Tensor:
    if row.part_of:
        if value.dim() != 1 or row.offset + _extent(row.shape, row.strides) > value.numel():
            raise ValueError(f"the weight {row.name} lies outside of its memory")
        made = torch.as_strided(value, row.shape, row.strides, row.offset)
    elif value.stride() == row.strides:
        made = value
    else:
        if _extent(row.shape, row.strides) != functools.reduce(operator.mul, row.shape, 1):
            raise ValueError(f"the weight {row.name} has strides that it cannot have")
        made = torch.empty_strided(row.shape, row.strides, dtype=value.dtype, device=value.device)
        made.copy_(value)
    if row.cls != "torch.Tensor":
        return torch.nn.Parameter(made, requires_grad=row.requires_grad)
    return made.requires_grad_(row.requires_grad)


def tensors_of(weights: object) -> Mapping[str, torch.Tensor]:
    """What a user gives as weights: a mapping, such as a `state_dict`, or the path of a safetensors file.

    Raises ValueError for anything else, and OSError where the file cannot be read.
    """
    if isinstance(weights, Mapping):
        strange = [str(name) for name, value in weights.items() if not isinstance(value, torch.Tensor)]
        if strange:
            raise ValueError(f"{', '.join(strange[:5])} in the weights is no tensor")
        return weights
    if not isinstance(weights, (str, Path)):
        raise ValueError("weights are a dict of tensors or the path of a safetensors file")
    with open(weights, "rb") as file:
        file.seek(0, 2)
        source = _Plain(file, file.tell())
        file.seek(0)
        return safetensors.read(source)


class _Plain:
    """A file as `safetensors.read` takes it."""

    def __init__(self, file: Any, left: int) -> None:
        self.file, self.left = file, left

    def read(self, size: int) -> bytes:
        data = self.file.read(size) if 0 <= size <= self.left else b""
        self._took(len(data), size)
        return data

    def read_into(self, memory: memoryview) -> None:
        self._took(self.file.readinto(memory), memory.nbytes)

    def _took(self, count: int, size: int) -> None:
        if count != size:
            raise ValueError("the file ends early")
        self.left -= size
