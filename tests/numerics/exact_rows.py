"""A call of each row of `backends/exact.py` that computes, on values that tell roundings apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import lampwork
from lampwork.backends.exact import Table
from tests.ops.bits import bits

aten = torch.ops.aten

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_RAW = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16, torch.float16: torch.int16}
_SPECIAL = (
    0.0,
    -0.0,
    torch.inf,
    -torch.inf,
    torch.nan,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    1.2e-38,
    3.4e38,
    -3.4e38,
    0.5,
    2.5,
    -1.5,
)
#: All values of a half type, and some that are left for the tail of a vector.
COUNT = (1 << 16) + 37


def _limited(*limits: Any, name: str = "clamp") -> Callable:
    return lambda x: getattr(aten, name).default(x, *limits)


def _beside(operator: Any, *numbers: Any) -> list[Callable]:
    """The operator beside each of the numbers."""
    return [lambda x, n=number: operator(x, n) for number in numbers]


_NUMBERS = (0.3, -2, 3.0, 1e-3)

#: Functions of one, two or three tensors of a type, by row: (types, functions).
CALLS: dict[str, tuple[tuple[torch.dtype, ...], int, list[Callable]]] = {
    **{f"aten::{name}.default": (FLOATS, 1, [getattr(aten, name).default]) for name in """neg abs relu floor ceil trunc round
       reciprocal sgn sign hardswish hardsigmoid square deg2rad rad2deg frac isnan isinf isfinite isposinf isneginf signbit
       logical_not""".split()},
    **{f"aten::{name}.default": (FLOATS, 2, [getattr(aten, name).default]) for name in """minimum maximum heaviside
       logical_and logical_or logical_xor""".split()},
    **{f"aten::{name}.Tensor": (FLOATS, 2, [getattr(aten, name).Tensor]) for name in
       "add sub rsub mul div true_divide copysign eq ne lt le gt ge".split()},
    **{f"aten::{name}.Scalar": (FLOATS, 1, _beside(getattr(aten, name).Scalar, *_NUMBERS)) for name in
       "add sub rsub mul div copysign eq ne lt le gt ge".split()},
    **{f"aten::bitwise_{name}.Tensor": (WHOLE, 2, [getattr(aten, f"bitwise_{name}").Tensor]) for name in ("and", "or", "xor")},
    **{f"aten::bitwise_{name}.Scalar": (WHOLE, 1, _beside(getattr(aten, f"bitwise_{name}").Scalar, 1)) for name in
       ("and", "or", "xor")},
    "aten::bitwise_not.default": (WHOLE, 1, [aten.bitwise_not.default]),
    **{f"aten::{name}.default": (WHOLE, 1, [getattr(aten, name).default]) for name in ("any", "all")},
    **{f"aten::{name}.dim": (WHOLE, 1, [lambda x, op=getattr(aten, name).dim: op(x.reshape(-1, x.shape[-1]), 0)]) for name in
       ("any", "all")},
    **{f"aten::{name}.dims": (WHOLE, 1, [lambda x, op=getattr(aten, name).dims: op(x.reshape(-1, x.shape[-1]), [0])]) for name in
       ("any", "all")},
    "aten::rsqrt.default": (FLOATS[:2], 1, [aten.rsqrt.default]),
    "aten::pow.Tensor_Scalar": (FLOATS, 1, _beside(aten.pow.Tensor_Scalar, 1, 2, 2.0, -1, -1.0)),
    "aten::nan_to_num.default": (FLOATS, 1, [aten.nan_to_num.default, lambda x: aten.nan_to_num.default(x, 0.3, 1.0, -2.0)]),
    "aten::clamp.default": (FLOATS, 1, [_limited(-1, 0.3), _limited(None, 0.3), _limited(0.0)]),
    "aten::clamp_min.default": (FLOATS, 1, [_limited(0.3, name="clamp_min"), _limited(0.0, name="clamp_min")]),
    "aten::clamp_max.default": (FLOATS, 1, [_limited(0.3, name="clamp_max"), _limited(-0.0, name="clamp_max")]),
    "aten::hardtanh.default": (FLOATS, 1, [aten.hardtanh.default, _limited(0.0, 6.0, name="hardtanh")]),
    "aten::threshold.default": (FLOATS, 1, [_limited(0.3, -2.0, name="threshold")]),
    "aten::leaky_relu.default": (FLOATS, 1, [_limited(0.3, name="leaky_relu")]),
    "aten::leaky_relu_backward.default": (FLOATS, 2, [lambda g, x: aten.leaky_relu_backward.default(g, x, 0.3, False)]),
    "aten::threshold_backward.default": (FLOATS, 2, [lambda g, x: aten.threshold_backward.default(g, x, 0)]),
    "aten::addcdiv.default": (FLOATS, 3, [partial(aten.addcdiv.default, value=each) for each in (1, 0.3, -2)]),
    "aten::addcmul.default": (FLOATS, 3, [partial(aten.addcmul.default, value=each) for each in (1, 0.3, -2)]),
    "aten::lerp.Scalar": (FLOATS, 2, [lambda a, b, w=w: aten.lerp.Scalar(a, b, w) for w in (0.1, 0.5, 0.9, -3.0)]),
    "aten::lerp.Tensor": (FLOATS, 3, [aten.lerp.Tensor]),
}  # fmt: skip

#: Of rows that only GPUs have.
ON_GPUS: dict[str, tuple[tuple[torch.dtype, ...], int, list[Callable]]] = {
    **{f"aten::{name}.default": (FLOATS, 1, [getattr(aten, name).default]) for name in """sqrt rsqrt exp exp2 expm1 log log2
       log10 log1p sin cos tan sinh cosh tanh sigmoid silu elu mish""".split()},
    **{f"aten::{name}.default": (FLOATS, 2, [getattr(aten, name).default]) for name in """sigmoid_backward tanh_backward
       silu_backward hardswish_backward hardsigmoid_backward""".split()},
    "aten::softplus.default": (FLOATS, 1, [aten.softplus.default, lambda x: aten.softplus.default(x, 0.3, 10.0)]),
    "aten::softplus_backward.default": (FLOATS, 2, [lambda g, x: aten.softplus_backward.default(g, x, 0.3, 20.0)]),
    "aten::hardtanh_backward.default": (FLOATS, 2, [lambda g, x: aten.hardtanh_backward.default(g, x, -1.0, 0.3)]),
    "aten::gelu.default": (FLOATS, 1, [lambda x: aten.gelu.default(x, approximate="tanh")]),
}  # fmt: skip

#: More calls of rows that are above: multiples, whole numbers, operands of several types.
MORE: list[tuple[tuple[torch.dtype, ...], int, list[Callable]]] = [
    (FLOATS[:2], 1, [lambda x: x**3]),
    (FLOATS[:2], 2, [partial(torch.add, alpha=0.3), partial(torch.sub, alpha=0.3), partial(torch.add, alpha=-2)]),
    (WHOLE[:5], 2, [torch.add, torch.sub, torch.mul, torch.eq, torch.lt, torch.logical_and]),
    (WHOLE[:4], 1, [torch.neg, torch.abs, lambda x: x + 3, lambda x: x * -2]),
    (FLOATS, 2, [lambda a, b: a * b.float(), lambda a, b: a.double() - b, lambda a, b: a / (b > 0), lambda a, b: a + 0.1 * b]),
    (FLOATS, 2, [lambda a, b: torch.where(a > b, a, b), lambda a, b: a.masked_fill(b > 0, 0.3), lambda a, b: torch.cat([a, b])]),
    (FLOATS, 1, [lambda x, to=to: x.to(to) for to in (*FLOATS, torch.bool)]),
    (WHOLE, 1, [lambda x, to=to: x.to(to) for to in (*WHOLE, *FLOATS[:2])]),
    # Tensors without dimensions, which kernels take as numbers.
    (FLOATS, 2, [lambda a, b: a * b.flatten()[3], lambda a, b: a + b.flatten()[3], lambda a, b: a / b.flatten()[3].float()]),
    (FLOATS, 2, [lambda a, b: a - b.flatten()[3].double(), lambda a, b: b.flatten()[3].float() * a > 1]),
    # Chains of half types are rounded after each operator.
    (FLOATS, 3, [lambda a, b, c: (a * b + c) * a - b / c, lambda a, b, c: torch.relu(a - b * 0.3) * c + 1]),
]  # fmt: skip


def values(dtype: torch.dtype, seed: int, device: str) -> torch.Tensor:
    """For half types all values, in an order by the seed; else normal numbers, any bits, and special values."""
    chance = torch.Generator().manual_seed(seed)
    if dtype in _RAW:
        limits = torch.iinfo(_RAW[dtype])
        if dtype.itemsize == 2:
            raw = torch.randperm(1 << 16, generator=chance)[torch.arange(COUNT) % (1 << 16)]
            return raw.to(torch.int16).view(dtype).to(device)
        made = (
            torch.randint(limits.min, limits.max, (COUNT,), generator=chance, dtype=torch.int64)
            .to(_RAW[dtype])
            .view(dtype)
        )
        half = COUNT // 2
        made[:half] = torch.randn(half, generator=chance, dtype=dtype)
        places = torch.randint(0, COUNT, (COUNT // 8,), generator=chance)
        special = torch.tensor(_SPECIAL, dtype=torch.float64).to(dtype)
        made[places] = special[torch.randint(0, len(special), (COUNT // 8,), generator=chance)]
        return made.to(device)
    if dtype is torch.bool:
        return (torch.rand(COUNT, generator=chance) > 0.5).to(device)
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max, (COUNT,), generator=chance, dtype=torch.int64).to(dtype).to(device)


def layouts(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Vectors with a tail, tails alone, elements with gaps, rows that are transposed."""
    yield x
    yield x[:5]
    yield x[100:200:3]
    yield x[: 64 * 33].view(64, 33).t()


def differing(
    calls: list[Callable], dtype: torch.dtype, arity: int, device: str = "cpu"
) -> tuple[list[int], dict[str, int]]:
    """Elements with other bits than eager's, for each call and layout; and the calls of ATen that were made."""

    def program(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [call(*each) for call in calls for each in zip(*map(layouts, inputs))]

    inputs = [values(dtype, seed, device) for seed in range(arity)]
    compiled = lampwork.compile(program, dynamic=False, options={"numerics": "eager", "cache": False})
    with torch.no_grad():
        pairs = list(zip(compiled(*inputs), program(*inputs), strict=True))
    assert all(ours.dtype == eager.dtype for ours, eager in pairs)
    found = [int((bits(ours) != bits(eager)).sum()) for ours, eager in pairs]
    return found, dict(lampwork.stats(compiled)["extern_calls"])


def computing(table: Table, moves: Table) -> set[str]:
    """The rows of a back end that compute."""
    return set(table) - set(moves)
