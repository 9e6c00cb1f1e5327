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

from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.assumptions import assume
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.scalar import is_unbacked
from lampwork.capture.values.special_methods import indices_of
from lampwork.capture.values.unbacked_numbers import counted, item, tensor_of
from lampwork.capture.values.unknown_array import NUMPY_TYPES, TORCH_TYPES, UnknownArray, unsupported
from lampwork.capture.values.unknown_text import formatted, refused, snapshot, unknown_text
from lampwork.ir import operations


def array_of(tensor: Any, **options: Any) -> UnknownArray:
    """`tensor.numpy()`. Raises `Break` for tensors whose method raises or needs a copy."""
    if options or type(tensor) is not Fake or tensor.device.type != "cpu" or tensor.dtype not in NUMPY_TYPES:
        raise unsupported("numpy()")
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        raise unsupported("numpy()")
    memory: Any = tensor.data  # numpy tells nobody of what it writes
    return UnknownArray(memory)


def is_known(world: Any, value: Any) -> bool:
    """Whether it is an array or a number of numpy's whose contents are the program's, or guarded. Of an array from
    outside that no tensor can follow only the type is."""
    is_numpy = isinstance(value, (numpy.ndarray, numpy.generic)) and id(value) not in world.loader.opaque
    return is_numpy and numpy.asarray(value).dtype in TORCH_TYPES


class ArrayFamily(StandInFamily):
    """Such arrays."""

    stand_ins = frozenset({UnknownArray})

    def kind(self, value: Any) -> type:
        return value.kind

    def example(self, value: Any) -> Any:
        return sample(self.world, value) if type(value) is UnknownArray else value

    def native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any, tuple, dict[str, Any]]:
        from lampwork.capture.values.array_functions import call_function, is_numpy_function

        if is_numpy_function(function):
            return call_function(self.world, function, args, kwargs), function, args, kwargs
        if args and type(args[0]) is UnknownArray and args[0].scalar and getattr(function, "__module__", "") == "math":
            made = self.world.call(function, (item(self.world.recorder, args[0].tensor), *args[1:]), kwargs)
            return made, function, args, kwargs
        return HANDS_ON, function, args, kwargs

    # -- conversions

    def text(self, value: Any, function: Any) -> Any:
        return unknown_text(function, UnknownArray(snapshot(self.world, value.tensor), value.scalar))

    def format(self, value: Any, spec: Any) -> Any:
        if value.scalar:
            return formatted(value, spec, value.kind(1))
        if spec:
            raise refused()
        return self.text(value, str)

    def convert(self, value: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if function is abs and not args and not kwargs:
            return elementwise(self.world, numpy.absolute, (value,))
        if (function is int or function is float) and not args and not kwargs:
            if value.scalar or not value.tensor.dim():
                return self.world.families.tensor.convert(value.tensor, function, args, kwargs)
        return HANDS_ON

    # -- operators

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is Fake and type(right) is UnknownArray and right.scalar and right.dtype.kind in "fi":
            # A tensor takes numpy's numbers for Python's.
            return self.world.binary_op(op, left, item(self.world.recorder, right.tensor))
        if op is operator.truediv and Fake not in (type(left), type(right)):
            left, right = counted(left), counted(right)
        return _operate(self.world, op, left, right)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        return _operate(self.world, op, left, right)

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        plain = IN_PLACE[op]
        if plain not in _IN_PLACE:
            raise unsupported("an operation in place")
        result = self.binary(plain, left, right)
        if type(left) is not UnknownArray or left.scalar:
            return result
        if result.tensor.shape != left.tensor.shape or not numpy.can_cast(result.dtype, left.dtype, "same_kind"):
            raise unsupported("an operation in place")
        left.tensor.copy_(result.tensor)
        return left

    def unary(self, op: Any, value: Any) -> Any:
        function = {operator.neg: numpy.negative, operator.pos: numpy.positive}.get(op)
        if function is None:
            raise unsupported("an operator")
        return elementwise(self.world, function, (value,))

    def truth(self, value: Any) -> bool:
        raise unsupported("a branch on the contents")

    # -- as a container

    def contains(self, item: Any, container: Any) -> Any:
        if type(container) is UnknownArray:
            raise unsupported("a search")
        return HANDS_ON

    def length(self, value: Any) -> int:
        if not value.tensor.dim():
            raise unsupported("the length")
        return len(value.tensor)

    def iterate(self, value: Any) -> Any:
        return iter(self.unpacked(value))

    def iterable(self, value: Any) -> Any:
        return self.unpacked(value)

    def unpacked(self, value: Any) -> list[Any]:
        if not value.tensor.dim():
            raise unsupported("iteration")
        return [_item(value, index) for index in range(len(value.tensor))]

    def get_item(self, container: Any, key: Any) -> Any:
        return _item(container, indices_of(self.world, key))

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        target = _item(container, indices_of(self.world, key), keep=True)
        if container.scalar:
            raise unsupported("an item")
        if type(value) is UnknownArray or is_known(self.world, value):
            source = array_tensor(self.world, value)
        elif type(value) in (int, float, bool) and numpy.can_cast(type(value), container.dtype, "same_kind"):
            source = value
        else:
            raise unsupported("an item")
        if isinstance(source, torch.Tensor) and not _broadcasts(source.shape, target.tensor.shape):
            raise unsupported("an item")
        target.tensor[...] = source

    # -- attributes

    def load_attr(self, value: Any, name: str) -> Any:
        tensor = value.tensor
        if name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "T", "__class__"):
            if name == "shape":
                return tuple(tensor.shape)
            if name == "T":
                return UnknownArray(tensor.permute(*reversed(range(tensor.dim()))), value.scalar)
            found = {"ndim": tensor.dim(), "size": tensor.numel(), "dtype": value.dtype,
                     "itemsize": value.dtype.itemsize, "nbytes": tensor.numel() * value.dtype.itemsize,
                     "__class__": value.kind}  # fmt: skip
            return found[name]
        if callable(getattr(value.kind, name, None)):
            return operations.ArrayMethod(value, name)
        raise unsupported(f"the attribute {name}")

    def store_attr(self, value: Any, name: str, item: Any) -> None:
        raise unsupported(f"the attribute {name}")


