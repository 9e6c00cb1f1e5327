"""numpy arrays with contents that the graph knows: `x.numpy()`, arrays from outside, and what numpy makes of them.

    scaled = x.detach().numpy() * 2      %detach = detach(%x)
    return scaled.sum(axis=0)            %mul = mul(%detach, 2.0); %sum = sum(%mul, [0])

An array is a tensor to the graph, over the same memory, and leaves it as an array. numpy itself says, asked with arrays
of one element, what type a result has and whether it is an array or a scalar. numpy warns where numbers become infinite
or none; here they are assumed not to, as branches are assumed that only raise (`assumptions.py`). What is in no table
of this file breaks the graph.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy
import torch

from lampwork.capture.assumptions import assume, may_assume
from lampwork.capture.base import CaptureWorld
from lampwork.capture.fake import Fake
from lampwork.capture.shadow import Break
from lampwork.capture.unknown import UnknownNumber, extend_answer, item, items, tensor_of
from lampwork.ir import operations

_TYPES = {
    torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.float32: "float32", torch.float64: "float64",
}  # fmt: skip
_TORCH_TYPES = {numpy.dtype(name): each for each, name in _TYPES.items()}
_DISPATCHER = type(numpy.sum)


class UnknownArray:
    """An array, or with `scalar` a number of numpy's, over the memory of `tensor`, which is on the CPU."""

    __slots__ = ("tensor", "scalar")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Fake, scalar: bool = False) -> None:
        self.tensor, self.scalar = tensor, scalar

    @property
    def dtype(self) -> numpy.dtype:
        return numpy.dtype(_TYPES[self.tensor.dtype])

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
        type(array) is numpy.ndarray and array.dtype in _TORCH_TYPES and array.dtype.isnative and array.flags.writeable
        and all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    )  # fmt: skip


def array_of(tensor: Any, **options: Any) -> UnknownArray:
    """`tensor.numpy()`. Raises `Break` for tensors whose method raises or needs a copy."""
    if options or type(tensor) is not Fake or tensor.device.type != "cpu" or tensor.dtype not in _TYPES:
        raise unsupported("numpy()")
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        raise unsupported("numpy()")
    return UnknownArray(tensor.detach())


def is_known(value: Any) -> bool:
    return isinstance(value, (numpy.ndarray, numpy.generic)) and numpy.asarray(value).dtype in _TORCH_TYPES


