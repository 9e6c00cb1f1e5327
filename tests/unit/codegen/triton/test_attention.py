"""Attention kernels in Triton's interpreter on CPU tensors: they must be as exact as eager."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from lampwork.codegen.triton import worker
from lampwork.codegen.triton.attention import attention_tilings
from lampwork.codegen.triton.source import kernel_source
from lampwork.ir.attention import SCORE, read_attention
from lampwork.ir.loops import Compute, Constant, Index
from lampwork.ir.masked_keys import Block, kept_parts, mask_of, needed_keys, unmasked
from lampwork.ir.size import Symbol, add, evaluate, mul
from lampwork.schedule import attention as stage
from tests.unit.codegen.triton.attentions import (
    PROGRAMS,
    by_hand,
    causal,
    divided_last,
    factors,
    flex,
    lowered_of,
    window,
)
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, run_kernels, scheduled, sources
from tests.unit.lower.graphs import _flatten

interpreted = pytest.mark.skipif(bool(available()), reason=available())


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(stage, "FEWEST_SCORES", 1)
    monkeypatch.setattr(stage, "FEWEST_ROWS", 32)
    monkeypatch.setattr(stage, "_skips_keys", lambda item: True)


def attention_kernels(program):
    return [each for each in program.kernels if each.name.startswith("attention_")]


def as_exact(found, function, arguments):
    """As near to the result in double precision as eager is; NaN and infinities where eager has them."""
    wide = [each.double() if each.is_floating_point() else each for each in arguments]
    with torch.no_grad():
        expected, exact = _flatten(function(*arguments)), _flatten(function(*wide))
    for ours, theirs, right in zip(found, expected, exact, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())
        known = ours.isfinite() & right.isfinite()
        if known.any():
            off, eager = ((each.double() - right)[known].abs().max() for each in (ours, theirs))
            assert off <= 1.5 * eager + 1e-5, (off, eager)


def assert_fused(function, *arguments, count=1):
    lowered, inputs = lowered_of(function, arguments)
    program = scheduled(lowered)
    assert len(attention_kernels(program)) == count
    as_exact(run_kernels(program, sources(program), inputs(arguments)), function, arguments)


@interpreted
@pytest.mark.parametrize("name", PROGRAMS)
def test_like_eager(name):
    function, arguments = PROGRAMS[name]
    assert_fused(function, *arguments(), count=2 if name == "twice" else 1)


@interpreted
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("place", range(3), ids=["q", "k", "v"])
def test_special_values(number, place):
    arguments = factors(rows=40, keys=40, inner=16, column=16, dtype=torch.float32)
    arguments[place][0, 0, 3, 2] = number
    for function in (by_hand, divided_last, flex(window, return_lse=True)):
        assert_fused(function, *arguments)


@interpreted
def test_large_scores():
    """Maxima far from 0: what is left of exponentials does not suffer."""
    q, k, v = factors(dtype=torch.float32)
    assert_fused(lambda q, k, v: torch.softmax(q @ k.mT - 1e4, -1) @ v, q, k, v)
    assert_fused(by_hand, 200 * q, k, v)


@interpreted
@pytest.mark.parametrize("place", range(6))
def test_tilings(place):
    arguments = factors(rows=150, keys=150)
    lowered, inputs = lowered_of(flex(window), arguments)
    program = scheduled(lowered)
    made = []
    for kernel in program.kernels:
        tilings = attention_tilings(kernel, TARGET)
        made.append(kernel_source(kernel, TARGET, tiling=tilings[min(place, len(tilings) - 1)] if tilings else None))
    as_exact(run_kernels(program, made, inputs(arguments)), flex(window), arguments)


@interpreted
@pytest.mark.parametrize("function", [by_hand, flex(causal, return_lse=True)], ids=["by_hand", "causal"])
def test_one_text_at_several_lengths(function):
    program = None
    for rows in (100, 37, 200):
        arguments = factors(rows=rows, keys=rows)
        if program is None:
            for each in arguments:
                torch._dynamo.mark_dynamic(each, 2)
            lowered, inputs = lowered_of(function, arguments)
            program = scheduled(lowered)
            (kernel,) = attention_kernels(program)
            assert kernel.sizes
            made = sources(program)
        as_exact(run_kernels(program, made, inputs(arguments)), function, arguments)


def up_to(score, b, h, i, j, last):
    return torch.where(j <= last[b], score, -float("inf"))


def nowhere(score, b, h, i, j):
    return torch.where(j < 0, score, -float("inf"))


def few_heads(q, k, v):
    return flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True, return_lse=True)


SPLIT = {
    "up_to": (flex(up_to, return_lse=True), torch.tensor([5, 1000])),
    "nowhere": (flex(nowhere, return_lse=True),),
    "few_heads": (few_heads,),
}


@interpreted
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", SPLIT)
def test_few_rows_over_parts_of_the_keys(name, rows, monkeypatch):
    monkeypatch.setattr(stage, "FEWEST_ROWS", 64)
    function, *more = SPLIT[name]
    arguments = (*factors(2, 4, rows, 1024), *more)
    lowered, inputs = lowered_of(function, arguments)
    program = scheduled(lowered)
    (kernel,) = attention_kernels(program)
    assert [axis.extent for axis in read_attention(kernel).batch] == [8, 8]
    as_exact(run_kernels(program, sources(program), inputs(arguments)), function, arguments)


@interpreted
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e30], ids=str)
def test_special_values_in_parts_of_the_keys(number, monkeypatch):
    monkeypatch.setattr(stage, "FEWEST_ROWS", 64)
    arguments = factors(2, 2, 1, 1024, 16, 16)
    arguments[1][0, 0, 300, 2] = number
    function = flex(return_lse=True)
    lowered, inputs = lowered_of(function, arguments)
    program = scheduled(lowered)
    assert attention_kernels(program)
    found = run_kernels(program, sources(program), inputs(arguments))
    with torch.no_grad():
        expected = _flatten(function(*arguments))
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())


@pytest.mark.skipif(bool(available()), reason=available())
@pytest.mark.parametrize("arch, shared", [("sm_90", 227), ("sm_80", 163), ("sm_86", 99)])
def test_machine_code(arch, shared, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    q, k, v = (torch.empty(1, 8, 1024, 128, dtype=torch.float16) for _ in range(3))
    (kernel,) = attention_kernels(scheduled(lowered_of(by_hand, (q, k, v))[0]))
    target = replace(TARGET, name=arch, l1_bytes=shared << 10)
    code = worker.compile_text(asdict(kernel_source(kernel, target)))
    assert ("wgmma.mma_async" if arch == "sm_90" else "mma.sync") in code["ptx"]
    assert code["shared_bytes"] <= shared << 10


# -- Keys that a mask leaves ------------------------------------------------------------------------------------------

ROW, KEY, FIRST = Symbol("i1", 0, 63), Symbol("i2", 0, 63), Symbol("first", 0, 63)


def compared(op, left, right):
    side = lambda each: Constant(each, "int64") if isinstance(each, int) else Index(each)
    return Compute(op, (side(left), side(right)), "bool")


def both(op, *args):
    return Compute(op, args, "bool")


CONDITIONS = {
    "causal": compared("ge", ROW, KEY),
    "difference": compared("le", add(KEY, mul(ROW, -1)), 3),
    "window": both("and", compared("ge", ROW, KEY), compared("lt", add(ROW, mul(KEY, -1)), 9)),
    "outside": both("or", compared("gt", KEY, add(ROW, 5)), compared("lt", KEY, 7)),
    "not": both("not", both("or", compared("gt", KEY, ROW), compared("lt", KEY, 7))),
    "diagonal": compared("eq", KEY, ROW),
    "reversed": compared("lt", add(KEY, ROW), 40),
    "steep": compared("gt", add(mul(ROW, 2), 3), KEY),
    "off_diagonal": compared("ne", KEY, ROW),
    "unknown": compared("ge", mul(KEY, 3), ROW),
    "partly_known": both("and", compared("ge", mul(KEY, 3), ROW), compared("ge", ROW, KEY)),
}


def holds(condition, row, key):
    if condition.op in ("and", "or", "not"):
        parts = [holds(arg, row, key) for arg in condition.args]
        return {"and": all(parts), "or": any(parts), "not": not parts[0]}[condition.op]
    left, right = (evaluate(arg.value, {"i1": row, "i2": key}) for arg in condition.args)
    return {"ge": left >= right, "gt": left > right, "le": left <= right, "lt": left < right, "eq": left == right,
            "ne": left != right}[condition.op]  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONS)
def test_bounds_of_keys_by_enumeration(name):
    condition, block = CONDITIONS[name], Block("i1", "i2", FIRST, add(FIRST, 7))
    needed, kept = needed_keys(condition, block), kept_parts(condition, block)
    for first in range(0, 64, 8):
        limits = lambda bound, other: other if bound is None else evaluate(bound, {"first": first})
        inside = range(max(limits(needed.start, 0), 0), max(min(limits(needed.end, 64), 64), 0))
        for key, row in itertools.product(range(64), range(first, first + 8)):
            if holds(condition, row, key):
                assert key in inside
            elif kept is not None and name != "partly_known":
                assert not limits(kept.start, 0) <= key < limits(kept.end, 64)
    assert (kept is None) == (name in ("off_diagonal", "unknown", "diagonal", "outside"))


def test_masks_of_scores():
    lowest, one = Constant(-float("inf"), "float32"), Constant(1.0, "float32")
    condition = CONDITIONS["causal"]
    where = Compute("where", (condition, SCORE, lowest), "float32")
    assert mask_of(where) is condition
    assert mask_of(Compute("add", (where, one), "float32")) is condition
    assert mask_of(Compute("where", (condition, lowest, SCORE), "float32")) == both("not", condition)
    assert mask_of(Compute("add", (SCORE, Compute("where", (condition, one, lowest), "float32")), "float32")) is None
    assert mask_of(Compute("mul", (where, Constant(-1.0, "float32")), "float32")) is None
    assert mask_of(SCORE) is None
    block = Block("i1", "i2", FIRST, add(FIRST, 7))
    assert unmasked(where, block) is SCORE
    partly = Compute("where", (CONDITIONS["partly_known"], SCORE, lowest), "float32")
    assert unmasked(partly, block) == Compute("where", (CONDITIONS["unknown"], SCORE, lowest), "float32")