# Operators and functions of each element ------------------------------------------------------------------------------

_OPERATORS: dict[Any, Any] = {
    operator.add: numpy.add, operator.sub: numpy.subtract, operator.mul: numpy.multiply,
    operator.truediv: numpy.true_divide, operator.lt: numpy.less, operator.le: numpy.less_equal,
    operator.gt: numpy.greater, operator.ge: numpy.greater_equal, operator.eq: numpy.equal,
    operator.ne: numpy.not_equal, operator.pow: numpy.power, operator.matmul: numpy.matmul,
}  # fmt: skip
_IN_PLACE = frozenset({operator.add, operator.sub, operator.mul, operator.truediv})
#: ufunc -> (operator of torch, whether it computes in the type of its operands and not of its result)
ELEMENTWISE: dict[Any, tuple[Any, bool]] = {
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
        return elementwise(world, numpy.multiply, (left, left)) if right == 2 else left
    if op in (operator.mod, operator.floordiv):  # by a number: whole numbers warn where they are divided by zero
        whole = type(left) is UnknownArray and left.dtype.kind == "i" and not left.scalar
        if not whole or type(right) is not int or right <= 0 or _sample_dtype(world, left, right) != left.dtype:
            raise unsupported("a division")
        mode = {} if op is operator.mod else {"rounding_mode": "floor"}
        compute = torch.remainder if op is operator.mod else torch.div
        return UnknownArray(compute(left.tensor, right, **mode))
    if op is operator.matmul:
        return product(world, left, right)
    function = _OPERATORS.get(op)
    if function is None:
        raise unsupported("an operator")
    return elementwise(world, function, (left, right))


def elementwise(world: Any, function: Any, args: tuple) -> Any:
    """A function of `ELEMENTWISE`, on arrays and what may stand beside them."""
    compute, in_operands_type = ELEMENTWISE[function]
    if len(args) != function.nin:
        raise unsupported(function.__name__)
    samples = [sample(world, each) for each in args]
    with numpy.errstate(all="ignore"):
        result = function(*samples)
    dtype = torch_type(numpy.result_type(*samples) if in_operands_type else result.dtype)
    if isinstance(result, numpy.generic) and result.dtype.kind in "iu":
        raise unsupported("arithmetic on a whole number")  # numpy warns where one overflows
    operands = [array_tensor(world, each, dtype) for each in args]
    check_shapes(operands)
    found = compute(*operands)
    found = found.to(torch_type(result.dtype))
    return finite(world, UnknownArray(found, isinstance(result, numpy.generic)))


def product(world: Any, left: Any, right: Any) -> Any:
    """`left @ right` for floating-point arrays of one or two dimensions."""
    samples = [sample(world, each) for each in (left, right)]
    if not all(isinstance(each, numpy.ndarray) and each.size == 1 and 1 <= each.ndim <= 2 for each in samples):
        raise unsupported("a matrix product")
    dtype = numpy.result_type(*samples)
    if dtype.kind != "f":
        raise unsupported("a matrix product")
    a, b = [array_tensor(world, each, torch_type(dtype)) for each in (left, right)]
    if a.shape[-1] != b.shape[0]:
        raise unsupported("a matrix product")
    return finite(world, UnknownArray(torch.matmul(a, b), a.dim() == b.dim() == 1))


def sample(world: Any, value: Any) -> Any:
    """A value of the same type and rank, of one element."""
    if type(value) is UnknownArray:
        one = numpy.ones((1,) * value.tensor.dim(), value.dtype)
        return one[()] if value.scalar else one
    if isinstance(value, numpy.ndarray) and id(value) not in world.loader.opaque:
        return numpy.ones((1,) * value.ndim, value.dtype)
    if is_unbacked(value):
        return value.kind(1)
    if type(value) in (int, float, bool) or is_known(world, value):
        return value
    raise unsupported(f"an operation with a {type(value).__name__}, and")


def _sample_dtype(world: Any, *values: Any) -> numpy.dtype:
    return numpy.result_type(*[sample(world, each) for each in values])


def torch_type(dtype: Any) -> torch.dtype:
    """PyTorch's name for a type of numpy's; refused where it has none."""
    found = TORCH_TYPES.get(numpy.dtype(dtype))
    if found is None:
        raise unsupported(f"a result of type {dtype}")
    return found


def array_tensor(world: Any, value: Any, dtype: torch.dtype | None = None) -> Any:
    """The tensor with the contents of an array or number, converted to `dtype`."""
    if type(value) is UnknownArray:
        tensor: Any = value.tensor
    elif is_unbacked(value):
        tensor = tensor_of(value)
    elif isinstance(value, (numpy.ndarray, numpy.generic)):
        if not is_known(world, value):
            raise unsupported("an operation with other arrays, and")
        with world.recorder._paused():
            made = torch.from_numpy(numpy.array(value, ndmin=0, copy=True, order="C"))
        tensor = world.recorder.constant(made)
    else:
        with world.recorder._paused():
            made = torch.tensor(value, dtype=dtype)
        tensor = world.recorder.constant(made)
    return tensor if dtype is None else tensor.to(dtype)


def as_tensors(world: Any, key: Any) -> Any:
    """An index of a tensor, with arrays in it as tensors."""
    if type(key) is UnknownArray or (isinstance(key, numpy.ndarray) and is_known(world, key)):
        return array_tensor(world, key)
    return tuple([as_tensors(world, each) for each in key]) if type(key) is tuple else key


def check_shapes(operands: list[Any]) -> None:
    """Refuses shapes that do not go together: numpy words the error."""
    try:
        torch.broadcast_shapes(*[tuple(each.shape) for each in operands])
    except RuntimeError:
        raise unsupported("an operation that does not fit the shape") from None


def _broadcasts(shape: Any, target: Any) -> bool:
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(tuple(shape)), reversed(tuple(target))))


def finite(world: Any, array: UnknownArray) -> UnknownArray:
    """The result of an operation that warns where it is not finite."""
    if array.tensor.is_floating_point() and array.tensor.numel():
        assume(world, torch.isfinite(array.tensor).all(), True)
    return array


# Items ----------------------------------------------------------------------------------------------------------------


#: Bounds and steps of slices. Native code would ask objects for a number, without guards on what they read.
_OF_SLICES = frozenset({int, bool, type(None), torch.SymInt})


def _item(array: UnknownArray, key: Any, keep: bool = False) -> UnknownArray:
    """`array[key]` for numbers and slices. `keep`: a view even of one element."""
    parts = key if type(key) is tuple else (key,)
    numbers = 0
    for part in parts:
        if type(part) is int:
            numbers += 1
        elif type(part) is slice:
            if any(type(each) not in _OF_SLICES for each in (part.start, part.stop, part.step)):
                raise unsupported("an item")
            if part.step is not None and part.step < 1:
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
