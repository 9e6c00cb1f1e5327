"""Whether numbers are right, element by element.

An element may be off by a few times what eager's own is: by its distance from float64, and by how far it moves when
every operator's result is off by a rounding. Both are samples, so elements of about the same size lend each other
theirs: a small element next to large ones is not forgiven what the large ones are.

    |ours - float64|  <=  OWN * own + TYPICAL * typical + ROUNDINGS * eps * |float64|

`own` is the larger of those two distances, `typical` their root mean square among elements of about the same size.
What is nearer than that to eager's own element is right, too. Whole numbers and booleans are equal to eager's, or to
those of a run that was off by roundings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lampwork.ir.record import record

OWN, TYPICAL, ROUNDINGS = 8.0, 6.0, 16.0
#: The same for types of 16 bits, whose results are rounded once at the end.
HALF_ROUNDINGS = 2.0
#: Elements that share a `typical` distance, at least: fewer say little.
FEWEST = 64
#: Types whose elements torch does not compare.
_BARE = (torch.float8_e4m3fn, torch.float8_e5m2)


@record
class Difference:
    """One value that is wrong. `name`: of the result, gradient, buffer or parameter. `times`: how many times as far
    from float64 as allowed the worst element is (infinite where no distance says it)."""

    name: str
    what: str
    wrong: int = 0
    elements: int = 0
    times: float = float("inf")

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


@record
class Allowed:
    """What eager says of one run: `values` by name, the same in float64, and in runs that were off by roundings."""

    values: Mapping[str, Any]
    wide: Mapping[str, Any]
    rounded: Sequence[Mapping[str, Any]] = ()

    def of(self, name: str) -> tuple[Any, Any, list[Any]]:
        return self.values[name], self.wide.get(name), [each[name] for each in self.rounded if name in each]


def differences(ours: Mapping[str, Any], allowed: Allowed) -> list[Difference]:
    """All values of `ours` that are wrong, in eager's order."""
    found = []
    for name in allowed.values:
        if name not in ours:
            found.append(Difference(name, "it is missing"))
            continue
        different = difference(name, ours[name], *allowed.of(name))
        if different is not None:
            found.append(different)
    return found + [Difference(name, "eager has none") for name in ours if name not in allowed.values]


def difference(name: str, ours: Any, eager: Any, wide: Any = None, rounded: Sequence[Any] = ()) -> Difference | None:
    """What is wrong about `ours`; None where nothing is. `wide`: eager's value in float64; `rounded`: those of runs
    that were off by roundings."""
    if not isinstance(eager, torch.Tensor) or not isinstance(ours, torch.Tensor):
        return _plain(name, ours, eager, [wide, *rounded])
    if ours.dtype != eager.dtype or ours.shape != eager.shape or ours.device.type != eager.device.type:
        if any(isinstance(each, torch.Tensor) and each.shape == ours.shape for each in rounded):
            return None  # how many there are depends on rounding
        return Difference(name, f"{_outline(ours)} instead of {_outline(eager)}")
    if not eager.numel():
        return None
    if eager.dtype in _BARE:
        return _bits(name, ours, eager)
    mine, theirs = _parts(ours), _parts(eager)
    exact = _parts(wide) if isinstance(wide, torch.Tensor) and wide.shape == eager.shape else theirs
    others = [
        _parts(each) for each in rounded
        if isinstance(each, torch.Tensor) and each.shape == eager.shape and each.dtype == eager.dtype
    ]  # fmt: skip
    if not (eager.is_floating_point() or eager.is_complex()):
        right = mine == theirs
        for each in others:
            right |= mine == each
        return _told(name, ours, mine, theirs, theirs, ~right, None)
    info = torch.finfo(eager.dtype.to_real() if eager.is_complex() else eager.dtype)
    allowance = allowed_distance(theirs, exact, others, info.eps, info.tiny)
    off = torch.minimum((mine - exact).abs(), (mine - theirs).abs())
    right = (off <= allowance) & mine.isfinite()
    for each in (theirs, exact, *others):
        right |= (mine == each) | (mine.isnan() & each.isnan())
    return _told(name, ours, mine, theirs, exact, ~right, off / allowance)


