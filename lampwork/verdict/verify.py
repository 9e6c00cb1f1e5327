"""Whether compiled numbers are right: the acceptance rule of PyTorch's own benchmark suite.

An output is accepted if it is `allclose` to eager's, or else if it is about as close as eager to a float64 reference:
`rmse(ours, reference) <= k * rmse(eager, reference) + tolerance / 10`, k = 2 for float32 and 3 for half types
(the function `same` that benchmarks/dynamo in the PyTorch repository judges by). Everything that is not floating
point must be equal.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.record import record

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 1e-2}
MULTIPLIER = {torch.float64: 2.0, torch.float32: 2.0, torch.float16: 3.0, torch.bfloat16: 3.0}


@record
class Comparison:
    """The verdict on one call's outputs.

    `error` is the largest absolute difference from eager, `reference_error` from the float64 reference, and
    `eager_reference_error` eager's own. `reasons` says, per output that was refused, where it is and why; `notes` what
    differs without being wrong (strides). `scale` is the largest magnitude among eager's outputs. `spread`: not these
    outputs were compared but what many random numbers make of them (`spread.py`).
    """

    accepted: bool
    error: float
    reference_error: float
    eager_reference_error: float
    scale: float
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    spread: bool = False


def leaves(value: object, path: str = "output", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, object]]:
    """Every leaf of nested tuples, lists, mappings, dataclasses and objects with its path, in order.

    Objects are those whose class says nothing about equality, such as a model's cache of keys and values: what they
    hold is compared, attribute by attribute. One that holds itself is a leaf where it is met again.
    """
    inner = seen | {id(value)}
    if id(value) in seen:
        yield path, type(value)
    elif isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], f"{path}[{key!r}]", inner)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]", inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}", inner)
    elif _is_plain_object(value):
        yield f"type of {path}", type(value)
        for name, attribute in vars(value).items():
            yield from leaves(attribute, f"{path}.{name}", inner)
    else:
        yield path, value


def _is_plain_object(value: object) -> bool:
    """Whether all that `value` holds is in its `__dict__`, and equality is identity."""
    cls = type(value)
    ordinary = cls.__eq__ is object.__eq__ and cls.__new__ is object.__new__ and not isinstance(value, torch.nn.Module)
    return ordinary and hasattr(value, "__dict__") and not any(base.__dict__.get("__slots__") for base in cls.__mro__)


def rmse(first: torch.Tensor, second: torch.Tensor) -> float:
    """Root of the mean square difference, computed in float64; 0 for empty tensors."""
    if first.numel() == 0:
        return 0.0
    return float((first.double() - second.double()).square().mean().sqrt())


def compare(ours: Any, eager: Any, reference: Any = None) -> Comparison:
    """Judge nested outputs `ours` against `eager`, and against `reference` (the same call in float64) if given."""
    our_leaves, eager_leaves = list(leaves(ours)), list(leaves(eager))
    reference_leaves = dict(leaves(reference)) if reference is not None else {}
    if [path for path, _ in our_leaves] != [path for path, _ in eager_leaves] or type(ours) is not type(eager):
        reason = f"structure: {_outline(ours, our_leaves)} instead of {_outline(eager, eager_leaves)}"
        return Comparison(False, float("inf"), float("inf"), 0.0, 0.0, (reason,))
    worst = {"error": 0.0, "reference": 0.0, "eager": 0.0, "scale": 0.0}
    reasons: list[str] = []
    notes: list[str] = []
    for (path, our), (_, expected) in zip(our_leaves, eager_leaves):
        if not isinstance(expected, torch.Tensor) or not isinstance(our, torch.Tensor):
            if not _equal(our, expected):
                reasons.append(f"{path}: {our!r} instead of {expected!r}")
            continue
        _judge(path, our.detach(), expected.detach(), reference_leaves.get(path), worst, reasons, notes)
    return Comparison(
        not reasons, worst["error"], worst["reference"], worst["eager"], worst["scale"], tuple(reasons), tuple(notes)
    )


def _equal(our: object, expected: object) -> bool:
    """Of what is no tensor. A float is most often an element of a float32 tensor, and is judged as one."""
    if type(our) is not type(expected):
        return False
    if isinstance(our, float | complex) and isinstance(expected, float | complex):
        tolerance = TOLERANCE[torch.float32]
        both = torch.tensor(our), torch.tensor(expected)
        return torch.allclose(*both, rtol=tolerance, atol=tolerance, equal_nan=True)
    return bool(our == expected)


def _outline(value: object, found: list[tuple[str, object]]) -> str:
    return f"{type(value).__name__} of {len(found)}"


def _judge(
    path: str,
    our: torch.Tensor,
    expected: torch.Tensor,
    reference: object,
    worst: dict[str, float],
    reasons: list[str],
    notes: list[str],
) -> None:
    """Compare two tensors; widen `worst` and append to `reasons` or `notes`."""
    if our.dtype != expected.dtype or our.shape != expected.shape or our.device != expected.device:
        reasons.append(f"{path}: {_describe(our)} instead of {_describe(expected)}")
        return
    if our.layout == torch.strided and our.stride() != expected.stride() and our.numel() > 1:
        notes.append(f"{path}: strides {our.stride()} instead of {expected.stride()}")
    if our.numel() == 0:
        return
    if not (our.is_floating_point() or our.is_complex()):
        if not torch.equal(our, expected):
            worst["error"] = max(worst["error"], _largest(our.double(), expected.double()))
            reasons.append(f"{path}: {int((our != expected).sum())} of {our.numel()} {our.dtype} values differ")
        return
    error = _largest(our, expected)
    worst["error"] = max(worst["error"], error)
    worst["scale"] = max(worst["scale"], float(expected.abs().nan_to_num(0, 0, 0).max()))
    tolerance = TOLERANCE.get(our.dtype, 1e-4)
    ours_rmse = eager_rmse = None
    if isinstance(reference, torch.Tensor) and reference.shape == our.shape:
        worst["reference"] = max(worst["reference"], _largest(our, reference))
        worst["eager"] = max(worst["eager"], _largest(expected, reference))
        ours_rmse, eager_rmse = rmse(our, reference), rmse(expected, reference)
    if torch.allclose(our, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
        return
    multiplier = MULTIPLIER.get(our.dtype, 2.0)
    if ours_rmse is not None and eager_rmse is not None and ours_rmse <= multiplier * eager_rmse + tolerance / 10:
        return
    told = "" if ours_rmse is None else f"; rmse to float64 {ours_rmse:.3g}, eager's {eager_rmse:.3g}"
    reasons.append(f"{path}: off by {error:.3g}{told}")


def _largest(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest absolute difference; NaN against NaN and equal infinities count as 0, NaN against a number as inf."""
    if first.is_complex() or second.is_complex():
        first, second = torch.view_as_real(first.resolve_conj()), torch.view_as_real(second.resolve_conj())
    first, second = first.double(), second.double()
    difference = (first - second).abs()
    same = (first == second) | (first.isnan() & second.isnan())
    difference = torch.where(same, torch.zeros_like(difference), difference)
    return float(difference.nan_to_num(nan=float("inf"), posinf=float("inf")).max())


def _describe(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)} on {tensor.device}"


def reference_outputs(workload: Any, precisions: tuple[str, ...] = ("float64", "float32")) -> tuple[object, str | None]:
    """The outputs of a workload in the first of `precisions` that it runs in (a library may have no float64), without
    TF32, and which; (None, None) where it is a plain function, which may hold weights."""
    from lampwork.benchmark import zoo

    if workload.module is None:
        return None, None
    with _torch.exact_products():
        for name in precisions:
            dtype = getattr(torch, name)
            try:
                module = copy.deepcopy(workload.module).to(dtype)
                args, kwargs = (zoo.convert(each, dtype=dtype) for each in (workload.args, workload.kwargs))
                return module(*args, **kwargs), name
            except (RuntimeError, TypeError, NotImplementedError):
                module = args = kwargs = None
    return None, None
