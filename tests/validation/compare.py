"""Whether a stage computes what the program means, element by element.

The program as captured, run by torch, says what is right; run in float64, it says how far rounding may lead. An element
may be off by a few times what torch's own element is, by a few roundings of its own size, and by about the error that
torch makes elsewhere in the same tensor: sums may be added in another order.
"""

from __future__ import annotations

from typing import Any

import torch

#: Roundings of its own that an element may be off by, and how many times torch's largest error in the tensor.
ROUNDINGS, TIMES = 32, 4
#: Of these an element is off by one, where its type is rounded to at the end.
_HALVES = (torch.float16, torch.bfloat16)
#: Where float64 differs by more than this share, it took another way through the program and says nothing.
OTHER_WAY = 0.3
#: Below this a difference is rounding of terms that cancel, whatever is left of them.
LEAST = 1e-7


def difference(found: Any, expected: Any, wide: Any = None) -> str:
    """How `found` differs from `expected`; empty where it does not. `wide`: `expected` in float64, if there is any."""
    if not isinstance(expected, torch.Tensor):
        return "" if type(found) is type(expected) and (found == expected or found != found) else f"{found} instead of {expected}"  # fmt: skip
    if not isinstance(found, torch.Tensor):
        return f"{type(found).__name__} instead of a tensor"
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{_outline(found)} instead of {_outline(expected)}"
    if expected.layout != torch.strided or not expected.numel():
        return ""
    if significant_strides(found) != significant_strides(expected):
        return f"strides {found.stride()} instead of {expected.stride()}"
    found, expected = found.detach().resolve_conj().resolve_neg(), expected.detach().resolve_conj().resolve_neg()
    if expected.dtype.is_complex:
        found, expected, wide = torch.view_as_real(found), torch.view_as_real(expected), None
    wide = wide if isinstance(wide, torch.Tensor) and wide.shape == expected.shape else None
    if not expected.is_floating_point():
        wrong = found != expected
        if wide is not None and not wide.is_floating_point():
            wrong &= wide == expected
    else:
        wrong = _wrong_floats(found, expected, wide)
    if not bool(wrong.any()):
        return ""
    where = tuple(int(each) for each in wrong.nonzero()[0])
    count = int(wrong.sum())
    exact = f" (in float64 {wide[where].item()})" if wide is not None else ""
    return f"{count} of {wrong.numel()} elements: at {where} {found[where].item()} instead of {expected[where].item()}{exact}"


def significant_strides(tensor: torch.Tensor) -> list[int]:
    return [tensor.stride(place) for place, size in enumerate(tensor.shape) if size > 1]


def _outline(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _wrong_floats(found: torch.Tensor, expected: torch.Tensor, wide: torch.Tensor | None) -> torch.Tensor:
    eps = torch.finfo(expected.dtype).eps if expected.dtype in (torch.float32, torch.float64, *_HALVES) else 0.25
    roundings = 4 if eps > 1e-6 else ROUNDINGS
    ours, theirs = found.double(), expected.double()
    finite = theirs.isfinite()
    exact = theirs
    if wide is not None and _same_way(theirs, wide.double(), OTHER_WAY):
        exact = wide.double()
    both = finite & exact.isfinite()
    off = torch.where(both, (theirs - exact).abs(), 0.0)
    size = torch.where(both, exact.abs(), 0.0)
    typical = size.square().mean().sqrt() if size.numel() else size.sum()
    least = 0.0 if expected.dtype is torch.float64 else LEAST
    if expected.dtype is torch.float64:  # there is nothing wider that says how far rounding leads
        roundings, typical = 4096, 256 * size.max()
    allowed = 8 * off + TIMES * off.max() + roundings * eps * size + 2 * eps * typical + least
    near = (ours - exact).abs() <= allowed
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    # Where torch's own result overflows in its type and ours does not, or the reverse, float64 decides.
    return ~(same | (both & near & ours.isfinite()) | (~both & _fits(ours, wide, exact, expected)))


def _fits(ours: torch.Tensor, wide: torch.Tensor | None, exact: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    if wide is None or exact is expected:
        return torch.zeros_like(ours, dtype=torch.bool)
    rounded = wide.to(expected.dtype).double()
    close = (ours - exact).abs() <= 1e-4 * exact.abs()
    return (rounded == ours) | (rounded.isnan() & ours.isnan()) | (close & ours.isfinite())


def _same_way(one: torch.Tensor, other: torch.Tensor, share: float) -> bool:
    both = one.isfinite() & other.isfinite()
    if bool((one.isfinite() != other.isfinite()).any()):
        return False
    if not bool(both.any()):
        return True
    off, size = (one - other).abs()[both], other.abs()[both]
    return bool(off.square().mean().sqrt() <= share * size.square().mean().sqrt())
