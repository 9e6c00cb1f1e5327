"""numpy in a program: numbers and arrays that it makes of plain data are computed while capturing.

Arrays from outside are looked at by nobody (`Loader` holds them opaque), and `Tensor.numpy()` breaks. What is left is
pure: sizes, tables and constants. An array that becomes a tensor shares its memory in eager; here the tensor is a
literal, so neither may be written afterwards, which is checked at the end.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.natives.effect_classes import declare
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import TENSOR_KINDS
from lampwork.capture.values.arrays import array_of
from lampwork.capture.values.number_arguments import call_with_numbers, holds_number
from lampwork.capture.values.unknown_array import UnknownArray
from lampwork.capture.values.walk import holds

_FUNCTIONS = """
    array asarray ascontiguousarray arange zeros empty prod sum mean max min amax amin linspace logspace stack
    concatenate vstack hstack clip round std var cumsum cumprod argmax argmin sort argsort where dot outer transpose
    reshape squeeze expand_dims ravel tile repeat broadcast_to all any median percentile diff meshgrid unique interp
    isclose allclose array_equal split array_split triu tril diag kron cross searchsorted histogram bincount
""".split()
#: Written in Python, on top of functions that write.
_PYTHON_FUNCTIONS = (numpy.ones, numpy.full, numpy.eye, numpy.identity)
_METHODS = """
    astype reshape copy sum mean prod max min item tolist transpose flatten ravel squeeze std var cumsum cumprod argmax
    argmin all any round clip dot __getitem__ __len__ __int__ __float__ __bool__ __index__ is_integer conj swapaxes
    take repeat nonzero
""".split()

declare("data", *[getattr(numpy, name) for name in _FUNCTIONS if callable(getattr(numpy, name, None))])
for _class in (numpy.ndarray, numpy.generic, numpy.floating, numpy.integer, numpy.dtype):
    declare("data", *[_class.__dict__[name] for name in _METHODS if callable(_class.__dict__.get(name))])


def _purely(function: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if not world.data.are_data(args, kwargs) or holds(args, TENSOR_KINDS) or holds(kwargs, TENSOR_KINDS):
            raise Break("native-argument", f"numpy.{function.__name__} is called with "
                        f"{world.data.describe_arguments(args, kwargs)}")  # fmt: skip
        return function(*args, **kwargs)

    return answer


def _shares_memory(function: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if function in (torch.tensor, torch.as_tensor) and args and holds_number(args[0]):
            world.touch(args[0])
            return call_with_numbers(function, args, kwargs)
        if args and type(args[0]) is UnknownArray:
            return _over_unknown(function, *args, **kwargs)
        if not args or not isinstance(args[0], (numpy.ndarray, numpy.generic)) or not world.data.are_data(args, kwargs):
            return world.call_native(function, args, kwargs)
        with world.recorder._paused():
            made = function(args[0].copy(), *args[1:], **kwargs)
        literal = world.recorder.constant(made)
        world.shared_arrays.append((args[0], args[0].copy(), literal))
        return literal

    return answer


def _over_unknown(function: Any, array: UnknownArray, *args: Any, **kwargs: Any) -> Any:
    """A tensor made of an array with unknown contents: over its memory, or a copy in another type or place."""
    if function is torch.tensor:
        return torch.Tensor.to(array.tensor, *args, copy=True, **kwargs)
    if array.scalar and function is torch.from_numpy:
        raise Break("tensor-argument", "torch.from_numpy is called with a number")
    tensor = array.tensor.clone() if array.scalar else array.tensor.detach()
    return tensor.to(*args, **kwargs) if args or kwargs else tensor


def check_shared_arrays(world: Any) -> None:
    """Raises `Break` if an array, or the tensor that shares its memory in eager, was written after it was made."""
    for array, before, literal in world.shared_arrays:
        if not numpy.array_equal(array, before) or _torch.storage_key(literal) in world.recorder.written:
            raise Break("shared-array", "an array and a tensor share memory, and one of them is written",
                        "Copy the array first.")  # fmt: skip


NATIVES: dict[Any, Answer] = {
    **{function: _purely(function) for function in _PYTHON_FUNCTIONS},
    torch.Tensor.numpy: lambda world, tensor, **options: array_of(tensor, **options),
    **{
        function: _shares_memory(function)
        for function in (torch.from_numpy, torch.as_tensor, torch.asarray, torch.tensor)
    },
}
