"""`UnknownArray`: what stands for a numpy array, or number, with contents that the graph knows.

numpy must not see it: every special method of it that native code could call breaks the graph.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake

NUMPY_TYPES = {
    torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.float32: "float32", torch.float64: "float64",
}  # fmt: skip
TORCH_TYPES = {numpy.dtype(name): each for each, name in NUMPY_TYPES.items()}


class UnknownArray:
    """An array, or with `scalar` a number of numpy's, over the memory of `tensor`, which is on the CPU."""

    __slots__ = ("tensor", "scalar")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Fake, scalar: bool = False) -> None:
        self.tensor, self.scalar = tensor, scalar

    @property
    def dtype(self) -> numpy.dtype:
        return numpy.dtype(NUMPY_TYPES[self.tensor.dtype])

    @property
    def kind(self) -> type:
        """The class that it has for the program."""
        return self.dtype.type if self.scalar else numpy.ndarray


def unsupported(what: str) -> Break:
    return Break("unknown-native", f"{what} of an array with unknown contents", "Use torch functions on tensors.")


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise unsupported("what is done")


for _name in (
    "array", "bool", "int", "float", "index", "complex", "len", "iter", "contains", "getitem", "setitem", "str", "repr",
    "format", "round", "trunc", "floor", "ceil", "abs", "neg", "pos", "invert", "divmod", "rdivmod", "copy", "deepcopy",
    "eq", "ne", "lt", "le", "gt", "ge",
    *[f"{prefix}{name}" for prefix in ("", "r", "i") for name in
      ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")],
):  # fmt: skip
    setattr(UnknownArray, f"__{_name}__", _refuse)


def can_follow(array: Any) -> bool:
    """Whether a tensor can stand for the memory of an array from outside."""
    return (
        type(array) is numpy.ndarray and array.dtype in TORCH_TYPES and array.dtype.isnative and array.flags.writeable
        and all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    )  # fmt: skip
