"""Eager's kernels on sums and products in other orders.

Which partial sums of huge numbers overflow depends on the order of the additions. Eager's depends on the layout, on the
number of lanes and, in matrix products, on the library; so no order is promised. B is the greatest number:

    sum([B, B, -B])                     infinite from left to right, B from right to left
    [B, B] @ [1, -1] + [B, B] @ [-1, 1] NaN, 0 or infinite
    avg_pool2d([[B, 0], [B, -inf]])     -inf, or NaN where B + B is added up first
    prod([2 ** 100, 2 ** -100, ...])    infinite, zero or a number, by which factors meet first
    layer_norm([1e30] * 12)             NaN where a row is shorter than a vector, else 0
    layer_norm([1e30, 0, 0, ...])       NaN where what is large meets the first lane, else 0
    layer_norm([3e38, -3e38])           NaN by a running mean, 0 by a sum
    batch_norm([[B], [1], [B]])         NaN of one thread, 0 of two
    std([3e38, -3e38, 0])               NaN by a running mean, inf by a sum
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tests.fuzz.spellings import spellings

#: What `Rows` can ask for.
ORDERS = ("small first", "large first", "definition", "in order", "by sign", "positive first", "negative first")
#: Sums and products of more elements are left as they are.
_LONGEST = 256
#: Operators are left as they are whose elements, times those of the result, are more.
_MOST = 1 << 20


class Rows(TorchFunctionMode):
    """While it is on, sums and products are computed in another order, or a row's statistics in two passes.

    "small first", "large first", "positive first", "negative first", "in order" as it lies: element by element. "by
    sign": what is positive is added up, and what is negative, and then the two. "definition": without overflow in
    between. Rows that are normalised: "small first" puts what is small in the first lanes; "definition" takes, where a
    row gives NaN, a sum for the mean, and then another for the variance, instead of running ones; a
    deviation that is NaN, that of smaller numbers.
    """

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for functions, computed in _COMPUTED:
            if func in functions and "out" not in kwargs:
                return computed(self.order, func, *args, **kwargs)
        if isinstance(func, FunctionType) and func.__module__ in ("torch.functional", "torch.nn.functional"):
            with self:
                return _entered(func)(*args, **kwargs)
        return func(*args, **kwargs)


@functools.cache
def _entered(function: FunctionType) -> Callable:
    """The same, written in Python, for a caller that handles the functions that it calls."""
    never = {name: lambda *_: False for name in function.__globals__ if name.startswith("has_torch_function")}
    copy = FunctionType(
        function.__code__, {**function.__globals__, **never}, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def total(order: str, rows: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, in that order. Partial sums are rounded to the type of `rows`."""
    if order == "definition":
        scale = 2.0 ** -rows.shape[-1].bit_length()
        return ((rows.double() * scale).sum(-1) / scale).to(rows.dtype)
    if order == "by sign":
        above = rows > 0
        return _one_by_one(torch.add, 0, torch.where(above, rows, 0)) + _one_by_one(
            torch.add, 0, torch.where(above, 0, rows)
        )
    return _one_by_one(torch.add, 0, _ordered(order, rows))


def _ordered(order: str, rows: torch.Tensor) -> torch.Tensor:
    if order == "in order":
        return rows
    keys = rows.detach() if order in ("positive first", "negative first") else rows.detach().abs()
    descending = order in ("large first", "positive first")
    return rows.gather(-1, keys.argsort(dim=-1, descending=descending, stable=True))


