"""Kernels whose formula cancels, with the rounding inside of them disturbed, and what kernels for a GPU may make of
infinities.

    gelu(-5.1)            1 + erf(x / sqrt(2)) is 3.4e-7, of which erf, rounded to a float, knows one digit
    tanhshrink(0.03)      x - tanh(x) is 9e-6
    log_softmax([0, -16]) log(1 + 1.1e-7) is 0 or 1.2e-7: the sum of exponentials is rounded
    tanh(5)               0.9999, and its derivative, 1 minus its square, is 1.8e-4
    sinc(0.01)            its derivative is a difference of two numbers that agree in four digits
    logaddexp2(-1, -1)    -1 + log2(2) is 0 or 1e-8
    softmax([40, 0])      the derivative is (g - sum(g * s)) * s, where s is 1 but for rounding
    ldexp(1.0, 0.3)       of a double and a float: the power is rounded to a float
    nuttall(5)            0.36 - 0.49 + 0.14 - 0.01, by cosines, in a function written in Python
    sinh(89)              2e38, or half of an exponential that is infinite
    layer_norm([c] * 9)   c less the mean is 0, or what the mean is rounded by: of a large c, more than all else
    layer_norm([1, 2, 3]) 2 less the mean is 0, or what the mean is rounded by: times an infinite weight, that counts
    batch_norm([c] * 8)   c * a + (b - c * a), where the product is rounded in one place and not in the other
    var([c] * 6, dim=())  the derivative is that times infinity (PyTorch counts the elements of no dimension: 1)
    binary_cross_entropy  takes shares, which a disturbed sigmoid may not be
    arange(-2, 1, 0.1)    -2 + 20 * 0.1 is 0 or -6e-9: where vectors begin, the sum is rounded, too

Disturbing what such a kernel reads and returns does not show how far apart two right answers may lie. In the disturbed
runs (`Noise`) they are computed by their formulas, whose steps are disturbed; of kernels of backward passes, what they
read of the forward pass is (`InsideBackward`), of functions written in Python, what their steps give (`InsidePython`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.spellings import spellings, spellings_in_place
from tests.fuzz.zero_tensors import call


def _gelu(noise: Callable, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    if approximate == "tanh":
        half = noise(torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    else:
        half = noise(torch.erf(x * math.sqrt(0.5)))
    return x * 0.5 * (1 + half)


def _tanhshrink(noise: Callable, x: torch.Tensor) -> torch.Tensor:
    return x - noise(torch.tanh(x))


def _ndtr(noise: Callable, x: torch.Tensor) -> torch.Tensor:
    return (1 + noise(torch.erf(x * math.sqrt(0.5)))) * 0.5


def _log_softmax(noise: Callable, x: torch.Tensor, dim: Any = None, *args: Any, dtype: Any = None, **_: Any) -> Any:
    dtype = next((each for each in args if isinstance(each, torch.dtype)), dtype)
    if dim is None or not x.dim():
        return torch.nn.functional.log_softmax(x, dim, dtype=dtype)
    x = x.to(dtype or x.dtype)
    moved = (x if x.dtype.itemsize > 2 else x.float()) - x.detach().amax(dim, True)
    return (moved - noise(moved.exp().sum(dim, True)).log()).to(x.dtype)


def unwatched(function: Callable) -> Callable:
    """`function`, whose own operators no mode sees: what noise is made of is not disturbed in turn."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return function(*args, **kwargs)

    return call


