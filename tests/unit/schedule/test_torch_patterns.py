"""Patterns of real programs, from torch to machine code: how many launches they take, and eager's values.

A launch more than stated here is lost fusion; a launch less is progress, and the number wants lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.capture.record.recorder import record
from lampwork.config import make_settings
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Extern, Launch, Program
from lampwork.ir.target import Target
from lampwork.lower import lower
from lampwork.schedule import schedule

TARGET = Target("avx512", 64, 2)


def program_of(function: Callable, tensors: list[torch.Tensor]) -> Program:
    settings = make_settings(mode=None, options={})
    with torch.no_grad():
        region = record(function, tensors)
    return schedule(lower(prepare(region, settings), settings), settings, TARGET)


def floats(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, generator=generator) for shape in shapes]


def integers(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(limit))


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rotary(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def attention_scores(s, mask):
    return (s / 8.0 + mask).softmax(-1)


def causal_scores(s):
    n = s.shape[-1]
    keep = torch.ones(n, n, dtype=torch.bool).tril()
    return s.masked_fill(~keep, -math.inf).softmax(-1)


def embed_and_norm(ids, table, positions, w, b):
    return F.layer_norm(table[ids] + positions[: ids.shape[1]], (table.shape[1],), w, b)


def residual_norm_quantized(x, y, w):
    z = x + y
    n = rms_norm(z, w)
    return z, n.to(torch.bfloat16)


def running_statistics(x, mean):
    batch = x.mean(0)
    mean.mul_(0.9).add_(batch, alpha=0.1)
    return x - batch


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def window_partition(x):
    b, h, w, c = x.shape
    return x.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)


def standardize(x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


def logsumexp_loss(x, y):
    return F.cross_entropy(x, y)


#: name -> (function, tensors, launches)
PATTERNS: dict[str, tuple[Callable, list[torch.Tensor], int]] = {
    "chain": (lambda x, y: torch.tanh(x * 2 + y).relu() - y, floats((37, 50), (37, 50)), 1),
    "broadcast": (lambda x, y: x + y[:, None] * 3, floats((37, 50), (37,)), 1),
    "gelu": (F.gelu, floats((64, 96)), 1),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), floats((64, 96)), 1),
    "silu": (F.silu, floats((64, 96)), 1),
    "hardswish": (F.hardswish, floats((64, 96)), 1),
    "swiglu": (swiglu, floats((33, 128)), 1),
    "softmax": (lambda x: x.softmax(-1), floats((64, 100)), 1),
    "softmax outer": (lambda x: x.softmax(0), floats((40, 96)), 1),
    "softmax bf16": (lambda x: x.softmax(-1), [floats((64, 100))[0].bfloat16()], 1),
    "log softmax": (lambda x: x.log_softmax(-1), floats((64, 100)), 1),
    "attention scores": (attention_scores, floats((2, 3, 20, 20), (2, 1, 1, 20)), 1),
    "causal scores": (causal_scores, floats((3, 24, 24)), 1),
    "logsumexp": (lambda x: x.logsumexp(-1), floats((64, 100)), 1),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (48,), w, b), floats((37, 48), (48,), (48,)), 1),
    "layer norm residual": (lambda x, y, w: F.layer_norm(x + y, (48,), w) + x, floats((37, 48), (37, 48), (48,)), 1),
    "rms norm": (rms_norm, floats((37, 48), (48,)), 1),
    "residual and cast": (residual_norm_quantized, floats((37, 48), (37, 48), (48,)), 1),
    "group norm": (lambda x, w, b: F.group_norm(x, 4, w, b), floats((2, 16, 6, 7), (16,), (16,)), 1),
    "group norm silu": (lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)), floats((2, 16, 6, 7), (16,), (16,)), 1),
    "instance norm": (lambda x: F.instance_norm(x), floats((2, 5, 6, 7)), 1),
    "batch norm trained": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), floats((4, 5, 6, 7), (5,), (5,)), 1,
    ),
    "batch norm applied": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v.abs(), w, b).relu(), floats((4, 5, 16, 17), (5,), (5,), (5,), (5,)), 1,
    ),
    "running statistics": (running_statistics, floats((30, 16), (16,)), 1),
    "standardize": (standardize, floats((37, 48)), 1),
    "variance and mean": (lambda x: torch.var_mean(x, -1), floats((37, 48)), 1),
    "l2 normalize": (lambda x: F.normalize(x, dim=-1), floats((37, 48)), 1),
    "several reductions": (lambda x: (x.sum(-1), x.amax(-1), x.argmax(-1)), floats((37, 48)), 1),
    "argmin": (lambda x: x.argmin(0), floats((37, 48)), 1),
    "sum of all": (lambda x: (x * x).sum(), floats((37, 48)), 1),
    "large sum of all": (lambda x: (x * x).sum(), floats((600, 500)), 2),
    "large column sums": (lambda x: x.sum(0), floats((3000, 64)), 2),
    "mean of spatial axes": (lambda x: x.mean((2, 3)), floats((3, 8, 7, 7)), 1),
    "transpose": (lambda x: x.t().contiguous() + 1, floats((40, 50)), 1),
    "heads": (lambda x: x.view(3, 20, 4, 16).transpose(1, 2).contiguous(), floats((3, 20, 64)), 1),
    "windows": (window_partition, floats((2, 14, 14, 8)), 1),
    "rotary": (rotary, floats((2, 3, 20, 16), (20, 16), (20, 16)), 1),
    "cat": (lambda x, y: torch.cat((x, y), 1).relu(), floats((8, 5), (8, 9)), 1),
    "cat of many": (lambda *x: torch.cat(x, 1), floats(*[(512, 256)] * 4), 4),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 0)) * 2, floats((3, 8, 9)), 1),
    "max pool": (lambda x: F.max_pool2d(x.relu(), 3, 2, 1), floats((2, 4, 13, 13)), 1),
    "average pool": (lambda x: F.avg_pool2d(x, 2), floats((2, 4, 12, 12)), 1),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), floats((2, 4, 6, 6)), 1),
    # Whether all indices are in range is known before the rows are read.
    "embedding": (embed_and_norm, [integers(30, 2, 10), *floats((30, 24), (12, 24), (24,), (24,))], 2),
    "gather": (lambda x, i: x.gather(1, i) * 2, [floats((8, 30))[0], integers(30, 8, 5)], 1),
    "one hot": (lambda i: F.one_hot(i, 12).float(), [integers(12, 20)], 1),
    "cross entropy": (logsumexp_loss, [floats((64, 50))[0], integers(50, 64)], 2),
    "mean squared error": (lambda x, y: F.mse_loss(x, y), floats((37, 48), (37, 48)), 1),
    "cumulative mask": (lambda x: x * (torch.arange(48) < 20), floats((37, 48)), 1),
    "where": (lambda x, y: torch.where(x > y, x, y * 0.5), floats((37, 48), (37, 48)), 1),
    "linear, gelu, linear": (
        lambda x, a, b: F.linear(F.gelu(F.linear(x, a)), b), floats((9, 16), (32, 16), (16, 32)), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_launches(name):
    function, tensors, expected = PATTERNS[name]
    program = program_of(function, [tensor.clone() for tensor in tensors])
    found = sum(isinstance(step, Launch) for step in program.steps)
    assert found == expected, "\n".join(f"{r.producer} | {r.consumer}: {r.reason}" for r in program.refused)
    if name != "linear, gelu, linear":
        assert not any(isinstance(step, Extern) for step in program.steps)


@pytest.mark.parametrize("name", PATTERNS)
def test_values(name):
    function, tensors, _ = PATTERNS[name]
    with torch.no_grad():
        ours, theirs = [t.clone() for t in tensors], [t.clone() for t in tensors]
        compiled = lampwork.compile(function, options={"cache": False}, fullgraph=True)
        found, expected = compiled(*ours), function(*theirs)
    torch.testing.assert_close(found, expected, **_tolerance(expected))
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)
    assert not lampwork.stats(compiled)["fallbacks"]


def _tolerance(expected) -> dict:
    results = expected if isinstance(expected, tuple) else (expected,)
    half = any(result.dtype in (torch.bfloat16, torch.float16) for result in results)
    return {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 2e-5, "atol": 2e-5}
