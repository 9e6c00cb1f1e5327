"""ATen calls to check shape rules with: every call that PyTorch's own operator samples make, in several layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lampwork import _torch
from lampwork.fakes.operators import operator
from lampwork.fakes.shapes import rule_of


class _Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []


def _note(self, func, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    if operator(func).kind == "composite":
        with self:
            return _torch.decompose(func, args, kwargs)
    if rule_of(func.name()) is not None:
        self.calls.append((func, args, kwargs))
    return func(*args, **kwargs)


_Calls.__torch_dispatch__ = _note


def calls_of(info, dtype: torch.dtype, limit: int) -> list:
    """(overload, args, kwargs) of all calls with a rule that the first `limit` samples of `info` make."""
    mode = _Calls()
    samples = info.sample_inputs("cpu", dtype, requires_grad=False)
    for sample in itertools.islice(samples, limit):
        try:
            with torch.no_grad(), mode:
                info.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, AssertionError):
            continue
    return mode.calls


def backward_calls_of(info, limit: int) -> list:
    """As `calls_of` in float32, of the calls that the derivatives of its samples make."""
    mode = _Calls()
    for sample in itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=True), limit):
        try:
            result = info.op(sample.input, *sample.args, **sample.kwargs)
            results = [each for each in _tensors(result) if each.requires_grad]
            inputs = [each for each in _tensors((sample.input, *sample.args)) if each.requires_grad]
            cotangents = [torch.randn_like(each) for each in results]
            with mode:
                torch.autograd.grad(results, inputs, cotangents, allow_unused=True)
        except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, AssertionError):
            continue
    return [(func, *_map((args, kwargs), torch.Tensor.detach)) for func, args, kwargs in mode.calls]


def _tensors(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, (list, tuple)) else []


def _map(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(each, change) for each in value)
    if isinstance(value, dict):
        return {name: _map(each, change) for name, each in value.items()}
    return value


def permuted(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x


def gapped(x: torch.Tensor) -> torch.Tensor:
    if not x.dim():
        return x
    wide = torch.empty((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x


def expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape) if x.dim() and x.shape[0] else x


def layouts(args, kwargs) -> Iterator[tuple]:
    """The call as it is, with all tensors in another layout, and with the first alone in another."""
    yield "as given", args, kwargs
    for change in (permuted, gapped, channels_last, expanded):
        try:
            yield change.__name__, _map(args, change), {key: _map(value, change) for key, value in kwargs.items()}
            if len(args) > 1:
                yield f"first {change.__name__}", (_map(args[0], change), *args[1:]), kwargs
        except RuntimeError:
            continue
