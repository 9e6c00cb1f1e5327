"""Functions of numpy, and methods, on arrays that the graph computes (`arrays.py`).

Each gives an array of the type, shape and memory that numpy's would have: `reshape` a view, `sum` a scalar. What would
differ in anything, an option that is not in a signature here among it, is refused.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.arrays import (
    ELEMENTWISE,
    array_of,
    array_tensor,
    check_shapes,
    elementwise,
    finite,
    product,
    sample,
    torch_type,
)
from lampwork.capture.values.special_methods import objects_in
from lampwork.capture.values.unbacked_numbers import item, items
from lampwork.capture.values.unknown_array import UnknownArray, unsupported

_DISPATCHER = type(numpy.sum)
#: Those that warn where their result is not finite.
_FLOATING = frozenset({"sum", "mean", "prod", "std", "var"})
_REDUCTIONS = {
    "sum": torch.sum, "mean": torch.mean, "prod": torch.prod, "max": torch.amax, "amax": torch.amax, "min": torch.amin,
    "amin": torch.amin, "any": torch.any, "all": torch.all, "argmax": torch.argmax, "argmin": torch.argmin,
    "std": torch.std, "var": torch.var,
}  # fmt: skip


def _reduce(
    world: Any, name: str, array: UnknownArray, axis: Any = None, keepdims: bool = False, **options: Any
) -> UnknownArray:
    tensor = array.tensor
    corrected = options.pop("ddof", 0) if name in ("std", "var") else 0
    if options.get("dtype", 0) is None:
        del options["dtype"]
    axes = axis if type(axis) is tuple else (axis,)
    if (
        options
        or type(keepdims) is not bool
        or not tensor.numel()
        or not (axis is None or all(type(each) is int and -tensor.dim() <= each < tensor.dim() for each in axes))
    ):
        raise unsupported(f"{name}()")
    function = getattr(numpy, name)
    with numpy.errstate(all="ignore"):
        result = numpy.asarray(function(numpy.ones((1,) * tensor.dim(), array.dtype), axis=axis, keepdims=keepdims))
    scalar = not result.ndim
    dtype = torch_type(result.dtype)
    dims = list(range(tensor.dim())) if axis is None else list(axes)
    if name in ("argmax", "argmin"):
        if type(axis) is tuple or (axis is None and keepdims):
            raise unsupported(f"{name}()")
        found = _REDUCTIONS[name](tensor, dim=axis, keepdim=keepdims)
    elif name in ("any", "all"):
        found = _REDUCTIONS[name](tensor != 0, dim=dims, keepdim=keepdims) if dims else tensor != 0
    elif not dims:
        raise unsupported(f"{name}()")
    elif name == "prod":
        if len(dims) != 1:
            raise unsupported("prod()")
        found = torch.prod(tensor.to(dtype), dim=dims[0], keepdim=keepdims)
    elif name in ("std", "var"):
        found = _REDUCTIONS[name](tensor.to(dtype), dim=dims, correction=corrected, keepdim=keepdims)
    else:
        found = _REDUCTIONS[name](tensor.to(dtype), dim=dims, keepdim=keepdims)
    made = UnknownArray(found, scalar)
    return finite(world, made) if name in _FLOATING else made


def _reshape(world: Any, array: UnknownArray, *shape: Any) -> UnknownArray:
    sizes = shape[0] if len(shape) == 1 and type(shape[0]) in (tuple, list) else shape
    try:
        return UnknownArray(_fresh_view(array.tensor, array.tensor.reshape(*sizes)))
    except (RuntimeError, TypeError):
        raise unsupported("reshape()") from None


def _fresh_view(before: Any, now: Any) -> Any:
    return now.detach() if now is before else now


def _transpose(world: Any, array: UnknownArray, *axes: Any) -> UnknownArray:
    order = axes[0] if len(axes) == 1 and type(axes[0]) in (tuple, list) else axes
    order = order if order and order != (None,) else tuple(reversed(range(array.tensor.dim())))
    return UnknownArray(array.tensor.permute(*order))


def _ravel(world: Any, array: UnknownArray) -> UnknownArray:
    tensor = array.tensor
    return UnknownArray(tensor.reshape(-1) if tensor.is_contiguous() else tensor.clone().reshape(-1).clone())


def _flatten(world: Any, array: UnknownArray) -> UnknownArray:
    return UnknownArray(array.tensor.reshape(-1).clone(memory_format=torch.contiguous_format))


def _copy(world: Any, array: UnknownArray) -> UnknownArray:
    return UnknownArray(array.tensor.clone(memory_format=torch.contiguous_format), array.scalar)


def _copied(world: Any, array: UnknownArray) -> UnknownArray:
    """What the function makes, unlike the method: an array of a number, too."""
    return UnknownArray(_copy(world, array).tensor)


def _array(world: Any, array: UnknownArray) -> UnknownArray:
    if not array.tensor.is_contiguous():
        raise unsupported("array()")  # which keeps the order of the memory
    return _copied(world, array)


def _as_array(world: Any, array: UnknownArray) -> UnknownArray:
    return _copied(world, array) if array.scalar else array


def _as_contiguous(world: Any, array: UnknownArray) -> UnknownArray:
    if not array.tensor.dim():  # which gets a dimension
        raise unsupported("ascontiguousarray()")
    return array if array.tensor.is_contiguous() else _copy(world, array)


def _astype(world: Any, array: UnknownArray, dtype: Any) -> UnknownArray:
    target = torch_type(dtype)
    if array.dtype.kind == "f" and not target.is_floating_point and target is not torch.bool:
        finite(world, array)
    return UnknownArray(array.tensor.to(target, copy=True), array.scalar)


def _clip(world: Any, array: UnknownArray, low: Any = None, high: Any = None) -> UnknownArray:
    made: Any = array
    for function, bound in ((numpy.maximum, low), (numpy.minimum, high)):
        if bound is not None:
            made = elementwise(world, function, (made, bound))
    if made is array or made.dtype != array.dtype:
        raise unsupported("clip()")
    return made


def _squeeze(world: Any, array: UnknownArray) -> UnknownArray:
    return UnknownArray(array.tensor.squeeze())


def _expand_dims(world: Any, array: UnknownArray, axis: int) -> UnknownArray:
    return UnknownArray(array.tensor.unsqueeze(axis))


def _item_of(world: Any, array: UnknownArray) -> Any:
    if array.tensor.numel() != 1:
        raise unsupported("item()")
    return item(world.recorder, array.tensor)


def _tolist(world: Any, array: UnknownArray) -> Any:
    return items(world.recorder, array.tensor)


def _concatenate(world: Any, arrays: Any, axis: int = 0) -> UnknownArray:
    return _joined(world, torch.cat, arrays, axis)


def _stack(world: Any, arrays: Any, axis: int = 0) -> UnknownArray:
    return _joined(world, torch.stack, arrays, axis)


def _joined(world: Any, join: Any, arrays: Any, axis: int) -> UnknownArray:
    if type(arrays) not in (list, tuple) or type(axis) is not int:
        raise unsupported("joining")
    dtype = torch_type(numpy.result_type(*[sample(world, each) for each in arrays]))
    tensors = [array_tensor(world, each, dtype) for each in arrays]
    try:
        return UnknownArray(join(tensors, dim=axis))
    except (RuntimeError, IndexError):
        raise unsupported("joining") from None


def _where(world: Any, condition: Any, x: Any, y: Any) -> UnknownArray:
    dtype = torch_type(numpy.result_type(sample(world, x), sample(world, y)))
    operands = [array_tensor(world, x, dtype), array_tensor(world, y, dtype)]
    mask = array_tensor(world, condition, torch.bool)
    check_shapes([mask, *operands])
    return UnknownArray(torch.where(mask, *operands))


def _like(fill: int) -> Any:
    def made(world: Any, array: UnknownArray) -> UnknownArray:
        return UnknownArray(torch.full_like(array.tensor, fill))

    return made


#: What takes an array first, by the name of the function of numpy, and of the method, if it is one.
_FUNCTIONS: dict[str, Any] = {
    "reshape": _reshape, "transpose": _transpose, "ravel": _ravel, "squeeze": _squeeze, "expand_dims": _expand_dims,
    "copy": _copied, "clip": _clip, "dot": product, "matmul": product, "concatenate": _concatenate, "stack": _stack,
    "where": _where, "zeros_like": _like(0), "ones_like": _like(1),
    "asarray": _as_array, "ascontiguousarray": _as_contiguous, "array": _array,
}  # fmt: skip
#: Those that take tensors for the arrays over their memory, and give arrays; `array` warns, too.
_CONVERT_TENSORS = frozenset({"asarray", "ascontiguousarray", "concatenate", "stack"})


_METHODS = {
    name: _FUNCTIONS[name] for name in ("reshape", "transpose", "ravel", "squeeze", "clip", "dot")
} | {"copy": _copy, "flatten": _flatten, "astype": _astype, "item": _item_of, "tolist": _tolist}  # fmt: skip


#: Those that take something else first, and look at what it is.
_TAKES_MORE = frozenset({"concatenate", "stack", "where", "dot", "matmul"})


def is_numpy_function(function: Any) -> bool:
    return (
        type(function) is _DISPATCHER
        or isinstance(function, numpy.ufunc)
        or (getattr(function, "__module__", None) == "numpy" and getattr(numpy, function.__name__, None) is function)
    )


def is_of_numpy(function: Any) -> bool:
    """As `is_numpy_function`, with the methods of numpy's arrays and numbers."""
    owner = getattr(function, "__objclass__", None)
    return is_numpy_function(function) or (
        isinstance(owner, type) and issubclass(owner, (numpy.ndarray, numpy.generic))
    )


