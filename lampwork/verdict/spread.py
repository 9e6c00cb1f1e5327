"""Whether results that random numbers decide are eager's: compiled programs may draw other numbers of the same kind.

Results of several seeds are compared with eager's of as many, by Welch's t-test: each element, and of each tensor its
mean and its root of the mean square, which many small errors of one direction move.
(B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34, 1947.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lampwork.verdict.verify import TOLERANCE

#: Seeds on each side.
SEEDS = 8
#: A difference of means that is so many times its standard error is none of chance: with 14 degrees of freedom, 3 of
#: 100,000 elements are so far off. So many may be.
FAR, FEW = 6.0, 1e-3


def outside(ours: Sequence[Mapping[str, Any]], eager: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Why `ours`, a mapping of named results for each seed, are not from where `eager`'s are; empty if they may be."""
    reasons = []
    for name, value in eager[0].items():
        theirs: list[Any] = [each.get(name) for each in eager]
        mine: list[Any] = [each.get(name) for each in ours]
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            if all(_same(each, value) for each in theirs) and not all(_same(each, value) for each in mine):
                reasons.append(f"{name}: {mine[0]!r} instead of {value!r}")
            continue
        if any(not isinstance(each, torch.Tensor) or each.shape != value.shape for each in (*theirs, *mine)):
            reasons.append(f"{name}: of other shapes than eager's")
        elif any(each.dtype != value.dtype for each in mine):
            reasons.append(f"{name}: {mine[0].dtype} instead of {value.dtype}")
        elif value.numel():
            why = _difference(_stacked(mine), _stacked(theirs), TOLERANCE.get(value.dtype, 1e-4))
            if why:
                reasons.append(f"{name}: {why}")
    return tuple(reasons)


def _stacked(tensors: Sequence[Any]) -> torch.Tensor:
    return torch.stack([each.detach().double().cpu().reshape(-1) for each in tensors])


def _difference(ours: torch.Tensor, eager: torch.Tensor, tolerance: float) -> str:
    if ours.isnan().any() and not eager.isnan().any():
        return "NaN, where eager has none for any seed"
    far = float((_distance(ours, eager, tolerance) > FAR).double().mean())
    if far > FEW and far * ours.size(1) > 1:
        return f"{far:.1%} of the elements are outside of eager's spread over {len(eager)} seeds"
    for what, of in (("mean", lambda x: x.mean(1)), ("root of the mean square", lambda x: x.square().mean(1).sqrt())):
        mine, theirs = of(ours)[:, None], of(eager)[:, None]
        if float(_distance(mine, theirs, tolerance)) > FAR:
            return f"its {what} is {float(mine.mean()):.4g}, eager's over {len(eager)} seeds {float(theirs.mean()):.4g}"
    return ""


def _distance(ours: torch.Tensor, eager: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Between the means over seeds, in standard errors, to which rounding is added; by element."""
    error = ((torch.var(ours, 0) + torch.var(eager, 0)) / len(ours)).sqrt()
    rounding = tolerance * (1 + eager.abs().mean(0))
    return ((ours.mean(0) - eager.mean(0)).abs() / (error + rounding)).nan_to_num(0.0)


def _same(first: object, second: object) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return type(first) is type(second) and bool(first == second)