class UnknownArrays(CaptureWorld):
    """Operations on such arrays."""

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is UnknownArray or type(right) is UnknownArray:
            return _operate(self, op, left, right)
        return super().binary_op(op, left, right)

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is UnknownArray or type(right) is UnknownArray:
            return _operate(self, op, left, right)
        return super().compare_op(op, left, right)

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is not UnknownArray and type(right) is not UnknownArray:
            return super().inplace_op(op, left, right)
        plain = _INPLACE.get(op)
        if plain is None:
            raise unsupported("an operation in place")
        if type(left) is not UnknownArray or left.scalar:
            return _operate(self, plain, left, right)
        result = _operate(self, plain, left, right)
        if result.tensor.shape != left.tensor.shape or not numpy.can_cast(result.dtype, left.dtype, "same_kind"):
            raise unsupported("an operation in place")
        left.tensor.copy_(result.tensor)
        return left

    def unary_op(self, op: Any, value: Any) -> Any:
        if type(value) is not UnknownArray:
            return super().unary_op(op, value)
        function = {operator.neg: numpy.negative, operator.pos: numpy.positive}.get(op)
        if function is None:
            raise unsupported("an operator")
        return _elementwise(self, function, (value,))

    def truth(self, value: Any) -> bool:
        if type(value) is UnknownArray:
            raise unsupported("a branch on the contents")
        return super().truth(value)

    def length(self, value: Any) -> int:
        if type(value) is UnknownArray:
            if not value.tensor.dim():
                raise unsupported("the length")
            return len(value.tensor)
        return super().length(value)

    def get_iter(self, value: Any) -> Any:
        if type(value) is UnknownArray:
            if not value.tensor.dim():
                raise unsupported("iteration")
            return iter([_item(value, index) for index in range(len(value.tensor))])
        return super().get_iter(value)

    def native_iterable(self, value: Any) -> Any:
        return super().native_iterable(list(self.get_iter(value)) if type(value) is UnknownArray else value)

    def unpack_sequence(self, value: Any, count: int) -> list[Any]:
        return super().unpack_sequence(list(self.get_iter(value)) if type(value) is UnknownArray else value, count)

    def get_item(self, container: Any, key: Any) -> Any:
        if type(container) is UnknownArray:
            return _item(container, key)
        if type(container) is Fake:
            key = _as_tensors(self, key)
        elif type(key) is UnknownArray or (type(key) is tuple and holds_array(key)):
            raise unsupported("an index made")
        return super().get_item(container, key)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        if type(container) is not UnknownArray:
            if type(container) is Fake:
                key = _as_tensors(self, key)
            elif type(key) is UnknownArray or type(container) is numpy.ndarray and holds_array((key, value)):
                raise unsupported("an item")
            super().set_item(container, key, value)
            return
        target = _item(container, key, keep=True)
        if container.scalar:
            raise unsupported("an item")
        if type(value) is UnknownArray or is_known(value):
            source = _tensor(self, value)
        elif type(value) in (int, float, bool) and numpy.can_cast(type(value), container.dtype, "same_kind"):
            source = value
        else:
            raise unsupported("an item")
        if isinstance(source, torch.Tensor) and not _broadcasts(source.shape, target.tensor.shape):
            raise unsupported("an item")
        target.tensor[...] = source

    def load_attr(self, obj: Any, name: str) -> Any:
        if type(obj) is not UnknownArray:
            return super().load_attr(obj, name)
        tensor = obj.tensor
        if name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "T", "__class__"):
            if name == "shape":
                return tuple(tensor.shape)
            if name == "T":
                return UnknownArray(tensor.permute(*reversed(range(tensor.dim()))), obj.scalar)
            found = {"ndim": tensor.dim(), "size": tensor.numel(), "dtype": obj.dtype, "itemsize": obj.dtype.itemsize,
                     "nbytes": tensor.numel() * obj.dtype.itemsize, "__class__": obj.kind}  # fmt: skip
            return found[name]
        if callable(getattr(obj.kind, name, None)):
            return operations.ArrayMethod(obj, name)
        raise unsupported(f"the attribute {name}")


# Operators and functions of each element ------------------------------------------------------------------------------

_OPERATORS: dict[Any, Any] = {
    operator.add: numpy.add, operator.sub: numpy.subtract, operator.mul: numpy.multiply,
    operator.truediv: numpy.true_divide, operator.lt: numpy.less, operator.le: numpy.less_equal,
    operator.gt: numpy.greater, operator.ge: numpy.greater_equal, operator.eq: numpy.equal,
    operator.ne: numpy.not_equal, operator.pow: numpy.power, operator.matmul: numpy.matmul,
}  # fmt: skip
_INPLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}  # fmt: skip
#: ufunc -> (operator of torch, whether it computes in the type of its operands and not of its result)
_ELEMENTWISE: dict[Any, tuple[Any, bool]] = {
    numpy.add: (torch.add, False), numpy.subtract: (torch.sub, False), numpy.multiply: (torch.mul, False),
    numpy.true_divide: (torch.div, False), numpy.negative: (torch.neg, False), numpy.positive: (torch.clone, False),
    numpy.absolute: (torch.abs, False), numpy.sqrt: (torch.sqrt, False), numpy.exp: (torch.exp, False),
    numpy.log: (torch.log, False), numpy.log1p: (torch.log1p, False), numpy.expm1: (torch.expm1, False),
    numpy.sin: (torch.sin, False), numpy.cos: (torch.cos, False), numpy.tanh: (torch.tanh, False),
    numpy.square: (torch.square, False), numpy.floor: (torch.floor, False), numpy.ceil: (torch.ceil, False),
    numpy.maximum: (torch.maximum, False), numpy.minimum: (torch.minimum, False),
    numpy.less: (torch.lt, True), numpy.less_equal: (torch.le, True), numpy.greater: (torch.gt, True),
    numpy.greater_equal: (torch.ge, True), numpy.equal: (torch.eq, True), numpy.not_equal: (torch.ne, True),
    numpy.logical_and: (torch.logical_and, True), numpy.logical_or: (torch.logical_or, True),
    numpy.logical_not: (torch.logical_not, True), numpy.isnan: (torch.isnan, True),
    numpy.isfinite: (torch.isfinite, True), numpy.isinf: (torch.isinf, True),
}  # fmt: skip