def allowed_distance(
    theirs: torch.Tensor, exact: torch.Tensor, rounded: Sequence[torch.Tensor], eps: float, tiny: float
) -> torch.Tensor:
    """For each element how far from `exact` it may be, as the page says. All are float64, flat."""
    finite = theirs.isfinite() & exact.isfinite()
    own = torch.where(finite, (theirs - exact).abs(), 0.0)
    for each in rounded:
        own = torch.maximum(own, torch.where(finite & each.isfinite(), (each - theirs).abs(), 0.0))
    size = torch.where(finite, exact.abs(), 0.0)
    roundings = ROUNDINGS if eps < 1e-6 else HALF_ROUNDINGS
    return OWN * own + TYPICAL * _typical(own, size) + roundings * eps * size + tiny


def _typical(own: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """The root mean square of `own` among elements of about the same size."""
    count = own.numel()
    groups = max(1, min(16, count // FEWEST))
    if groups == 1:
        return own.square().mean().sqrt().expand_as(own)
    order = size.argsort()
    edges = [count * group // groups for group in range(groups + 1)]
    squares = own[order].square().cumsum(0)
    found = torch.empty_like(own)
    for group in range(groups):
        # With those next to it: a border between sizes is drawn by chance.
        low, high = edges[max(0, group - 1)], edges[min(groups, group + 2)]
        total = squares[high - 1] - (squares[low - 1] if low else 0.0)
        found[order[edges[group] : edges[group + 1]]] = (total.clamp_min(0) / (high - low)).sqrt()
    return found


def _parts(value: torch.Tensor) -> torch.Tensor:
    """Elements in a row, in float64 or whole; complex numbers as two."""
    value = value.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    value = value.resolve_conj().resolve_neg()
    if value.is_complex():
        value = torch.view_as_real(value)
    value = value.reshape(-1)
    if value.dtype in (torch.uint64, torch.uint32, torch.uint16):  # which few kernels compare
        return value.view({8: torch.int64, 4: torch.int32, 2: torch.int16}[value.itemsize])
    return value.double() if value.is_floating_point() else value


def _plain(name: str, ours: Any, eager: Any, others: Sequence[Any]) -> Difference | None:
    """Of values that are no tensors."""
    if type(ours) is not type(eager):
        return Difference(name, f"{type(ours).__name__} instead of {type(eager).__name__}")
    if isinstance(eager, float):
        as_tensors = [torch.tensor(each, dtype=torch.float64) for each in (ours, eager)]
        runs = [torch.tensor(each, dtype=torch.float64) for each in others if isinstance(each, float)]
        # A number that a tensor gave has its precision, which is not known here: float32's is the usual one.
        theirs = as_tensors[1].reshape(1)
        allowance = allowed_distance(theirs, theirs, [each.reshape(1) for each in runs], 2.0**-23, 1e-38)
        if ours == eager or (ours != ours and eager != eager) or abs(ours - eager) <= float(allowance):
            return None
        return Difference(name, f"{ours!r} instead of {eager!r}", 1, 1)
    try:
        same = bool(ours == eager) or any(type(each) is type(ours) and bool(ours == each) for each in others)
    except Exception:  # whatever a class compares by
        return None
    return None if same else Difference(name, f"{ours!r:.80} instead of {eager!r:.80}", 1, 1)


def _bits(name: str, ours: torch.Tensor, eager: torch.Tensor) -> Difference | None:
    mine, theirs = (each.contiguous().view(torch.uint8).reshape(-1) for each in (ours, eager))
    return _told(name, ours, mine, theirs, theirs, mine != theirs, None)


def _told(
    name: str, value: torch.Tensor, mine: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor,
    wrong: torch.Tensor, times: torch.Tensor | None,
) -> Difference | None:  # fmt: skip
    count = int(wrong.sum())
    if not count:
        return None
    worst, place = float("inf"), int(wrong.nonzero()[0])
    if times is not None:
        found = torch.where(wrong, times.nan_to_num(nan=float("inf"), posinf=float("inf")), -1.0)
        place = int(found.argmax())
        worst = float(found[place])
    width = len(mine) // value.numel()
    where = _index(place // width, value.shape)
    reference = "" if times is None else f" (in float64 {exact[place].item():.9g})"
    numbers = f"{_number(mine[place].item())} instead of {_number(theirs[place].item())}{reference}"
    return Difference(
        name, f"{count} of {len(mine)} elements of {_outline(value)}, the worst at [{where}]: {numbers}",
        count, len(mine), worst,
    )  # fmt: skip


def _number(value: float | int | bool) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _index(place: int, shape: torch.Size) -> str:
    found = []
    for size in reversed(shape):
        found.append(str(place % size))
        place //= size
    return ", ".join(reversed(found))


def _outline(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
