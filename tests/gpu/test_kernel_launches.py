"""The program's own Triton kernels are launched as in eager: in graphs, in CUDA graphs, tuned, and in training steps."""

from __future__ import annotations

import pytest
import torch

import lampwork

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.usefixtures("cuda")

#: More than a CUDA graph needs to be captured and replayed.
CALLS = 8


@triton.jit
def store(pointer, value, inside):
    tl.store(pointer, value, mask=inside)


@triton.jit
def scale(x, out, n, by, MODE: tl.constexpr = "", BLOCK: tl.constexpr = 128, beside=None):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside) * by
    if MODE == "plus one":
        value += 1
    if beside is not None:
        value += tl.load(beside + at, mask=inside)
    store(out + at, value.to(out.dtype.element_ty), inside)


@triton.jit
def add_to(x, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + by, mask=at < n)


tuned = triton.autotune(
    [triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=8)],
    key=["n"],
    restore_value=["x"],
)(add_to)


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"], reset_to_zero=["out"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add_up(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(out, tl.sum(value, 0))


def over(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def a_chain(x, y):
    n = x.numel()
    z = x * 2 + y
    add_to[over(n)](z, n, 1.0, BLOCK=128)
    out = torch.empty_like(z)
    scale[over(n)](z, out, n, 3, "plus one", beside=y, num_warps=2)
    return out.sin(), z * 1


def inputs(x, y):
    n = x.numel()
    add_to[over(n)](x, n, 1.5, BLOCK=128)
    scale[over(n)](x, y, n, 2.0)
    add_to[over(20)](y[10:], 20, 1.5, BLOCK=128)
    return x * 2


def choices(x, y):
    n = x.numel()
    z = x + y
    tuned[over(n)](z, n, 2.0)
    total = torch.zeros(1, device=x.device)
    add_up[over(n)](z, total, n)
    return z * 2, total * 0.01


#: Of calls of three sizes: a part of an input that is written has a known size, and `EVEN` differs.
CAPTURES_OF_SIZES = {a_chain: 1, inputs: 3, choices: 2}


@pytest.mark.parametrize("settings", [{}, {"mode": "reduce-overhead"}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("program", [a_chain, inputs, choices])
def test_launches(program, settings):
    compiled = lampwork.compile(program, options={"cache": False}, **settings)
    for size in (5120, 5121, 999) if settings.get("dynamic") else (5120,):
        generator = torch.Generator().manual_seed(size)
        found = [torch.randn(size, generator=generator).cuda() for _ in range(2)]
        expected = [each.clone() for each in found]
        for _ in range(CALLS):
            results = compiled(*found), program(*expected)
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(found, expected)
    stats = lampwork.stats(compiled)
    assert stats["breaks"] == stats["fallbacks"] == ()
    assert stats["captures"] == (CAPTURES_OF_SIZES[program] if settings.get("dynamic") else 1)
    if settings.get("mode"):
        assert all(each["refused"] is None and each["replays"] for each in stats["cuda_graphs"])


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        scale[over(x.numel())](x, out, x.numel(), 0.5)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out, gradient = torch.empty_like(gradient), gradient.contiguous()
        scale[over(out.numel())](gradient, out, out.numel(), 0.5)
        return out


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training(mode):
    layer = torch.nn.Linear(64, 64).cuda()
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).cuda()
    step = lambda x: (Halved.apply(torch.relu(layer(x))) ** 2).mean()
    compiled, seen = lampwork.compile(step, mode=mode, options={"cache": False}), []
    for function in (compiled, step):
        for _ in range(CALLS):
            layer.zero_grad()
            loss = function(x)
            loss.backward()
        seen.append((loss.detach(), layer.weight.grad.clone(), layer.bias.grad.clone()))
    torch.testing.assert_close(*seen, rtol=1e-3, atol=1e-5)
    stats = lampwork.stats(compiled)
    assert stats["breaks"] == stats["fallbacks"] == ()