def _operate(world: Any, op: Any, left: Any, right: Any) -> Any:
    if op is operator.pow:
        if type(right) not in (int, float) or right not in (1, 2):
            raise unsupported("a power")
        return _elementwise(world, numpy.multiply, (left, left)) if right == 2 else left
    if op in (operator.mod, operator.floordiv):  # by a number: whole numbers warn where they are divided by zero
        whole = type(left) is UnknownArray and left.dtype.kind == "i" and not left.scalar
        if not whole or type(right) is not int or right <= 0 or _sample_dtype(left, right) != left.dtype:
            raise unsupported("a division")
        mode = {} if op is operator.mod else {"rounding_mode": "floor"}
        compute = torch.remainder if op is operator.mod else torch.div
        return UnknownArray(compute(left.tensor, right, **mode))
    if op is operator.matmul:
        return _product(world, left, right)
    function = _OPERATORS.get(op)
    if function is None:
        raise unsupported("an operator")
    return _elementwise(world, function, (left, right))


def _elementwise(world: Any, function: Any, args: tuple) -> Any:
    compute, in_operands_type = _ELEMENTWISE[function]
    if len(args) != function.nin:
        raise unsupported(function.__name__)
    samples = [_sample(each) for each in args]
    with numpy.errstate(all="ignore"):
        result = function(*samples)
    dtype = _torch_type(numpy.result_type(*samples) if in_operands_type else result.dtype)
    if isinstance(result, numpy.generic) and result.dtype.kind in "iu":
        raise unsupported("arithmetic on a whole number")  # numpy warns where one overflows
    operands = [_tensor(world, each, dtype) for each in args]
    _check_shapes(operands)
    found = compute(*operands)
    found = found.to(_torch_type(result.dtype))
    return _finite(world, UnknownArray(found, isinstance(result, numpy.generic)))


def _product(world: Any, left: Any, right: Any) -> Any:
    samples = [_sample(each) for each in (left, right)]
    if not all(isinstance(each, numpy.ndarray) and each.size == 1 and 1 <= each.ndim <= 2 for each in samples):
        raise unsupported("a matrix product")
    dtype = numpy.result_type(*samples)
    if dtype.kind != "f":
        raise unsupported("a matrix product")
    a, b = [_tensor(world, each, _torch_type(dtype)) for each in (left, right)]
    if a.shape[-1] != b.shape[0]:
        raise unsupported("a matrix product")
    return _finite(world, UnknownArray(torch.matmul(a, b), a.dim() == b.dim() == 1))


def _sample(value: Any) -> Any:
    """A value of the same type and rank, of one element."""
    if type(value) is UnknownArray:
        one = numpy.ones((1,) * value.tensor.dim(), value.dtype)
        return one[()] if value.scalar else one
    if isinstance(value, numpy.ndarray):
        return numpy.ones((1,) * value.ndim, value.dtype)
    if type(value) is UnknownNumber:
        return value.kind(1)
    if type(value) in (int, float, bool) or is_known(value):
        return value
    raise unsupported(f"an operation with a {type(value).__name__}, and")