class WithSlope(torch.autograd.Function):
    """A value that is computed from `x` elementwise, and its derivative there."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, value: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.saved_tensors[0], None, None


def _tanh(noise: Callable, x: torch.Tensor) -> torch.Tensor:
    value = noise(torch.tanh(x.detach()))
    return WithSlope.apply(x, value, 1 - value * value)


def _sigmoid(noise: Callable, x: torch.Tensor) -> torch.Tensor:
    value = noise(torch.sigmoid(x.detach()))
    return WithSlope.apply(x, value, value * (1 - value))


def _sinc(noise: Callable, x: torch.Tensor) -> torch.Tensor:
    scaled = math.pi * x.detach()
    slope = (noise(scaled * scaled.cos()) - noise(scaled.sin())) / (scaled * x.detach())
    return WithSlope.apply(x, torch.sinc(x.detach()), torch.where(scaled == 0, 0, slope))


def _log_add_exp(noise: Callable, x: torch.Tensor, y: Any, *, base: float) -> torch.Tensor:
    dtype = torch.result_type(x, y)
    x, y = x.to(dtype), y.to(dtype)  # differences of truth values are refused
    greater = torch.maximum(x, y)
    powers = torch.exp if base == math.e else torch.exp2
    found = greater + noise(torch.log1p(powers(-(x - y).abs())) / math.log(base))
    return torch.where(greater.isfinite(), found, torch.logaddexp(x, y))


def _ldexp(noise: Callable, x: torch.Tensor, y: Any) -> torch.Tensor:
    if not isinstance(y, torch.Tensor) or not y.is_floating_point() or y.dtype == x.dtype:
        return torch.ldexp(x, y)
    return x * noise(torch.pow(2.0, y))


def _hyperbolic(noise: Any, x: torch.Tensor, *, name: str) -> torch.Tensor:
    """Vectors take half of exp(x), which is infinite a little sooner; the rest of a tensor does not."""
    plain = getattr(torch, name)(x)
    sooner = plain.detach().isfinite() & x.detach().abs().exp().isinf() & (noise.sign_like(x) > 0)
    return torch.where(sooner, torch.full_like(plain, math.inf).copysign(plain.detach()), plain)


def _either_zero(noise: Any, func: Callable, args: tuple, kwargs: dict) -> Any:
    """What an extreme of operands is where zeros of both signs are the least or greatest: either."""
    operands = [*args, *(each for name, each in kwargs.items() if name != "out")]
    signs = [_sign_of_zero(each) for each in operands if isinstance(each, (int, float, torch.Tensor))]
    result = func(*args, **kwargs)
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return result
    is_written = "out" in kwargs or any(each is result for each in args)
    if result.requires_grad and is_written:
        return result
    found = torch.stack([each.to(result.device).expand(result.shape) for each in signs])
    either = (result == 0) & (found > 0).any(0) & (found < 0).any(0)
    return _of_either_sign(noise, result, either, is_written)


def _of_either_sign(noise: Any, result: torch.Tensor, either: torch.Tensor, is_written: bool = False) -> torch.Tensor:
    """`result`, whose zeros where `either` is true have a sign that differs from run to run."""
    if not bool(either.any()):
        return result
    plain = result.detach()
    made = torch.where(either, torch.zeros_like(plain).copysign(noise.sign_like(plain)), plain)
    if result.requires_grad:
        return WithSlope.apply(result, made, torch.ones_like(plain))
    return result.copy_(made) if is_written else made


@unwatched
def _sign_of_zero(value: Any) -> torch.Tensor:
    """1 and -1 for zeros of that sign, 0 for other elements."""
    value = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(float(value))
    return torch.where(value == 0, 1 - 2 * value.signbit().int(), 0)


_BOUNDS = ("maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max")
_EXTREMES = spellings(*_BOUNDS) | spellings_in_place(*_BOUNDS)


def _with_mean(noise: Callable, x: torch.Tensor, *args: Any, function: Callable, **kwargs: Any) -> Any:
    """The mean beside a variance that is NaN may be NaN: a running mean is, from an infinity on, unless nothing follows.
    In which order the threads of a GPU combine theirs is their affair."""
    spread, mean = function(x, *args, **kwargs)
    return spread, torch.where(
        spread.isnan() & x.is_cuda, spread.detach(), mean
    )  # its slope is NaN, which times 0 is, too


def _layer_norm(noise: Any, x: torch.Tensor, shape: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    moved = _moved(noise, _less_first(noise, x, len(shape)), range(x.dim() - len(shape), x.dim()))
    return torch.nn.functional.layer_norm(moved, shape, *args, **kwargs)


def _moved(noise: Any, x: torch.Tensor, dims: Any) -> torch.Tensor:
    """In the other runs, each element of a row of `dims` moved by what the mean of the row is rounded by: one that is
    the mean, less it, is not 0 then."""
    if noise.keeps_ties or not len(dims) or x.dtype not in (torch.float32, torch.float64):
        return x
    largest = x.detach().abs().amax(tuple(dims), True).expand_as(x)
    # Rows whose sums or squares may leave the range have other answers (`overflow.py`).
    is_small = largest < torch.finfo(x.dtype).max ** 0.25
    return x + torch.where(is_small, noise(largest.clone()) - largest, 0)


def _less_first(noise: Any, x: torch.Tensor, dims: int) -> torch.Tensor:
    """In runs in which equal numbers stay equal, rows of which only the differences count, less their first element."""
    if not noise.keeps_ties or not dims or x.dtype not in (torch.float32, torch.float64):
        return x
    first = x.detach()[(..., *[slice(0, 1)] * dims)]
    return x - torch.where(first.isfinite(), first, 0)


def _batch_norm(noise: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The mean of negative zeros is a zero of the sign that the sum began with, which differs from kernel to kernel: an
    element less it, and with a negative zero added to it, is a zero of either sign."""
    moved = _moved(noise, x, [dim for dim in range(x.dim()) if dim != 1])
    result = torch.nn.functional.batch_norm(moved, *args, **kwargs)
    return _of_either_sign(noise, result, result.detach() == 0)


