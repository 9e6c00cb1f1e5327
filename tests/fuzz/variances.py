"""Variances in more than double precision.

Eager's kernels take them in one pass: of some thousand numbers in double precision a result is off by tens of units. A
program that computes in double precision itself has no other reference.
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
    """Variances and standard deviations of finite numbers are rounded once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        is_root = _VARIANCES.get(func, _WITH_MEANS.get(func))
        if is_root is None or args[0].dtype != torch.float64 or not args[0].is_cpu:
            return made
        target = made[0] if isinstance(made, tuple) else made
        if bool(target.isfinite().all()):
            _replace(target, args[0], args[1] if len(args) > 1 else None, kwargs or {}, is_root)
        return made


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
