"""Operators that take a number which capture does not know: recorded as ones that take it as a tensor of one element.

    add_(%x, %y, alpha=number)      ->      %a = mul(%y, %n)            %n: the number, in the type eager computes in
                                            %b = add(%x, %a)
                                            copy_(%x, %b)

Half types compute with the number in single precision, as eager's kernels do, and are rounded once. Numbers beside them
that are no factor or divisor are rounded to the half type first on a CPU, as by eager's kernels there. Operators on
lists of tensors are recorded as the operators on each (`lists.py`), and arrive here one by one.

    renorm(%x, 2, 0, number)        ->      %a = with8_renorm(%x, 2, 0, %n)     (`_torch.with_numbers`)

Where no form with a tensor is known, or it rounds otherwise and numbers are to be eager's, an operator that is called
in any case takes the number from the tensor when it is called. Else the number is taken as it is now, and guarded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.record.saved_instead import saved_instead
from lampwork.capture.values.scalar import WHAT_IS_DONE, is_backed, is_unbacked
from lampwork.capture.values.unbacked_numbers import tensor_of
from lampwork.fakes.fake import DataDependent, Fake, Unsupported
from lampwork.fakes.numbers import NumberNode, mentions_numbers, number_behind, root_of, symbolic_float
from lampwork.fakes.operators import Operator
from lampwork.fakes.operators import operator as operator_of
from lampwork.fakes.overflow import refuse_overflow
from lampwork.fakes.promotion import promoted
from lampwork.fakes.shapes import contiguous, has_zero, infer, same_sizes, tensors_in

aten = torch.ops.aten
_HALF = frozenset({torch.float16, torch.bfloat16})


def _is_float(dtype: torch.dtype | None) -> bool:
    return dtype is None or dtype.is_floating_point


class Scalars:
    """Records operators whose arguments mention unknown numbers."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        #: Where numbers are wanted: beside the operator's tensors.
        self.device = torch.device("cpu")

    def call(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        """Records `op(*args, **kwargs)` and returns its result, as fakes. Raises `DataDependent` for numbers out of
        tensors where the number itself is needed."""
        self.device = next((each.device for each in tensors_in(args) if each.is_cuda), self.device)
        base = op.base
        refuse_overflow(op, args, kwargs)
        is_empty = op.kind == "functional" and any(has_zero(each.size()) for each in tensors_in(args))
        if (
            is_empty
            and all(each.dtype.is_floating_point for each in tensors_in(args))
            and _is_float(kwargs.get("dtype"))
        ):
            # Nothing is computed with the number, which types of whole numbers may refuse even so. Eager orders
            # dimensions without elements otherwise for two tensors.
            result = self.recorder.call(op.overload, _any_numbers(args), _any_numbers(kwargs))
            if all(has_zero(each.size()) for each in tensors_in((result,))):  # fills and pads make elements of nothing
                return result
        if base == "copy_" and mentions_numbers(args[1]):
            # Eager makes a tensor of the number, too. There is no derivative of the operator that writes nothing.
            return self.recorder.call(op.overload, (args[0], self.in_tensor(args[1]), *args[2:]), kwargs)
        inplace = op.kind == "inplace"
        name = base[:-1] if inplace else base
        rule = None if self.recorder.exact and not self.is_exact(name) else _RULES.get(name)
        if rule is not None and not (inplace and not isinstance(op.written[0], int)):
            # A derivative reads what was written to as it was before.
            is_read = inplace and torch.is_grad_enabled() and args[0].requires_grad
            given = (self.run(aten.clone.default, args[0]), *args[1:]) if is_read else args
            result = rule(self, *given, **kwargs)
            if result is not None:
                return self._store(op, args, kwargs, result) if inplace else self._laid_out(op, args, kwargs, result)
        if self.recorder.exact or (name not in _RULES and torch.Tag.pointwise not in op.overload.tags):
            result = self.given(op, args, kwargs)
            if result is not None:
                return self._store(op, args, kwargs, result) if inplace else result
        return self.recorder.call(op.overload, known_numbers(args), known_numbers(kwargs))

    def given(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        """The results of an operator, less its writes, that is called with the numbers when they are known. None if it
        cannot be, or if numbers decide what it returns: those without tensors make as many elements as numbers say."""
        called: Any = op.overload
        if op.kind == "inplace":
            called = _torch.functional_of_inplace(called)
            if called is None or op.written != (0,):
                return None
            if type(args[0]) is Fake and torch.is_grad_enabled() and args[0].requires_grad:
                args = (self.run(aten.clone.default, args[0]), *args[1:])
        elif not is_called(op, self.device, self.recorder.exact):
            return None
        names = [each.name for each in called._schema.arguments]
        found = [place for place, each in enumerate(args) if mentions_numbers(each)]
        found += [names.index(name) for name, each in kwargs.items() if mentions_numbers(each)]
        places = tuple(sorted(found))
        if op.is_random or not any(True for _ in tensors_in(args)) or not _torch.takes_numbers(called, places):
            return None
        known = _torch.replaced(called, places, args, kwargs, _as_now)
        result = infer(called, *known)
        taken = _torch.replaced(called, places, args, kwargs, self.in_tensor)
        self.recorder.record(operator_of(_torch.with_numbers(called, places)), *taken, result)
        return result

    def in_tensor(self, value: Any) -> Any:
        """A number, or each of a list, as a tensor of one element where the host reads it."""
        if isinstance(value, (list, tuple)):
            return [self.in_tensor(each) for each in value]
        number = number_behind(value)
        if is_backed(number):
            return number.numbers.tensor(number)
        if is_unbacked(number):
            return tensor_of(number)
        with self.recorder._paused():
            made = torch.tensor(number, dtype=torch.int64 if type(number) is int else torch.float64)
        return self.recorder.constant(made)

    def is_exact(self, name: str) -> bool:
        """Whether the rule of an operator gives its bits."""
        return name in (_EXACT_ON_GPUS if self.device.type == "cuda" else _EXACT)

    def _store(self, op: Operator, args: tuple, kwargs: dict, result: Fake) -> Fake:
        """What an in-place operator does with its result. Raises eager's error where the result is of no type that the
        tensor holds: floats in a tensor of integers."""
        if not torch.can_cast(result.dtype, args[0].dtype):
            raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {args[0].dtype}")
        recorder, hook = self.recorder, self.recorder.write_hook
        if hook is not None:
            hook(op.base, args[0], args[1:], kwargs)
        recorder.write_hook = None  # it has been told
        try:
            recorder.call(aten.copy_.default, (args[0], result), {})
        finally:
            recorder.write_hook = hook
        return args[0]

    def _laid_out(self, op: Operator, args: tuple, kwargs: dict, result: Any) -> Any:
        """The result in the order of dimensions that the operator on a number gives: kernels of one operand and of two
        differ in dimensions that are one long."""
        if type(result) is not Fake or not any(type(size) is int and size == 1 for size in result.size()):
            return result
        expected = infer(op.overload, _any_numbers(args), _any_numbers(kwargs))
        if same_sizes(result.stride(), expected.stride()):
            return result
        if same_sizes(expected.stride(), contiguous(expected.size())):
            return self.contiguous(result)
        options = {"dtype": result.dtype, "device": result.device}
        made = self.run(aten.empty_strided.default, list(expected.size()), list(expected.stride()), **options)
        return saved_instead(result, self.run(aten.copy_.default, made, result))

    def contiguous(self, result: Fake) -> Fake:
        copy = self.run(aten.clone.default, result, memory_format=torch.contiguous_format)
        return saved_instead(result, copy)

    def run(self, overload: Any, *args: Any, **kwargs: Any) -> Fake:
        return self.recorder.call(overload, args, kwargs)

    def scalar(self, value: Any, dtype: torch.dtype) -> Any:
        """An operand that is a number: as a tensor of the type that operators on `dtype` compute in."""
        if type(value) is not torch.SymFloat:
            return value
        number = value.node.number
        wanted = torch.float32 if dtype in _HALF else dtype
        if is_backed(number):
            return number.numbers.operand(number, wanted, self.device)
        if type(number) is float:
            return number
        tensor = tensor_of(number)
        return tensor if tensor.dtype is wanted else self.run(aten._to_copy.default, tensor, dtype=wanted)

    def operand(self, value: Any, beside: Any, dtype: torch.dtype, as_element: bool = False) -> Any:
        """What a kernel that is no product takes for `value`, in the type that it computes in, `beside` a tensor.
        `as_element`: the kernel for a GPU takes numbers as elements of a tensor, too (`lower/nests.py: rounded`)."""
        if isinstance(value, Fake):
            return self.wide(value)
        number = self.scalar(value, dtype)
        if dtype not in _HALF or beside.is_cuda and not as_element:
            return number
        if isinstance(number, Fake):
            return self.wide(self.narrow(number, dtype))
        return torch.tensor(number).to(dtype).item()

    def wide(self, tensor: Any) -> Any:
        """A tensor in the type that operators on its elements compute in."""
        if isinstance(tensor, torch.Tensor) and tensor.dtype in _HALF:
            return self.run(aten._to_copy.default, tensor, dtype=torch.float32)
        return tensor

    def narrow(self, result: Fake, dtype: torch.dtype) -> Fake:
        """The tensor in `dtype`."""
        return result if result.dtype is dtype else self.run(aten._to_copy.default, result, dtype=dtype)


def _any_numbers(value: Any) -> Any:
    """The arguments with a number for every one that is not known; not one that some kernel is a special one for."""
    kind = type(value)
    if kind is torch.SymFloat:
        return 1.5
    if kind is tuple or kind is list:
        return kind([_any_numbers(each) for each in value])
    return {name: _any_numbers(each) for name, each in value.items()} if kind is dict else value


def known_numbers(value: Any) -> Any:
    """The arguments with every number as it is now, guarded. Raises `DataDependent` for numbers out of tensors."""
    kind = type(value)
    if kind is torch.SymFloat and type(value.node) is NumberNode:
        number = value.node.number
        if is_unbacked(number):
            raise DataDependent(WHAT_IS_DONE)
        return float(number)
    if kind is tuple or kind is list:
        return kind([known_numbers(each) for each in value])
    if kind is dict:
        return {name: known_numbers(each) for name, each in value.items()}
    return value


def is_called(op: Operator, device: torch.device, exact: bool) -> bool:
    """Whether a graph has the operator as it is."""
    if op.kind == "composite":
        kind = "CUDA" if device.type == "cuda" else "CPU"
        return (kind == "CUDA" or exact) and _torch.has_kernel(op.overload, kind)
    return op.kind == "functional"


def _as_now(value: Any) -> Any:
    """A number, or each of a list, as it is now; some number where nobody knows. It is not guarded."""
    if isinstance(value, (list, tuple)):
        return [_as_now(each) for each in value]
    number = number_behind(value)
    return number.value if is_backed(number) else 1.5 if is_unbacked(number) else number


# The rules: (scalars, arguments of the operator) -> result, or None where there is no such form ----------------------


def _result_type(x: Any) -> torch.dtype | None:
    """The type of the results where a floating-point number meets `x`; None for operands no rule is made for."""
    if not isinstance(x, Fake) or x.is_complex():
        return None
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _binary(overload: Any) -> Callable:
    def rule(scalars: Scalars, x: Any, y: Any) -> Any:
        dtype = _result_type(x if isinstance(x, Fake) else y)
        if dtype is None:
            return None
        operands = [scalars.wide(each) if isinstance(each, Fake) else scalars.scalar(each, dtype) for each in (x, y)]
        return scalars.narrow(scalars.run(overload, *operands), dtype)

    return rule


def _power(scalars: Scalars, x: Any, y: Any) -> Any:
    beside = x if isinstance(x, Fake) else y
    dtype = _result_type(beside)
    if dtype is None:
        return None
    root = root_of(y, x) if is_backed(number_behind(y)) else None
    if root is not None:
        return scalars.run(aten.pow.Tensor_Scalar, x, root)
    operands = [scalars.operand(each, beside, dtype, as_element=True) for each in (x, y)]
    result = scalars.narrow(scalars.run(aten.pow.Tensor_Tensor, *operands), dtype)
    if beside is y and not same_sizes(result.stride(), contiguous(result.size())):  # as powers of a number are
        return scalars.contiguous(result)
    return result


def _compare(overload: Any) -> Callable:
    def rule(scalars: Scalars, x: Any, y: Any) -> Any:
        dtype = _result_type(x)
        return None if dtype is None else scalars.run(overload, scalars.wide(x), scalars.operand(y, x, dtype, True))

    return rule


_multiply = _binary(aten.mul.Tensor)


def _add(scalars: Scalars, x: Any, y: Any, alpha: Any = 1, overload: Any = aten.add.Tensor) -> Any:
    dtype = _result_type(x)
    if dtype is None:
        return None
    if isinstance(y, Fake) and y.dtype is not dtype and y.dim():
        if not x.dim() or not x.is_floating_point() or not y.is_floating_point():
            return None
        dtype = torch.promote_types(dtype, y.dtype)
        x, y = (
            each if each.dtype is dtype else scalars.run(aten._to_copy.default, each, dtype=dtype) for each in (x, y)
        )
    if not isinstance(y, Fake):
        y = scalars.operand(y, x, dtype)
    if type(alpha) is torch.SymFloat:
        if not promoted([x, y]).is_floating_point:
            return None  # eager refuses it beside whole numbers
        if scalars.recorder.exact:  # half types have kernels that convert the factor in ways of their own
            factor = scalars.scalar(operator.neg(alpha) if overload is aten.sub.Tensor else alpha, dtype)
            return None if dtype in _HALF else scalars.run(aten.addcmul.default, x, y, factor)
        y = scalars.run(aten.mul.Tensor, scalars.wide(y), scalars.scalar(alpha, dtype))
    elif alpha != 1:
        if not isinstance(y, Fake):
            return None
        y = scalars.run(aten.mul.Tensor, scalars.wide(y), alpha)
    return scalars.narrow(scalars.run(overload, scalars.wide(x), scalars.wide(y)), dtype)


def _subtract(scalars: Scalars, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _add(scalars, x, y, alpha, aten.sub.Tensor)


def _subtract_from(scalars: Scalars, x: Any, y: Any, alpha: Any = 1) -> Any:
    dtype = _result_type(x)
    if dtype is None or type(alpha) is torch.SymFloat or alpha != 1:
        return None
    return scalars.narrow(scalars.run(aten.sub.Tensor, scalars.operand(y, x, dtype), scalars.wide(x)), dtype)


def _divide(scalars: Scalars, x: Any, y: Any, rounding_mode: Any = None) -> Any:
    return _binary(aten.div.Tensor)(scalars, x, y) if rounding_mode is None else None


def _combine(divides: bool) -> Callable:
    def rule(scalars: Scalars, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
        dtype = _result_type(x)
        if dtype is None or any(each.dtype is not dtype for each in (y, z)):
            return None
        x, y, z = (scalars.wide(each) for each in (x, y, z))
        number = scalars.scalar(value, dtype)
        if divides and x.is_cuda:  # as its kernel writes it
            added = scalars.run(aten.mul.Tensor, number, scalars.run(aten.div.Tensor, y, z))
        else:
            scaled = scalars.run(aten.mul.Tensor, number, y)
            if scalars.recorder.exact and not divides:  # eager may round the sum and its product once
                return scalars.narrow(scalars.run(aten.addcmul.default, x, scaled, z), dtype)
            added = scalars.run(aten.div.Tensor if divides else aten.mul.Tensor, scaled, z)
        return scalars.narrow(scalars.run(aten.add.Tensor, x, added), dtype)

    return rule


def _interpolate(scalars: Scalars, start: Any, end: Any, weight: Any) -> Any:
    dtype = _result_type(start)
    if dtype is None or end.dtype is not dtype:
        return None
    number = scalars.scalar(weight, dtype)
    return scalars.narrow(scalars.run(aten.lerp.Tensor, scalars.wide(start), scalars.wide(end), number), dtype)


def _clamp(scalars: Scalars, x: Any, min: Any = None, max: Any = None, misses: bool | None = None) -> Any:
    """`misses`: one limit that is NaN is none. So it is for `clamp` of a GPU, and in some releases."""
    dtype = _result_type(x)
    if dtype is None or not x.is_floating_point():
        return None
    alone = min is None or max is None
    misses = alone and (x.is_cuda or not _torch.clamp_takes_missing_limits() if misses is None else misses)
    result = scalars.wide(x)
    for bound, with_tensor, with_number, is_beyond, is_within in (
        (min, aten.clamp_min.Tensor, aten.clamp_min.default, aten.lt.Tensor, aten.ge.Tensor),
        (max, aten.clamp_max.Tensor, aten.clamp_max.default, aten.gt.Tensor, aten.le.Tensor),
    ):
        if bound is not None:
            if type(bound) is not torch.SymFloat:
                if bound == bound or alone or not x.is_cuda:
                    result = scalars.run(with_number, result, bound)
                else:  # `clamp_min` and `clamp_max` of a GPU ignore a limit that is NaN; with two limits it counts
                    result = scalars.run(aten.clamp.default, result, bound, bound)
                continue
            limit = scalars.scalar(bound, dtype)
            if not x.is_cuda:
                result = _within(scalars, result, limit, is_within, misses)
            elif misses:
                beyond = scalars.run(is_beyond, result, limit)
                result = scalars.run(aten.where.self, beyond, limit, result)
            else:
                result = scalars.run(with_tensor, result, limit)
    return scalars.narrow(result, dtype)


def _within(scalars: Scalars, x: Any, limit: Any, is_within: Any, misses: bool) -> Any:
    """`x` where it is within the limit, and where it is NaN: but there it has no derivative. Of equal ones it is `x`,
    where kernels for two tensors give the limit: -0 and 0 are."""
    stays = scalars.run(aten.ne.Tensor, x, x)
    if misses:
        stays = scalars.run(aten.logical_or.default, stays, scalars.run(aten.ne.Tensor, limit, limit))
    constant = scalars.run(aten.detach.default, x) if x.requires_grad else x
    other = scalars.run(aten.where.self, stays, constant, limit)
    return scalars.run(aten.where.self, scalars.run(is_within, x, limit), x, other)


def _fill(scalars: Scalars, x: Any, value: Any) -> Any:
    if not x.is_floating_point():
        return None
    scalars.device = x.device
    tensor = scalars.narrow(scalars.scalar(value, torch.float64), x.dtype)
    return scalars.run(aten.expand.default, tensor, list(x.size()))


def _full(scalars: Scalars, size: Any, value: Any, **options: Any) -> Any:
    made = scalars.run(aten.full.default, size, 0.0, **options)
    return _filled(scalars, made, value)


def _like(overload: Any) -> Callable:
    def rule(scalars: Scalars, x: Any, *rest: Any, **options: Any) -> Any:
        return _filled(scalars, scalars.run(overload, x, *rest[:-1], 0.0, **options), rest[-1])

    return rule


def _filled(scalars: Scalars, made: Fake, value: Any) -> Any:
    number = _fill(scalars, made, value)
    if number is None:
        raise Unsupported("a tensor of integers is filled with a number that varies")
    return scalars.run(aten.copy_.default, made, number)


def _scalar_tensor(scalars: Scalars, value: Any, dtype: Any = None, **options: Any) -> Any:
    dtype = dtype or torch.get_default_dtype()
    device = options.get("device")
    if not dtype.is_floating_point or (device is not None and device.type != "cpu"):
        return None
    return scalars.run(aten._to_copy.default, scalars.scalar(value, torch.float64), dtype=dtype)


def _convert(scalars: Scalars, x: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """Function transforms convert the numbers that meet their tensors."""
    return None if isinstance(x, Fake) else _scalar_tensor(scalars, x, dtype=dtype or torch.float64, device=device)


def _masked_fill(scalars: Scalars, x: Any, mask: Any, value: Any) -> Any:
    dtype = _result_type(x)
    if dtype is not x.dtype:
        return None
    number = scalars.narrow(scalars.scalar(value, torch.float64), x.dtype)
    return scalars.run(aten.masked_fill.Tensor, x, mask, number)


def _leak(scalars: Scalars, x: Any, slope: Any = 0.01) -> Any:
    """`leaky_relu`, as its kernels write it: what is not above zero is scaled, NaN among it."""
    return _leaked(scalars, x, x, slope)


def _leak_of_gradient(scalars: Scalars, gradient: Any, x: Any, slope: Any, of_result: bool) -> Any:
    return None if of_result or gradient.dtype is not x.dtype else _leaked(scalars, x, gradient, slope)


def _leaked(scalars: Scalars, x: Any, value: Any, slope: Any) -> Any:
    if _result_type(x) is not x.dtype:
        return None
    value = scalars.wide(value)
    scaled = scalars.run(aten.mul.Tensor, value, scalars.scalar(slope, x.dtype))
    is_above = scalars.run(aten.gt.Scalar, scalars.wide(x), 0)
    return scalars.narrow(scalars.run(aten.where.self, is_above, value, scaled), x.dtype)


def _scaled(scalars: Scalars, x: Any, factor: Any, dtype: torch.dtype) -> Any:
    """`x * factor`, `x` being in the type that operators on `dtype` compute in."""
    if type(factor) is not torch.SymFloat and factor == 1:
        return x
    return scalars.run(aten.mul.Tensor, x, scalars.scalar(factor, dtype))


def _elu(scalars: Scalars, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """As its kernels write it, where results are not scaled once more: NaN is neither above zero nor below."""
    if _result_type(x) is not x.dtype or type(scale) is torch.SymFloat or scale != 1:
        return None
    wide = scalars.wide(x)
    below = scalars.run(aten.expm1.default, _scaled(scalars, wide, input_scale, x.dtype))
    below = _scaled(scalars, below, alpha, x.dtype)
    if x.is_cuda:  # `elu_curves_at_zero` in `backends/`
        result = scalars.run(aten.where.self, scalars.run(aten.gt.Scalar, wide, 0), wide, below)
    else:
        result = scalars.run(aten.where.self, scalars.run(aten.lt.Scalar, wide, 0), below, wide)
    return scalars.narrow(result, x.dtype)


def _elu_of_gradient(
    scalars: Scalars, gradient: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Any:
    if is_result or gradient.dtype is not x.dtype or _result_type(x) is not x.dtype:
        return None
    if type(scale) is torch.SymFloat or scale != 1:
        return None
    wide, passed = scalars.wide(x), scalars.wide(gradient)
    below = _scaled(scalars, _scaled(scalars, passed, input_scale, x.dtype), alpha, x.dtype)
    grown = scalars.run(aten.exp.default, _scaled(scalars, wide, input_scale, x.dtype))
    below = scalars.run(aten.mul.Tensor, below, grown)
    is_below = scalars.run(aten.le.Scalar, wide, 0)
    return scalars.narrow(scalars.run(aten.where.self, is_below, below, passed), x.dtype)


def _celu(scalars: Scalars, x: Any, alpha: Any = 1.0) -> Any:
    number = number_behind(alpha)
    if not is_backed(number) or number.value == 0:
        return None
    inverse = number.numbers.compute(operator.truediv, 1.0, number)
    return _elu(scalars, x, alpha, 1, symbolic_float(inverse))


def _softplus(scalars: Scalars, x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """As its kernels write it: what is beyond the threshold stays."""
    if _result_type(x) is not x.dtype:
        return None
    wide = scalars.wide(x)
    stays, grown = _grown(scalars, wide, beta, threshold, x.dtype)
    curve = scalars.run(aten.log1p.default, grown)
    if type(beta) is torch.SymFloat or beta != 1:
        curve = scalars.run(aten.div.Tensor, curve, scalars.scalar(beta, x.dtype))
    return scalars.narrow(scalars.run(aten.where.self, stays, wide, curve), x.dtype)


def _softplus_of_gradient(scalars: Scalars, gradient: Any, x: Any, beta: Any, threshold: Any) -> Any:
    if gradient.dtype is not x.dtype or _result_type(x) is not x.dtype:
        return None
    passed = scalars.wide(gradient)
    stays, grown = _grown(scalars, scalars.wide(x), beta, threshold, x.dtype)
    share = scalars.run(aten.mul.Tensor, passed, grown)
    share = scalars.run(aten.div.Tensor, share, scalars.run(aten.add.Tensor, grown, 1))
    return scalars.narrow(scalars.run(aten.where.self, stays, passed, share), x.dtype)


def _grown(scalars: Scalars, x: Any, beta: Any, threshold: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """Whether `beta * x` is beyond the threshold, and its exponential."""
    scaled = _scaled(scalars, x, beta, dtype)
    above = aten.gt.Tensor if type(threshold) is torch.SymFloat else aten.gt.Scalar
    return (
        scalars.run(above, scaled, scalars.scalar(threshold, dtype)),
        scalars.run(aten.exp.default, scaled),
    )


def _add_product(overload: Any) -> Callable:
    """`addmm` and the like: the product, scaled and added. Half types would be rounded in between, so they take the
    number as it is now; so does a number that is zero, with which kernels do not read what it scales."""

    def rule(scalars: Scalars, x: Any, left: Any, right: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        if x.dtype not in (torch.float32, torch.float64) or left.dtype is not x.dtype or right.dtype is not x.dtype:
            return None
        if beta == 0 or alpha == 0:  # guarded
            return None
        product = scalars.run(overload, left, right)
        scaled = [
            each
            if type(factor) is int and factor == 1
            else scalars.run(aten.mul.Tensor, each, scalars.scalar(factor, x.dtype))
            for each, factor in ((x, beta), (product, alpha))
        ]
        return scalars.run(aten.add.Tensor, *scaled)

    return rule


_RULES: dict[str, Callable] = {
    "mul": _multiply, "div": _divide, "true_divide": _divide, "add": _add, "sub": _subtract, "rsub": _subtract_from,
    "pow": _power, "addcmul": _combine(False), "addcdiv": _combine(True),
    "lerp": _interpolate, "clamp": _clamp,
    "clamp_min": lambda scalars, x, min: _clamp(scalars, x, min, misses=x.is_cuda),
    "clamp_max": lambda scalars, x, max: _clamp(scalars, x, None, max, misses=x.is_cuda),
    "fill": _fill, "full": _full, "full_like": _like(aten.full_like.default), "new_full": _like(aten.new_full.default),
    "scalar_tensor": _scalar_tensor, "_to_copy": _convert, "masked_fill": _masked_fill, "leaky_relu": _leak,
    "leaky_relu_backward": _leak_of_gradient, "elu": _elu, "elu_backward": _elu_of_gradient, "celu": _celu,
    "softplus": _softplus, "softplus_backward": _softplus_of_gradient, "addmm": _add_product(aten.mm.default),
    "addmv": _add_product(aten.mv.default), "addr": _add_product(aten.outer.default),
    "baddbmm": _add_product(aten.bmm.default),
    "lt": _compare(aten.lt.Tensor), "le": _compare(aten.le.Tensor), "gt": _compare(aten.gt.Tensor),
    "ge": _compare(aten.ge.Tensor), "eq": _compare(aten.eq.Tensor), "ne": _compare(aten.ne.Tensor),
}  # fmt: skip

#: Those whose operators give the bits of the one that takes the number, on the CPU at least: a quotient by a number is
#: a product with its inverse on a GPU, and there it is recorded with the number as it is now.
_EXACT = frozenset({
    "mul", "div", "true_divide", "add", "sub", "rsub", "addcmul", "addcdiv", "lerp", "clamp", "clamp_min", "clamp_max",
    "fill", "full", "full_like", "new_full", "scalar_tensor", "_to_copy", "masked_fill", "lt", "le", "gt", "ge",
    "eq", "ne",
})  # fmt: skip
_EXACT_ON_GPUS = _EXACT - {"div", "true_divide", "addcmul", "addcdiv", "lerp", "add", "sub", "rsub"}