def _sample_dtype(*values: Any) -> numpy.dtype:
    return numpy.result_type(*map(_sample, values))


def _torch_type(dtype: Any) -> torch.dtype:
    found = _TORCH_TYPES.get(numpy.dtype(dtype))
    if found is None:
        raise unsupported(f"a result of type {dtype}")
    return found


def _tensor(world: Any, value: Any, dtype: torch.dtype | None = None) -> Any:
    if type(value) is UnknownArray:
        tensor: Any = value.tensor
    elif type(value) is UnknownNumber:
        tensor = tensor_of(value)
    elif isinstance(value, (numpy.ndarray, numpy.generic)):
        if not is_known(value):
            raise unsupported("an operation with other arrays, and")
        with world.recorder._paused():
            made = torch.from_numpy(numpy.array(value, ndmin=0, copy=True, order="C"))
        tensor = world.recorder.constant(made)
    else:
        with world.recorder._paused():
            made = torch.tensor(value, dtype=dtype)
        tensor = world.recorder.constant(made)
    return tensor if dtype is None else tensor.to(dtype)


def _as_tensors(world: Any, key: Any) -> Any:
    """An index of a tensor, with arrays in it as tensors."""
    if type(key) is UnknownArray or (isinstance(key, numpy.ndarray) and is_known(key)):
        return _tensor(world, key)
    return tuple([_as_tensors(world, each) for each in key]) if type(key) is tuple else key


def _check_shapes(operands: list[Any]) -> None:
    try:
        torch.broadcast_shapes(*[tuple(each.shape) for each in operands])
    except RuntimeError:
        raise unsupported("an operation that does not fit the shape") from None


def _broadcasts(shape: Any, target: Any) -> bool:
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(tuple(shape)), reversed(tuple(target))))


def _finite(world: Any, array: UnknownArray) -> UnknownArray:
    """The result of an operation that warns where it is not finite."""
    if array.tensor.is_floating_point() and array.tensor.numel():
        if not may_assume(world.recorder):
            raise unsupported("an operation after inputs were written,")
        assume(world, torch.isfinite(array.tensor).all(), True)
    return array


# Items ----------------------------------------------------------------------------------------------------------------


def _item(array: UnknownArray, key: Any, keep: bool = False) -> UnknownArray:
    """`array[key]` for numbers and slices. `keep`: a view even of one element."""
    parts = key if type(key) is tuple else (key,)
    numbers = 0
    for part in parts:
        if type(part) is int:
            numbers += 1
        elif type(part) is slice:
            if part.step is not None and (type(part.step) is not int or part.step < 1):
                raise unsupported("an item")
        elif part is not None and part is not Ellipsis:
            raise unsupported("an item")
    try:
        found = array.tensor[key]
    except IndexError:
        raise unsupported("an item out of bounds") from None
    if found is array.tensor:
        found = found.detach()
    if numbers == array.tensor.dim() and Ellipsis not in parts and None not in parts and not keep:
        return UnknownArray(found.clone(), True)
    return UnknownArray(found)


# Functions and methods ------------------------------------------------------------------------------------------------

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
    dtype = _torch_type(result.dtype)
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
    return _finite(world, made) if name in _FLOATING else made


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


def _astype(world: Any, array: UnknownArray, dtype: Any) -> UnknownArray:
    target = _torch_type(dtype)
    if array.dtype.kind == "f" and not target.is_floating_point and target is not torch.bool:
        _finite(world, array)
    return UnknownArray(array.tensor.to(target, copy=True), array.scalar)


def _clip(world: Any, array: UnknownArray, low: Any = None, high: Any = None) -> UnknownArray:
    made: Any = array
    for function, bound in ((numpy.maximum, low), (numpy.minimum, high)):
        if bound is not None:
            made = _elementwise(world, function, (made, bound))
    if made is array or made.dtype != array.dtype:
        raise unsupported("clip()")
    return made


