"""Gradients at ties, zeros, infinities and NaN are eager's: shared evenly, given to the first, or NaN, as it has it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import lampwork

inf, nan = float("inf"), float("nan")

VALUES = {
    "ties": [[1.0, 1, 0, 1], [2, 2, 2, 2], [0, 0, -1, -1]],
    "zeros": [[0.0, -0.0, 0, 0], [0, 0, 0, 0], [-0.0, -0.0, -0.0, -0.0]],
    "nan": [[1.0, nan, 2, 2], [nan, nan, nan, nan], [0, nan, nan, -1]],
    "infinities": [[inf, inf, 1, -inf], [-inf, -inf, -inf, -inf], [inf, 3, nan, 2]],
    "edges": [[6.0, -3, 3, 0.5], [20, -20, 1, -0.5], [6, 6, -1, 0]],
}


def _first(result):
    return result if isinstance(result, torch.Tensor) else result[0]


PROGRAMS = {}
for _name in ("max", "min", "median", "nanmedian", "amax", "amin", "std", "var"):
    PROGRAMS[_name] = lambda x, y, name=_name: _first(getattr(x, name)())
    PROGRAMS[f"{_name} of rows"] = lambda x, y, name=_name: _first(getattr(x, name)(1))
for _name in ("sort", "cummax", "cummin", "cumprod", "logsumexp", "logcumsumexp", "softmax", "mode"):
    PROGRAMS[_name] = lambda x, y, name=_name: _first(getattr(x, name)(dim=0))
for _power in (0.5, 1, 1.5, 2, 3, inf, -inf, -1):
    PROGRAMS[f"norm {_power}"] = lambda x, y, power=_power: torch.linalg.vector_norm(x, power)
    PROGRAMS[f"norm {_power} of rows"] = lambda x, y, power=_power: torch.linalg.vector_norm(x, power, 1)
for _name in ("maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "pow", "xlogy", "logaddexp", "fmod", "div"):
    PROGRAMS[_name] = lambda x, y, name=_name: getattr(torch, name)(x, y)
for _name in ("relu", "abs", "sqrt", "rsqrt", "log", "reciprocal", "sinc", "sgn", "erfinv"):
    PROGRAMS[_name] = lambda x, y, name=_name: getattr(torch, name)(x)
for _name in ("leaky_relu", "elu", "gelu", "silu", "softplus", "hardswish", "hardsigmoid", "logsigmoid", "mish"):
    PROGRAMS[_name] = lambda x, y, name=_name: getattr(functional, name)(x)
PROGRAMS |= {
    "clamp": lambda x, y: x.clamp(0, 1),
    "clamp from": lambda x, y: x.clamp(min=0),
    "clamp crossed": lambda x, y: x.clamp(1, 0),
    "clamp by tensors": lambda x, y: x.clamp(y, y + 1),
    "clamp to a tensor": lambda x, y: x.clamp(max=y),
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "where of roots": lambda x, y: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)),
    "nan_to_num": lambda x, y: x.nan_to_num(1.0, 2.0, 3.0),
    "topk": lambda x, y: x.topk(2, 1)[0],
    "normalize": lambda x, y: functional.normalize(x),
    "cosine": lambda x, y: functional.cosine_similarity(x, y),
    "distance": lambda x, y: torch.dist(x, y),
    "square": lambda x, y: x**2,
    "power of zero": lambda x, y: x**0,
    "root": lambda x, y: x**0.5,
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_gradients_are_eager_s(name):
    lampwork.reset()
    compiled = lampwork.compile(PROGRAMS[name], options={"cache": False})
    for first, second in zip(VALUES, [*VALUES][::-1], strict=True):
        found = []
        for function in (compiled, PROGRAMS[name]):
            x, y = (torch.tensor(VALUES[each], requires_grad=True) for each in (first, second))
            result = function(x, y)
            weights = torch.linspace(0.5, 1.5, result.numel()).view(result.shape)
            found.append(torch.autograd.grad(result, (x, y), weights, allow_unused=True))
        for mine, theirs in zip(*found, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert mine.stride() == theirs.stride()
                torch.testing.assert_close(mine, theirs, equal_nan=True, msg=lambda text: f"{first}: {text}")
    assert not lampwork.stats(compiled)["fallbacks"]
