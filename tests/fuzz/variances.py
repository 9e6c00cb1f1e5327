"""Variances, and what is divided by their roots, in more than double precision.

Eager's kernels take variances in one pass: of some thousand numbers in double precision a result is off by tens of
units. Normalized rows have a mean that is off by a little, so that what lies at it is not 0. A program that computes in
double precision itself has no other reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

_VARIANCES = {aten.var.correction: False, aten.std.correction: True}
_WITH_MEANS = {aten.var_mean.correction: False, aten.std_mean.correction: True}


class ExactVariances(TorchDispatchMode):
    """Variances, standard deviations and normalized rows of finite numbers are rounded once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _NORMALIZED and args[0].dtype == torch.float64 and args[0].is_cpu:
            _normalize(made[0], *_NORMALIZED[func](*args))
            return made
        is_root = _VARIANCES.get(func, _WITH_MEANS.get(func))
        if is_root is None or args[0].dtype != torch.float64 or not args[0].is_cpu:
            return made
        target = made[0] if isinstance(made, tuple) else made
        if bool(target.isfinite().all()):
            _replace(target, args[0], args[1] if len(args) > 1 else None, kwargs or {}, is_root)
        return made


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:
    return x, tuple(range(x.dim() - len(shape), x.dim())), weight, bias, eps, tuple(x.shape)


def _group_norm(x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> tuple[Any, ...]:
    per_channel = (1, groups, c // groups, 1)
    weight, bias = (each.view(per_channel) if each is not None else None for each in (weight, bias))
    return x, (2, 3), weight, bias, eps, (n, groups, c // groups, hw)


_NORMALIZED = {aten.native_layer_norm.default: _layer_norm, aten.native_group_norm.default: _group_norm}


def _normalize(target: torch.Tensor, x: Any, axes: Any, weight: Any, bias: Any, eps: float, shape: Any) -> None:
    """Writes `x`, seen in that shape, less its mean and over its deviation along the axes, into `target`."""
    if not target.numel() or not bool(x.isfinite().all()):
        return
    wide = lambda each: each.detach().resolve_neg().numpy().astype(np.longdouble)
    numbers = wide(x).reshape(shape)
    with np.errstate(all="ignore"):
        found = numbers - numbers.mean(axis=axes, keepdims=True)
        found = found / np.sqrt((found * found).mean(axis=axes, keepdims=True) + np.longdouble(eps))
        found = found if weight is None else found * wide(weight)
        found = found if bias is None else found + wide(bias)
    target.copy_(torch.as_tensor(found.astype(np.float64)).view(target.shape))


def _replace(target: torch.Tensor, x: torch.Tensor, dim: Any, options: dict[str, Any], is_root: bool) -> None:
    numbers = x.detach().resolve_neg().numpy().astype(np.longdouble)
    dim = options.get("dim", dim)
    axes = tuple([dim] if isinstance(dim, int) else dim) if dim not in (None, [], ()) else None
    correction = options.get("correction", 1)
    with np.errstate(all="ignore"):
        found = numbers.var(axis=axes, ddof=1 if correction is None else correction)
        found = np.sqrt(found) if is_root else found
    if np.isfinite(found).all():
        target.copy_(torch.as_tensor(np.asarray(found, dtype=np.float64)).view(target.shape))
