"""Eager's own other answers: the same numbers in memory of other layouts, and on a machine with narrower vectors.

Where lanes of a vector are folded in another order, a partial sum overflows or a zero has another sign; where a kernel
computes element by element, its library functions are others. Of such an element eager says one thing of a contiguous
tensor and another of one with gaps, or one thing with AVX-512 and another with AVX2. Each of its answers is right.

    amax([0, -0])                       -0 element by element, 0 in vectors of eight
    prod([2 ** 100, 2 ** -100, ...])    inf or a number, by which factors meet first
    softshrink(-0.25)                   -0 element by element, 0 in vectors
    remainder(3e38, 0.4)                a number by the C library, NaN by the vector one
    layer_norm([1e30] * 12)             NaN where a row is shorter than a vector, else 0
    layer_norm([1e30, 0, 0, ...])       NaN where what is large meets the first lane, else 0
    layer_norm([3e38, -3e38])           NaN by a running mean, 0 by a sum
    std([3e38, -3e38, 0])               NaN by a running mean, inf by a sum
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tests.fuzz.program import Call, Program

#: Ways to lay out operands: with gaps, dimensions in reverse, in order.
LAYOUTS = ("gaps", "reversed", "contiguous")
#: Vectors of the machine that is asked, by those of this one.
_NARROWER = {"AVX512": "avx2", "AVX2": "default"}
_SECONDS = 60.0


def spread(layout: str, value: Any) -> Any:
    """The same elements in memory of another layout; what is no dense tensor as it is."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or not value.dim():
        return value
    if layout == "contiguous":
        return value.contiguous()
    if layout == "gaps":
        return torch.stack([value, value], -1)[..., 0]
    order = tuple(range(value.dim()))[::-1]
    return value.permute(order).contiguous().permute(order)


def spread_in_place(layout: str, value: torch.Tensor, write: Callable[[torch.Tensor], Any]) -> Any:
    """What `write` returns of `value`, to which it writes. It is given a copy in memory of another layout."""
    if value.requires_grad or not value.dim() or value.layout != torch.strided:
        return write(value)
    copy = spread(layout, value.clone())
    result = write(copy)
    value.copy_(copy)
    return value if result is copy else result


#: What `Rows` can ask for.
ORDERS = ("small first", "large first", "definition")


