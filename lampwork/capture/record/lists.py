"""Operators on lists of tensors (`torch._foreach_add_`), recorded as the operators on each of the tensors.

    _foreach_addcdiv_([%a, %b], [%c, %d], [%e, %f], [2.0, 3.0])
        ->      addcdiv_(%a, %c, %e, value=2.0);  addcdiv_(%b, %d, %f, value=3.0)

What PyTorch gains by them, fewer kernels, scheduling gains without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lampwork.capture.outside.overlay import Break
from lampwork.fakes.numbers import mentions_numbers
from lampwork.fakes.operators import Operator
from lampwork.fakes.shapes import tensors_in

aten = torch.ops.aten

#: Whose other operand is a number, a tensor, or one of these for each tensor: (with a tensor, with a number).
_BINARY = {
    "add": (aten.add.Tensor, aten.add.Tensor), "sub": (aten.sub.Tensor, aten.sub.Tensor),
    "mul": (aten.mul.Tensor, aten.mul.Tensor), "div": (aten.div.Tensor, aten.div.Tensor),
    "maximum": (aten.maximum.default, aten.clamp_min.default),
    "minimum": (aten.minimum.default, aten.clamp_max.default),
    "clamp_min": (aten.maximum.default, aten.clamp_min.default),
    "clamp_max": (aten.minimum.default, aten.clamp_max.default),
    "pow": (aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar),
}  # fmt: skip
_INPLACE = {
    "add": aten.add_.Tensor, "sub": aten.sub_.Tensor, "mul": aten.mul_.Tensor, "div": aten.div_.Tensor,
    "addcmul": aten.addcmul_.default, "addcdiv": aten.addcdiv_.default,
}  # fmt: skip


def on_each(recorder: Any, op: Operator, args: tuple, kwargs: dict) -> Any:
    """Records the operator on each tensor; the list of results, None for operators that write. NotImplemented for what
    is recorded as it is."""
    name = op.base.removeprefix("_foreach_")
    inplace = name.endswith("_")
    name = name.removesuffix("_")
    if recorder.exact and any(each.is_cuda for each in tensors_in(args)):
        # Kernels for lists divide by numbers, those for one tensor multiply by their inverse, and nvcc contracts both:
        # so they are called as they are.
        if recorder.numbers is not None and (mentions_numbers(args) or mentions_numbers(kwargs)):
            return _with_numbers(recorder, op, args, kwargs)
        return NotImplemented
    single = _single(recorder, name, inplace)
    if single is None or any(not isinstance(each, torch.Tensor) for each in _first_list(args)):
        return NotImplemented
    count = len(_first_list(args))
    if not count:
        raise RuntimeError("Tensor list must have at least one tensor.")
    results = []
    for index in range(count):
        own = [_element(recorder, each, index, count, name) for each in args]
        named = {key: _element(recorder, each, index, count, name) for key, each in kwargs.items()}
        results.append(single(*own, **named))
    return None if inplace else results


def _with_numbers(recorder: Any, op: Operator, args: tuple, kwargs: dict) -> Any:
    """Records an operator whose numbers are known when it is called."""
    from lampwork.capture.record.scalars import Scalars

    results = Scalars(recorder).given(op, args, kwargs)
    if results is None:
        raise Break("native-call", f"{op.base} is called on a GPU with a number that varies")
    if op.kind != "inplace":
        return results
    for target, result in zip(args[0], results, strict=True):
        recorder.call(aten.copy_.default, (target, result), {})
    return None


def _first_list(args: tuple) -> Any:
    return next(each for each in args if isinstance(each, (list, tuple)))


def _element(recorder: Any, value: Any, index: int, count: int, name: str) -> Any:
    if isinstance(value, (list, tuple)) and len(value) == count:
        return value[index]
    if name in ("addcmul", "addcdiv") and isinstance(value, torch.Tensor):  # their numbers, in one tensor
        return recorder.call(aten.select.int, (value, 0, index), {})
    return value


def _single(recorder: Any, name: str, inplace: bool) -> Callable | None:
    """What computes for one tensor, writing to it where that is meant."""
    call = recorder.call

    def written(target: Any, result: Any) -> Any:
        return call(aten.copy_.default, (target, result), {}) if inplace else result

    if name in _BINARY:
        with_tensor, with_number = _BINARY[name]

        def binary(x: Any, y: Any, alpha: Any = 1) -> Any:
            tensors = isinstance(y, torch.Tensor) and isinstance(x, torch.Tensor)
            named = {} if type(alpha) in (int, float) and alpha == 1 else {"alpha": alpha}
            if inplace and name in _INPLACE:
                return call(_INPLACE[name], (x, y), named)
            if name == "pow" and not isinstance(x, torch.Tensor):
                return call(aten.pow.Scalar, (x, y), {})
            return written(x, call(with_tensor if tensors else with_number, (x, y), named))

        return binary
    if name in ("addcmul", "addcdiv"):

        def combined(x: Any, y: Any, z: Any, value: Any = 1, scalars: Any = None) -> Any:
            number = value if scalars is None else scalars
            if isinstance(number, torch.Tensor):
                scaled = call(aten.mul.Tensor, (number, y), {})
                if recorder.exact and name == "addcmul":  # eager may round the sum and its product once
                    return written(x, call(aten.addcmul.default, (x, scaled, z), {}))
                added = call(aten.mul.Tensor if name == "addcmul" else aten.div.Tensor, (scaled, z), {})
                return written(x, call(aten.add.Tensor, (x, added), {}))
            if inplace:
                return call(_INPLACE[name], (x, y, z), {"value": number})
            return call(aten.addcmul.default if name == "addcmul" else aten.addcdiv.default, (x, y, z),
                        {"value": number})  # fmt: skip

        return combined
    if name == "lerp":

        def interpolated(x: Any, y: Any, weight: Any) -> Any:
            overload = aten.lerp.Tensor if isinstance(weight, torch.Tensor) else aten.lerp.Scalar
            return written(x, call(overload, (x, y, weight), {}))

        return interpolated
    if name == "zero":
        return lambda x: call(aten.zero_.default, (x,), {})
    if name == "copy":
        return lambda x, y, non_blocking=False: written(x, y)
    if name == "norm":
        return lambda x, ord=2, dtype=None: call(aten.linalg_vector_norm.default, (x, ord), {"dtype": dtype})
    if name == "max":
        return lambda x: call(aten.max.default, (x,), {})
    packet = getattr(aten, name, None)
    if name in _UNARY and packet is not None:
        return lambda x: written(x, call(packet.default, (x,), {}))
    return None


_UNARY = frozenset({
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
})  # fmt: skip