def _one_by_one(operator: Callable, start: float, rows: torch.Tensor) -> torch.Tensor:
    found = torch.full(rows.shape[:-1], start, dtype=rows.dtype, device=rows.device)
    for place in range(rows.shape[-1]):
        found = operator(found, rows[..., place])
    return found


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Half types are added up in float32."""
    return x.float() if x.dtype.itemsize < 4 else x


# Sums and products of elements ----------------------------------------


def _sum(
    order: str, func: Any, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor:
    name = func.__name__
    kind = dtype or x.dtype
    if not kind.is_floating_point:
        return func(x, dim, keepdim, dtype=dtype)
    dims = sorted({each % max(x.dim(), 1) for each in ([dim] if isinstance(dim, int) else dim or range(x.dim()))})
    wide = x.to(kind)
    result = getattr(torch, name)(wide, dims, keepdim)
    if not x.dim() or math.prod(x.shape[each] for each in dims) > _LONGEST:
        return result
    wide = _wide(wide.nan_to_num(0.0, math.inf, -math.inf) if name == "nansum" else wide)
    rows = wide.permute(*(each for each in range(x.dim()) if each not in dims), *dims).flatten(-len(dims))
    found = total(order, rows)
    return (found / rows.shape[-1] if name == "mean" else found).to(result.dtype).view(result.shape)


def _product(
    order: str, func: Any, input: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor:
    """Of factors: which partial products overflow or vanish depends on their order."""
    result = torch.prod(input, dtype=dtype) if dim is None else torch.prod(input, dim, keepdim, dtype=dtype)
    if not result.is_floating_point():
        return result
    rows = input.to(result.dtype)
    rows = rows.reshape(-1) if dim is None or not rows.dim() else rows.movedim(dim, -1)
    if rows.shape[-1] > _LONGEST:
        return result
    if order == "definition":
        return result if rows.requires_grad else _exact_product(rows).to(result.dtype).view(result.shape)
    return _one_by_one(torch.mul, 1, _ordered(order, rows)).view(result.shape)


def _exact_product(rows: torch.Tensor) -> torch.Tensor:
    """The product over the last dimension, in double precision; nothing overflows or vanishes in between."""
    mantissa, exponent = torch.frexp(rows.double())
    product, power = mantissa.prod(-1), exponent.sum(-1)
    half = power // 2
    return torch.ldexp(torch.ldexp(product, half), power - half)


def _spread_of_rows(order: str, func: Callable, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """A variance or deviation; where it is NaN, that of smaller numbers, made as large again: inf if squares overflow."""
    found = func(input, *args, **kwargs)
    if not input.is_floating_point() or order != "definition":
        return found
    scale = 2.0**600 if input.dtype == torch.float64 else 2.0**70
    small = func(input / scale, *args, **kwargs)
    first, *mean = small if isinstance(small, tuple) else (small,)
    if func.__name__.startswith("std"):
        first = (first * first * scale * scale).sqrt()
    else:
        first = first * scale * scale
    large = (first, *(each * scale for each in mean))
    plain = found if isinstance(found, tuple) else (found,)
    either = tuple(torch.where(each.isnan(), other, each) for each, other in zip(plain, large))
    return either if isinstance(found, tuple) else either[0]


# Windows ----------------------------------------


def _windows(order: str, func: Any, input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Means of windows. Which elements a window has, and its divisor, the operator tells of tensors of a single one."""
    result = func(input, *args, **kwargs)
    name = re.search(r"(\d)d$", func.__name__)
    rank = int(name[1]) if name else 0
    shape = input.shape[-rank:]
    elements, windows = math.prod(shape), math.prod(result.shape[-rank:])
    if not input.is_floating_point() or not result.numel() or elements * result.numel() > _MOST:
        return result
    basis = torch.eye(elements, dtype=torch.float64, device=input.device)
    shares = func(basis.view(elements, 1, *shape), *args, **kwargs).reshape(elements, windows)
    places, is_part = _places(shares)
    if places.shape[-1] > _LONGEST:
        return result
    divisors = (is_part.sum(-1) / shares.sum(0)).round()
    rows = torch.where(is_part, _wide(input).reshape(-1, elements)[:, places], 0)
    return (total(order, rows) / divisors.to(rows.dtype)).to(result.dtype).view(result.shape)