class Rows(TorchFunctionMode):
    """While it is on, eager's kernels are given rows in another order, or a row's statistics are computed in two passes.

    "small first": rows that are normalised have what is small in the first lanes, sums are added up element by element,
    and products begin with the small factors. "large first": sums and products begin with what is large. "definition": where a
    row that is normalised gives NaN, the mean is a sum, and then the variance another, instead of running ones; where a
    deviation is NaN, it is that of smaller numbers.
    """

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.layer_norm and self.order != "large first":
            return _layer_norm(self.order, *args, **(kwargs or {}))
        if func is torch.nn.functional.group_norm and self.order != "large first":
            return _group_norm(self.order, *args, **(kwargs or {}))
        if func in _SUMS and self.order != "definition" and _is_plain(args, kwargs):
            return _sum(func.__name__, self.order == "large first", *args, **(kwargs or {}))
        if func in _PRODUCTS and self.order != "definition" and _is_plain(args, kwargs):
            return _product(self.order == "large first", *args, **(kwargs or {}))
        if func in _SPREADS and self.order == "definition":
            return _spread_of_rows(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _spread_of_rows(func: Callable, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """A variance or deviation; where it is NaN, that of smaller numbers, made as large again: inf if squares overflow."""
    found = func(input, *args, **kwargs)
    if not input.is_floating_point() or "out" in kwargs:
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


def _is_plain(args: Any, kwargs: Any) -> bool:
    dtype = (kwargs or {}).get("dtype") or args[0].dtype
    return dtype.is_floating_point and "out" not in (kwargs or {})


def _layer_norm(
    order: str, x: torch.Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> torch.Tensor:
    length = math.prod(normalized_shape)
    normalise = lambda rows: torch.nn.functional.layer_norm(rows, (length,), None, None, eps)
    return _affine(_normalised(order, x, length, normalise, eps), weight, bias)


def _group_norm(
    order: str, input: torch.Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> torch.Tensor:
    normalise = lambda rows: torch.nn.functional.group_norm(rows[:, None], 1, None, None, eps)[:, 0]
    channels = [-1, *[1] * (input.dim() - 2)]
    weight, bias = (each.view(channels) if each is not None else None for each in (weight, bias))
    length = input.numel() // max(input.shape[0] * num_groups, 1)
    return _affine(_normalised(order, input, length, normalise, eps), weight, bias)


def _normalised(order: str, x: torch.Tensor, length: int, normalise: Callable, eps: float) -> torch.Tensor:
    if not x.numel():
        return torch.empty_like(x)
    return (_by_definition if order == "definition" else _turned)(x, length, normalise, eps)


def _by_definition(x: torch.Tensor, length: int, normalise: Callable, eps: float) -> torch.Tensor:
    rows = x.reshape(-1, length)
    result = normalise(rows)
    wide = rows.float() if rows.itemsize < 4 else rows
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


_SUMS = frozenset(getattr(owner, name) for owner in (torch, torch.Tensor) for name in ("sum", "nansum", "mean"))
_PRODUCTS = frozenset((torch.prod, torch.Tensor.prod))
_SPREADS = frozenset(
    getattr(owner, name)
    for owner in (torch, torch.Tensor)
    for name in ("var", "std", "var_mean", "std_mean")
    if hasattr(owner, name)
)


def _sum(
    name: str, large_first: bool, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor:
    """Element by element: which partial sums overflow, and which small numbers are lost, depends on the order."""
    dims = sorted({each % max(x.dim(), 1) for each in ([dim] if isinstance(dim, int) else dim or range(x.dim()))})
    wide = x.to(dtype or x.dtype)
    result = getattr(torch, name)(wide, dims, keepdim)
    if not x.dim() or not wide.is_floating_point() or math.prod(x.shape[each] for each in dims) > _LONGEST:
        return result
    wide = wide.nan_to_num(0.0, math.inf, -math.inf) if name == "nansum" else wide
    wide = wide.float() if wide.dtype.itemsize < 4 else wide
    rows = wide.permute(*(each for each in range(x.dim()) if each not in dims), *dims).flatten(-len(dims))
    rows = rows.gather(-1, rows.abs().argsort(-1, descending=True, stable=True)) if large_first else rows
    total = torch.zeros(rows.shape[:-1], dtype=rows.dtype, device=x.device)
    for place in range(rows.shape[-1]):
        total = total + rows[..., place]
    return (total / rows.shape[-1] if name == "mean" else total).to(result.dtype).view(result.shape)


def _product(
    large_first: bool, input: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor:
    """Of factors in the order of their size, one by one: which partial products overflow depends on the order."""
    result = torch.prod(input, dtype=dtype) if dim is None else torch.prod(input, dim, keepdim, dtype=dtype)
    rows = input.to(result.dtype)
    rows = rows.reshape(-1) if dim is None or not rows.dim() else rows.movedim(dim, -1)
    if rows.shape[-1] > _LONGEST:
        return result
    rows = rows.gather(-1, rows.abs().argsort(-1, descending=large_first))
    total = torch.ones(rows.shape[:-1], dtype=rows.dtype, device=rows.device)
    for place in range(rows.shape[-1]):
        total = total * rows[..., place]
    return total.view(result.shape)


#: Sums and products of more elements are left as they are.
_LONGEST = 256


def _affine(x: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
    x = x * weight if weight is not None else x
    return x + bias if bias is not None else x


class Narrower:
    """A process in which eager's kernels have narrower vectors. It lives as long as this one."""

    def __init__(self, capability: str) -> None:
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        command = [sys.executable, "-m", "tests.fuzz.elsewhere"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        atexit.register(self.process.kill)

    def values(self, program: Program, call: Call) -> dict[str, Any]:
        """What eager gives there, by label; nothing where it does not answer."""
        names = {name: each if isinstance(each, torch.Tensor) else None for name, each in program.names.items()}
        fields = {name: value for name, value in program.__dict__.items() if name != "names"}
        try:
            question = pickle.dumps((fields, names, call))
            stdin, stdout = self.process.stdin, self.process.stdout
            assert stdin is not None and stdout is not None
            stdin.write(len(question).to_bytes(8, "little") + question)
            stdin.flush()
            if not select.select([stdout], [], [], _SECONDS)[0]:
                self.process.kill()
                return {}
            return pickle.loads(stdout.read(int.from_bytes(stdout.read(8), "little")))
        except (OSError, EOFError, pickle.PicklingError, AttributeError, TypeError):
            return {}


_process: list[Any] = []


def narrower() -> Narrower | None:
    """The process with narrower vectors; None where eager has none."""
    if not _process or _process[0] is not None and _process[0].process.poll() is not None:
        capability = _NARROWER.get(torch.backends.cpu.get_cpu_capability())
        _process[:] = [Narrower(capability) if capability else None]
    return _process[0]


def _answer() -> None:
    """Runs the programs that come in, and writes what they give, until the input ends."""
    from tests.fuzz.run import run_call
    from tests.fuzz.samples import functions

    torch.set_num_threads(1)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no answer
    while size := source.read(8):
        fields, names, call = pickle.loads(source.read(int.from_bytes(size, "little")))
        try:
            names = {name: each if each is not None else functions()[name] for name, each in names.items()}
            program = Program(**fields, names=names)
            found = run_call(program.function(), program, call).values
            values = {
                label: each for label, each in found.items() if isinstance(each, (torch.Tensor, int, float, bool))
            }
            answer = pickle.dumps({label: each.detach().clone() if isinstance(each, torch.Tensor) else each
                                   for label, each in values.items()})  # fmt: skip
        except Exception:
            answer = pickle.dumps({})
        target.write(len(answer).to_bytes(8, "little") + answer)
        target.flush()


if __name__ == "__main__":
    _answer()