def _binary_cross_entropy(noise: Any, x: torch.Tensor, y: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Shares that noise has made more than 1 are 1: others are refused, on a GPU for good."""
    limited = []
    for each in (x, y):
        above = each.detach() - 1
        unit = torch.finfo(each.dtype).eps if each.dtype.is_floating_point else 0
        limited.append(each - torch.where((above > 0) & (above < 64 * unit), above, 0))
    return torch.nn.functional.binary_cross_entropy(*limited, *args, **kwargs)


def _group_norm(noise: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.nn.functional.group_norm(_moved(noise, x, range(1, x.dim())), *args, **kwargs)


#: By the name of the operator; every function of that name is meant (`spellings`).
_BY_NAME: dict[str, Callable] = {
    "gelu": _gelu, "tanhshrink": _tanhshrink, "ndtr": _ndtr, "log_softmax": _log_softmax, "tanh": _tanh,
    "sigmoid": _sigmoid, "sinc": _sinc, "logaddexp": partial(_log_add_exp, base=math.e),
    "logaddexp2": partial(_log_add_exp, base=2.0), "ldexp": _ldexp, "layer_norm": _layer_norm,
    "batch_norm": _batch_norm, "group_norm": _group_norm,
    "binary_cross_entropy": _binary_cross_entropy, "sinh": partial(_hyperbolic, name="sinh"), "cosh": partial(_hyperbolic, name="cosh"),
}  # fmt: skip
_FORMULAS: dict[Any, Callable] = {
    **{function: formula for name, formula in _BY_NAME.items() for function in spellings(name)},
    **{function: partial(_with_mean, function=function) for function in spellings("var_mean", "std_mean")},
}
_IN_PLACE = {function: formula for name, formula in _BY_NAME.items() for function in spellings_in_place(name)}


_RANGES = frozenset({torch.arange, torch.linspace})


def _range(noise: Callable, made: torch.Tensor) -> torch.Tensor:
    """Numbers at equal distances, each a first one and a product, which is rounded where it has digits to lose."""
    if not made.is_floating_point() or not made.numel() or bool((made * 256 == (made * 256).round()).all()):
        return made
    return made.copy_(made[0] + noise(made - made[0]))


_SUMS = spellings("sum", "nansum", "mean", "prod")


def _in_another_type(noise: Callable, func: Callable, x: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """A sum in a floating-point type that is not the terms': they are rounded to it, and partial sums, which may
    cancel."""
    if dtype is not None and dtype.is_floating_point and not x.is_complex():
        x = noise(x.to(dtype))
    return func(x, *args, dtype=dtype, **kwargs)


class Inside(TorchFunctionMode):
    """While it is on, the functions of the table are computed by their formulas, disturbed by `noise`."""

    def __init__(self, noise: Any) -> None:
        super().__init__()
        self.noise = noise

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FORMULAS and not args and "input" in (kwargs or {}):
            args, kwargs = (kwargs["input"],), {name: each for name, each in kwargs.items() if name != "input"}
        formula = _FORMULAS.get(func)
        plain = isinstance(args[0], torch.Tensor) and args[0].is_floating_point() if args else False
        asked = (kwargs or {}).get("dtype")
        if formula is _log_softmax and isinstance(asked, torch.dtype) and asked.is_floating_point:
            plain = not args[0].is_complex()  # whole numbers are made that type
        if formula is not None and plain and args[0].numel() and "out" not in (kwargs or {}):
            return formula(self.noise, *args, **(kwargs or {}))
        if func in _IN_PLACE and plain and not args[0].requires_grad:
            return args[0].copy_(_IN_PLACE[func](self.noise, *args, **(kwargs or {})))
        if func in _SUMS and args and not (plain and asked in (None, args[0].dtype)) and "out" not in (kwargs or {}):
            return _in_another_type(self.noise, func, *args, **(kwargs or {}))
        if func in _RANGES:
            return _range(self.noise, func(*args, **(kwargs or {})))
        if func in _EXTREMES:
            return _either_zero(self.noise, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


#: Kernels of backward passes whose formulas cancel.
_BACKWARD = frozenset({
    torch.ops.aten._softmax_backward_data.default, torch.ops.aten._log_softmax_backward_data.default,
    torch.ops.aten.native_layer_norm_backward.default, torch.ops.aten.native_group_norm_backward.default,
    torch.ops.aten.native_batch_norm_backward.default, torch.ops.aten._fused_rms_norm_backward.default,
    torch.ops.aten.tanh_backward.default, torch.ops.aten.sigmoid_backward.default,
    torch.ops.aten.gelu_backward.default,
})  # fmt: skip
#: Kernels that hand on no gradient where a number is NaN, in vectors, and all of it elsewhere.
_SHRINKS = frozenset({torch.ops.aten.softshrink_backward.default, torch.ops.aten.hardshrink_backward.default})
#: Operators that derivatives are made of, whose results are rounded and subtracted from what they are near to.
_INSIDE_BACKWARD = frozenset({torch.ops.aten.mean.default, torch.ops.aten.mean.dim})


class InsideBackward(TorchDispatchMode):
    """While it is on, what the kernels of the table read is disturbed, and what means give."""

    def __init__(self, noise: Any) -> None:
        super().__init__()
        self.noise = noise

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BACKWARD:
            args = tuple([self.noise(each) if isinstance(each, torch.Tensor) else each for each in args])
        result = call(func, args, kwargs)
        if func in _SHRINKS:
            handed_on = torch.where(self.noise.sign_like(args[1]) > 0, args[0], 0)
            return torch.where(args[1].isnan(), handed_on, result)
        return self.noise(result) if func in _INSIDE_BACKWARD else result


#: What functions written in Python are made of whose results are rounded.
_ROUNDED = frozenset(getattr(torch.ops.aten, name).default for name in ("cos", "sin", "exp", "log", "sqrt", "i0"))


class InsidePython(TorchDispatchMode):
    """While it is on, what the operators of the table give is disturbed."""

    def __init__(self, noise: Any) -> None:
        super().__init__()
        self.noise = noise

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = call(func, args, kwargs)
        return self.noise(result) if func in _ROUNDED else result

    def wrap(self, function: Callable) -> Callable:
        """`function`, with its inside disturbed."""

        def disturbed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return disturbed
