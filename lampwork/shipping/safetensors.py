"""The safetensors format, version 0.3 and later: https://github.com/huggingface/safetensors#format.

    8 bytes       length of the header, little endian
    header        JSON: {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}, padded with spaces
    data          elements in rows, little endian, without holes

Written and read here, so that a process needs nothing but PyTorch to load weights. Other programs read these bytes with
the `safetensors` library. Data alone: reading runs no code.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint64: "U64", torch.uint32: "U32",
    torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
_LIMIT_HEADER_BYTES = 100_000_000  # of the format
_ALIGNED = 8


class Input(Protocol):
    """What bytes are read from, in order."""

    left: int

    def read(self, size: int) -> bytes: ...

    def read_into(self, memory: memoryview) -> None: ...


def pieces(tensors: Mapping[str, torch.Tensor]) -> list[bytes | memoryview]:
    """The bytes of a file with these tensors. Those on the CPU that lie in a row are not copied: they must not be
    written while the pieces are used. Raises TypeError for a type that the format has no name for."""
    if sys.byteorder != "little":
        raise TypeError("weights are little endian, and this processor is not")
    header: dict[str, Any] = {}
    data: list[bytes | memoryview] = []
    end = 0
    # The largest elements first, as the library has it: then each tensor is aligned to its elements.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        if tensor.dtype not in NAMES:
            raise TypeError(f"{name} is of type {tensor.dtype}, which safetensors does not have")
        memory = memory_of(tensor.detach().cpu().contiguous())
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + memory.nbytes],
        }
        data.append(memory)
        end += memory.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return [len(text).to_bytes(8, "little"), text, *data]


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor on the CPU that lies in a row."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else memoryview(b"")


def read(source: Input, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, torch.Tensor]:
    """The tensors of a file, each in memory of its own on the CPU. Those that are not `wanted` are passed over.

    Raises ValueError where the bytes are no such file.
    """
    if source.left < 8:
        raise ValueError("it is too short")
    size = int.from_bytes(source.read(8), "little")
    if size > min(_LIMIT_HEADER_BYTES, source.left):
        raise ValueError("its header is longer than the file")
    try:
        header = json.loads(source.read(size))
        header.pop("__metadata__", None)
        rows = sorted((*_row(name, each),) for name, each in header.items())
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from None
    at = 0
    for begin, end, name, dtype, shape in rows:
        if begin != at or end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
            raise ValueError(f"{name} does not lie where its size says")
        at = end
    if at != source.left:
        raise ValueError("it has another size than its tensors")
    found = {}
    for begin, end, name, dtype, shape in rows:
        if wanted(name):
            found[name] = torch.empty(shape, dtype=_DTYPES[dtype])
            if end > begin:
                source.read_into(memory_of(found[name]))
        else:
            while begin < end:
                begin += len(source.read(min(end - begin, 1 << 24)))
    return found


def _row(name: str, described: dict[str, Any]) -> tuple[int, int, str, str, tuple[int, ...]]:
    begin, end = described["data_offsets"]
    shape = tuple(described["shape"])
    if not {int}.issuperset(map(type, (begin, end, *shape))) or min((0, begin, end, *shape)) < 0:
        raise ValueError(f"{name} has sizes that are no numbers")
    if described["dtype"] not in _DTYPES:
        raise ValueError(f"{name} is of the type {described['dtype']!s:.20}, which is not known")
    return begin, end, name, described["dtype"], shape