def _absolute(world: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    known = len(args) != 1 or kwargs or type(args[0]) is not UnknownArray
    return NotImplemented if known else _elementwise(world, numpy.absolute, args)


def install_unknown_arrays(world: Any) -> None:
    """Registers what Python's own functions make of such arrays."""
    extend_answer(world, abs, _absolute)


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
    dtype = _torch_type(numpy.result_type(*[_sample(each) for each in arrays]))
    tensors = [_tensor(world, each, dtype) for each in arrays]
    try:
        return UnknownArray(join(tensors, dim=axis))
    except (RuntimeError, IndexError):
        raise unsupported("joining") from None


def _where(world: Any, condition: Any, x: Any, y: Any) -> UnknownArray:
    dtype = _torch_type(numpy.result_type(_sample(x), _sample(y)))
    operands = [_tensor(world, x, dtype), _tensor(world, y, dtype)]
    mask = _tensor(world, condition, torch.bool)
    _check_shapes([mask, *operands])
    return UnknownArray(torch.where(mask, *operands))


def _like(fill: int) -> Any:
    def made(world: Any, array: UnknownArray) -> UnknownArray:
        return UnknownArray(torch.full_like(array.tensor, fill))

    return made


#: What takes an array first, by the name of the function of numpy, and of the method, if it is one.
_FUNCTIONS: dict[str, Any] = {
    "reshape": _reshape, "transpose": _transpose, "ravel": _ravel, "squeeze": _squeeze, "expand_dims": _expand_dims,
    "copy": _copy, "clip": _clip, "dot": _product, "matmul": _product, "concatenate": _concatenate, "stack": _stack,
    "where": _where, "zeros_like": _like(0), "ones_like": _like(1),
    "asarray": lambda world, array: array, "ascontiguousarray": lambda world, array: (
        array if array.tensor.is_contiguous() else _copy(world, array)
    ), "array": _copy,
}  # fmt: skip
_METHODS = {
    name: _FUNCTIONS[name] for name in ("reshape", "transpose", "ravel", "squeeze", "copy", "clip", "dot")
} | {"flatten": _flatten, "astype": _astype, "item": _item_of, "tolist": _tolist}  # fmt: skip


#: Those that take something else first, and look at what it is.
_TAKES_MORE = frozenset({"concatenate", "stack", "where", "dot", "matmul"})


def holds_array(values: Any) -> bool:
    """Whether an array with unknown contents is among the arguments, or in a list among them."""
    return any(
        type(each) is UnknownArray or (type(each) in (list, tuple) and any(type(one) is UnknownArray for one in each))
        for each in values
    )


def is_numpy_function(function: Any) -> bool:
    return (
        type(function) is _DISPATCHER
        or isinstance(function, numpy.ufunc)
        or (getattr(function, "__module__", None) == "numpy" and getattr(numpy, function.__name__, None) is function)
    )


def call_function(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of numpy on arrays with unknown contents."""
    if function in _ELEMENTWISE and not kwargs:
        return _elementwise(world, function, args)
    name = function.__name__
    if name in _REDUCTIONS and type(args[0]) is UnknownArray and len(args) <= 2:
        return _reduce(world, name, *args, **kwargs)
    return _answer(world, _FUNCTIONS.get(name), name, args, kwargs)


def call_method(world: Any, array: UnknownArray, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`array.name(*args, **kwargs)`."""
    if name in _REDUCTIONS and len(args) <= 1:
        return _reduce(world, name, array, *args, **kwargs)
    return _answer(world, _METHODS.get(name), name, (array, *args), kwargs)


def _answer(world: Any, answer: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    if answer is None or (type(args[0]) is not UnknownArray and name not in _TAKES_MORE):
        raise unsupported(f"{name}()")
    try:
        return answer(world, *args, **kwargs)
    except TypeError as error:  # options that are not in the signature above
        raise unsupported(f"{name}()") from error
