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
#: Types that torch does not compare.
_BARE = (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32)
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
    if found.dtype not in _BARE and torch.equal(found, expected):
        return ""
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
    exact = wide.double() if wide is not None else theirs
    decided, off = _decided(theirs, exact)
    size = torch.where(decided, exact.abs(), 0.0)
    typical, least = size.square().mean().sqrt(), LEAST
    if expected.dtype is torch.float64:  # there is nothing wider that says how far rounding leads
        roundings, typical, least = 4096, 256 * size.max(), 0.0
    allowed = 8 * off + TIMES * off.max() + roundings * eps * size + 2 * eps * typical + least
    near = ((ours - exact).abs() <= allowed) & ours.isfinite()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return ~(same | (near & decided) | _undecided(theirs, exact, decided))


def _decided(theirs: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements where torch and float64 are finite and differ by no more than rounding, and by how much."""
    finite = theirs.isfinite() & exact.isfinite()
    off = torch.where(finite, (theirs - exact).abs(), 0.0)
    size = torch.where(finite, torch.maximum(theirs.abs(), exact.abs()), 0.0)
    other = (off > OTHER_WAY * size) & (off > OTHER_WAY / 8 * size.square().mean().sqrt())
    return finite & ~other, torch.where(other, 0.0, off)


def _undecided(theirs: torch.Tensor, exact: torch.Tensor, decided: torch.Tensor) -> torch.Tensor:
    """The elements of which float64 says something else altogether: an overflow of a smaller type, a comparison of
    values that rounding makes equal. Whatever a stage computes there may be right."""
    alike = (theirs == exact) | (theirs.isnan() & exact.isnan())
    return ~decided & ~alike


def undecided(expected: Any, wide: Any) -> int:
    """How many elements are not compared, since float64 says something else of them than torch does."""
    if not isinstance(expected, torch.Tensor) or not isinstance(wide, torch.Tensor) or wide.shape != expected.shape:
        return 0
    if not expected.is_floating_point() or expected.layout != torch.strided or not expected.numel():
        return 0
    theirs, exact = expected.double(), wide.double()
    return int(_undecided(theirs, exact, _decided(theirs, exact)[0]).sum())