def _places(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each column of `parts`, the rows where it is not zero, `[columns, most]`, and which of these places count."""
    is_part = parts.T != 0
    most = int(is_part.sum(-1).max())
    places = is_part.int().argsort(dim=-1, descending=True, stable=True)[:, :most]
    return places, is_part.gather(-1, places)


# Products of two tensors ----------------------------------------


def _plain_products(order: str, func: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(args[0], str):  # einsum
        if len(args) != 3:
            return func(*args, **kwargs)
        return _products(order, lambda x, y: func(args[0], x, y), *args[1:])
    if len(args) < 2:
        return func(*args, **kwargs)
    return _products(order, lambda x, y: func(x, y, *args[2:], **kwargs), args[0], args[1])


def _linear(
    order: str, func: Any, input: torch.Tensor, weight: torch.Tensor, bias: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """`F.linear` and convolutions."""
    found = _products(order, lambda x, y: func(x, y, None, *args, **kwargs), input, weight)
    if bias is None:
        return found
    rank = found.dim() - 1 if func is torch.nn.functional.linear else int(func.__name__[-2])
    return found + (bias if func is torch.nn.functional.linear else bias.view(-1, *[1] * rank))


def _added(
    order: str, func: Any, input: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    found = alpha * _products(order, torch.matmul, x, y)
    return found + beta * input if beta else found


def _products(order: str, function: Callable, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`function` of two tensors, each element of which is a sum of products of an element of each. Which these are, it
    tells of a tensor with a single one, and of one whose elements are numbered."""
    result = function(x, y)
    if not result.is_floating_point() or x.numel() * result.numel() > _MOST or x.numel() > 1000:
        return result
    numbers = torch.arange(1, y.numel() + 1, dtype=torch.float64, device=y.device).view(y.shape)
    partners = torch.empty(x.numel(), result.numel(), dtype=torch.float64, device=x.device)
    for place in range(x.numel()):
        single = torch.zeros(x.numel(), dtype=torch.float64, device=x.device)
        single[place] = 1
        partners[place] = function(single.view(x.shape), numbers).reshape(-1)
        if not torch.equal(function(single.view(x.shape), numbers**2).reshape(-1), partners[place] ** 2):
            return result  # an element meets several of the other tensor
    if not partners.numel():
        return result
    places, is_part = _places(partners)
    if places.shape[-1] > _LONGEST:
        return result
    others = partners.T.gather(-1, places).round().long().sub(1).clamp(min=0)
    wide = torch.float64 if order in _FUSED and result.dtype != torch.float64 else _wide(result).dtype
    rows = x.to(wide).reshape(-1)[places] * y.to(wide).reshape(-1)[others]
    rows = torch.where(is_part, rows, 0)
    if order == "definition" or order not in _FUSED:
        return total(order, rows).to(result.dtype).view(result.shape)
    fused = lambda found, each: (found.double() + each).to(_wide(result).dtype)
    return _one_by_one(fused, 0, _ordered(order, rows)).to(result.dtype).view(result.shape)


#: Orders whose products are not rounded before they are added.
_FUSED = frozenset({"definition", "small first", "large first", "positive first", "negative first"})


# Rows that are normalised ----------------------------------------


def _layer_norm(
    order: str,
    func: Any,
    x: torch.Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    if order not in _OF_ROWS:
        return func(x, normalized_shape, weight, bias, eps)
    length = math.prod(normalized_shape)
    normalise = lambda rows: torch.nn.functional.layer_norm(rows, (length,), None, None, eps)
    return _affine(_normalised(order, x, length, normalise, eps), weight, bias)


def _group_norm(
    order: str,
    func: Any,
    input: torch.Tensor,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    if order not in _OF_ROWS:
        return func(input, num_groups, weight, bias, eps)
    normalise = lambda rows: torch.nn.functional.group_norm(rows[:, None], 1, None, None, eps)[:, 0]
    channels = [-1, *[1] * (input.dim() - 2)]
    weight, bias = (each.view(channels) if each is not None else None for each in (weight, bias))
    length = input.numel() // max(input.shape[0] * num_groups, 1)
    return _affine(_normalised(order, input, length, normalise, eps), weight, bias)


def _batch_norm(
    order: str,
    func: Any,
    input: torch.Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """In "definition", the sum of a channel that overflows is taken in double precision. Eager adds up channels that lie
    innermost in single precision, in as many parts as it has threads."""
    result = func(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if order != "definition" or not training or not input.numel():
        return result
    rows = _wide(input).transpose(0, 1)
    centered = rows - rows.double().flatten(1).mean(1).to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))
    spread = (centered * centered).flatten(1).mean(1)
    shape = [-1, *[1] * (input.dim() - 2)]
    weight, bias = (each.view(shape) if each is not None else None for each in (weight, bias))
    other = _affine(centered.transpose(0, 1) * (spread + eps).rsqrt().view(shape), weight, bias)
    return torch.where(result.isnan(), other.to(result.dtype), result)


#: Orders of rows that are normalised.
_OF_ROWS = frozenset({"small first", "definition"})


def _normalised(order: str, x: torch.Tensor, length: int, normalise: Callable, eps: float) -> torch.Tensor:
    if not x.numel():
        return torch.empty_like(x)
    return (_by_definition if order == "definition" else _turned)(x, length, normalise, eps)


def _by_definition(x: torch.Tensor, length: int, normalise: Callable, eps: float) -> torch.Tensor:
    rows = x.reshape(-1, length)
    result = normalise(rows)
    wide = _wide(rows)
    mean = (wide / length).double().sum(-1, keepdim=True).to(wide.dtype)
    centered = wide - mean
    spread = (centered * centered).mean(-1, keepdim=True)
    return torch.where(result.isnan(), (centered * (spread + eps).rsqrt()).to(x.dtype), result).view(x.shape)


def _turned(x: torch.Tensor, length: int, normalise: Callable, eps: float) -> torch.Tensor:
    """`x`, whose elements are rows of that length one after the other, each normalised in that order."""
    rows = x.reshape(-1, length)
    order = rows.abs().argsort(-1)
    lanes = 32 // x.itemsize
    places = torch.tensor(sorted(range(length), key=lambda place: (place % lanes, place)), device=x.device)
    turned = torch.empty_like(rows)
    turned[:, places] = rows.gather(-1, order)
    return torch.empty_like(rows).scatter_(-1, order, normalise(turned)[:, places]).view(x.shape)


def _affine(x: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
    x = x * weight if weight is not None else x
    return x + bias if bias is not None else x


_RANKS = ("1d", "2d", "3d")
_COMPUTED: tuple[tuple[frozenset, Callable], ...] = (
    (frozenset({torch.nn.functional.layer_norm}), _layer_norm),
    (frozenset({torch.nn.functional.group_norm}), _group_norm),
    (frozenset({torch.nn.functional.batch_norm}), _batch_norm),
    (spellings("sum", "nansum", "mean"), _sum),
    (spellings("prod"), _product),
    (spellings("std", "var", "std_mean", "var_mean"), _spread_of_rows),
    (spellings(*(f"{name}{rank}" for name in ("avg_pool", "adaptive_avg_pool") for rank in _RANKS)), _windows),
    (spellings("matmul", "mm", "bmm", "mv", "dot", "inner", "einsum", "tensordot"), _plain_products),
    (spellings("linear", *(f"{name}{rank}" for name in ("conv", "conv_transpose") for rank in _RANKS)), _linear),
    (spellings("addmm", "addmv", "baddbmm"), _added),
)