def call_with_tensors(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of numpy with tensors among its arguments, which numpy would ask for the memory that fakes lack."""
    if function.__name__ not in _CONVERT_TENSORS or not is_numpy_function(function) or not args:
        raise Break("native-argument", f"numpy.{function.__name__} is called with a tensor")
    first = args[0]
    if type(first) is Fake:
        first = array_of(first)
    elif type(first) in (list, tuple) and function.__name__ in _TAKES_MORE:
        first = [array_of(each) if type(each) is Fake else each for each in first]
    else:
        raise unsupported(f"{function.__name__}()")
    return call_function(world, function, (first, *args[1:]), kwargs)


def call_function(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of numpy on arrays with unknown contents."""
    if function in ELEMENTWISE and not kwargs:
        return elementwise(world, function, args)
    name = function.__name__
    _refuse_objects(name, args, kwargs)
    if name in _REDUCTIONS and type(args[0]) is UnknownArray and len(args) <= 2:
        return _reduce(world, name, *args, **kwargs)
    return _answer(world, _FUNCTIONS.get(name), name, args, kwargs)


def call_method(world: Any, array: UnknownArray, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`array.name(*args, **kwargs)`."""
    _refuse_objects(name, args, kwargs)
    if name in _REDUCTIONS and len(args) <= 1:
        return _reduce(world, name, array, *args, **kwargs)
    return _answer(world, _METHODS.get(name), name, (array, *args), kwargs)


def _refuse_objects(name: str, args: tuple, kwargs: dict[str, Any]) -> None:
    """Native code would ask them for numbers or elements, without guards on what they read."""
    if objects_in((*args, *kwargs.values())):
        raise unsupported(f"{name}(), called with an object,")


def _answer(world: Any, answer: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    if answer is None or (type(args[0]) is not UnknownArray and name not in _TAKES_MORE):
        raise unsupported(f"{name}()")
    try:
        return answer(world, *args, **kwargs)
    except TypeError as error:  # options that are not in the signature above
        raise unsupported(f"{name}()") from error
