"""Reductions and normalisations of rows with NaN, infinities, huge numbers, constant columns and large means."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import lampwork

from .special_values import FLOATS, compiled_results, differs, grid, leaves, told

inf, nan = math.inf, math.nan
WIDTH = 33  # two vectors and a tail

OVER_A_DIMENSION = {
    "sum": torch.sum, "mean": torch.mean, "prod": torch.prod, "amax": torch.amax, "amin": torch.amin, "max": torch.max,
    "min": torch.min, "argmax": torch.argmax, "argmin": torch.argmin, "all": torch.all, "any": torch.any,
    "var": torch.var, "std": torch.std, "var_mean": torch.var_mean, "std_mean": torch.std_mean,
    "logsumexp": torch.logsumexp, "softmax": torch.softmax, "log_softmax": torch.log_softmax, "cumsum": torch.cumsum,
    "cumprod": torch.cumprod, "nansum": torch.nansum, "count_nonzero": torch.count_nonzero,
    **{f"norm {p}": (lambda p: lambda x, dim: torch.linalg.vector_norm(x, p, dim=dim))(p)
       for p in (2, 1, inf, -inf, 0, 3)},
    "normalize": lambda x, dim: F.normalize(x, dim=dim),
}  # fmt: skip
NORMALISED = {
    "layer_norm": lambda x: F.layer_norm(x, (WIDTH,)), "rms_norm": lambda x: F.rms_norm(x, (WIDTH,)),
    "layer_norm, affine": lambda x: F.layer_norm(x, (WIDTH,), x[0], x[1]),
    "group_norm": lambda x: F.group_norm(x.unsqueeze(1).expand(-1, 4, -1).contiguous(), 2),
    "batch_norm": lambda x: F.batch_norm(x.unsqueeze(0), None, None, training=True),
    "batch_norm of columns": lambda x: F.batch_norm(x.t().contiguous(), None, None, training=True),
    "instance_norm": lambda x: F.instance_norm(x.unsqueeze(0)), "cov": lambda x: torch.cov(x[:2]),
}  # fmt: skip
#: Zeros of both signs: which is the larger depends on eager's vector length.
EITHER_ZERO = ("amax", "amin", "max", "min", "norm")


def rows(dtype: torch.dtype, huge: bool = True) -> torch.Tensor:
    half = dtype is torch.float16
    base = torch.randn(WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    made = [base, base * 0.1 + 1e3, base * 1e-20, base * 0 + 3.1, base * 0, -base * 0, base.abs() * 1e3]
    made.append(base + 6e4 if half else base * 0.1 + 1e6)
    if huge:
        made.append(base * (1e3 if half else 1e18))
    for values in ({0: nan}, {32: nan}, {5: inf}, {0: inf}, {16: -inf}, {0: inf, 20: -inf}, {3: nan, 20: inf}):
        row = base.clone()
        for place, value in values.items():
            row[place] = value
        made.append(row)
    made += [torch.full((WIDTH,), value, dtype=torch.float64) for value in (-inf, inf, nan, -0.0)]
    return torch.stack(made).to(dtype)


def wrong(functions: dict, x: torch.Tensor) -> dict[str, str]:
    """What differs from eager and is further from float64 than eager is, by function."""
    found = {}
    for name, results in compiled_results(functions, (x,)).items():
        exact = leaves(functions[name](x.double()))
        for mine, theirs, wide in zip(results, leaves(functions[name](x)), exact, strict=True):
            assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride()), name
            bad = differs(mine, theirs, 4, 0.0)
            if mine.is_floating_point():
                finite = mine.isfinite() & theirs.isfinite()
                error, eager = ((each.double() - wide).abs().nan_to_num(0, 0, 0) for each in (mine, theirs))
                row = eager.amax(-1, keepdim=True) if mine.dim() > 1 and mine.shape[-1] == WIDTH else eager
                scale = 8 * torch.finfo(mine.dtype).eps * wide.abs().nan_to_num(0, 0, 0)
                if x.dtype is torch.float64:  # what it is judged by is rounded as much
                    scale = 1e-9 * wide.abs().nan_to_num(0, 0, 0) + 1e-14
                zeros = (mine == 0) & (theirs == 0)
                if name.startswith(EITHER_ZERO):
                    bad &= ~zeros
                bad &= zeros | ~(finite & (error <= 2 * torch.maximum(eager, row) + scale))
            if bad.any():
                found[name] = told(mine, theirs, bad, ())
    return found


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions(dtype, dim):
    x = rows(dtype) if dim else rows(dtype).t().contiguous()
    assert not wrong({name: (lambda f: lambda x: f(x, dim))(f) for name, f in OVER_A_DIMENSION.items()}, x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normalisations(dtype):
    # float64 has nothing wider to be judged by; what overflows is NaN or 0 in eager, by the length of its vectors.
    x = rows(dtype, huge=False)
    if dtype is torch.float64:
        x = x[[0, 2, 4, 5, 6, *range(8, len(x))]]
    assert not wrong(NORMALISED, x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool], ids=str)
def test_types_of_integer_reductions(dtype):
    x = torch.stack([grid(dtype).repeat(5)[:WIDTH], grid(dtype).flip(0).repeat(5)[:WIDTH]])
    functions = {
        **{name: (lambda f: lambda x: f(x, 1))(f) for name, f in OVER_A_DIMENSION.items()},
        **{f"{name} {kind}": (lambda f, kind: lambda x: f(x, 1, dtype=kind))(getattr(torch, name), kind)
           for name in ("sum", "prod", "cumsum", "cumprod") for kind in (torch.int8, torch.int32, torch.int64)},
    }  # fmt: skip
    for name, results in compiled_results(functions, (x,)).items():
        for mine, theirs in zip(results, leaves(functions[name](x)), strict=True):
            assert mine.dtype == theirs.dtype, name
            # The order in which numbers are added is not part of a type.
            assert not differs(mine, theirs, 4, 0.0).any() if mine.is_floating_point() else torch.equal(mine, theirs), (
                name
            )


@pytest.mark.parametrize("width", [33, 768])
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6])
def test_normalisations_far_from_zero_are_as_exact_as_eagers(mean, width):
    """float32 is off by as much as such numbers differ, where the mean is one number of float32."""
    x = torch.randn(8, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 0.1 + mean
    x = x.float()
    programs = {
        "layer_norm": lambda x: F.layer_norm(x, (width,)), "group_norm": lambda x: F.group_norm(x.unsqueeze(0), 4),
        "batch_norm": lambda x: F.batch_norm(x.unsqueeze(0), None, None, training=True),
    }  # fmt: skip
    for name, program in programs.items():
        exact = program(x.double())
        mine = (lampwork.compile(program, options={"cache": False})(x).double() - exact).abs().max()
        theirs = (program(x).double() - exact).abs().max()
        # A layer norm's mean is one number of float32, in eager, too.
        assert mine <= max(theirs.item() * (2 if name == "layer_norm" else 1), 1e-6), name


@pytest.mark.parametrize("value", [0.1, 1000.3, -7.7, 65504.1])
@pytest.mark.parametrize("width", [7, 33, 100, 768, 4096, 300_000])
def test_rows_of_equal_elements(width, value):
    """Whose mean is that element for eager's running mean; a sum is rounded, and the little that is left is scaled up."""
    x = torch.full((3, width), value)
    programs = {
        "layer_norm": lambda x: F.layer_norm(x, (width,)),
        "group_norm": lambda x: F.group_norm(x.unsqueeze(0), 3),
        "batch_norm": lambda x: F.batch_norm(x.unsqueeze(0), None, None, training=True),
        "var": lambda x: x.var(1),
    }
    for name, program in programs.items():
        mine, theirs = lampwork.compile(program, options={"cache": False})(x), program(x)
        assert mine.abs().max() <= theirs.abs().max() + 1e-6, name
