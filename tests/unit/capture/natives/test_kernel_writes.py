"""What kernels of Triton write, out of Triton's own intermediate code: no GPU is needed for that."""

from __future__ import annotations

import pytest
import torch

from lampwork import _torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def store(pointer, value, mask):
    tl.store(pointer, value, mask=mask)


@triton.jit
def first_of(pointer, other):
    return pointer, other


@triton.jit
def by_helpers(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    places, _ = first_of(out + at, y + at)
    store(places, tl.load(x + at, mask=at < n) + tl.sum(tl.load(y + at, mask=at < n), 0), at < n)


@triton.jit
def in_loops(a, b, index, flag, n, BLOCK: tl.constexpr):
    read, written = a + tl.arange(0, BLOCK), b + tl.arange(0, BLOCK)
    for step in range(0, n):
        value = tl.load(read + tl.load(index + step))
        tl.store(written + tl.load(index + step), value)
        read += BLOCK
        written += BLOCK
    if flag is not None:
        tl.atomic_add(flag, 1)


@triton.jit
def by_branches(a, b, c, d, n, BLOCK: tl.constexpr):
    if n > 5:
        return
    chosen = a if n == 1 else b
    while n < 10:
        n += 1
        tl.store(chosen, 1.0)
    if BLOCK == 4:
        tl.atomic_cas(d, 0, 1)
    tl.store(b, tl.load(c))


@triton.jit
def by_blocks(a, b, BLOCK: tl.constexpr):
    read = tl.make_block_ptr(a, (BLOCK,), (1,), (0,), (BLOCK,), (0,))
    written = tl.make_block_ptr(b, (BLOCK,), (1,), (0,), (BLOCK,), (0,))
    tl.store(tl.advance(written, (0,)), tl.load(read))


@triton.jit
def by_assembly(a, b, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.inline_asm_elementwise("st.global.b32 [$1], 0; mov.b32 $0, 0;", "=r,l", [b + at], tl.int32, False, 1)
    tl.store(b + at, tl.load(a + at))


@triton.jit
def by_numbers(addresses, BLOCK: tl.constexpr):
    tl.store(tl.load(addresses).to(tl.pointer_type(tl.float32)), 1.0)


@triton.jit
def of_pairs(pair, out, BLOCK: tl.constexpr):
    tl.store(out, tl.load(pair[0]))


FLOATS, INTEGERS = torch.empty(0), torch.empty(0, dtype=torch.int64)


@pytest.mark.parametrize(
    "kernel, given, written",
    [
        (by_helpers, {"x": FLOATS, "y": FLOATS, "out": FLOATS, "n": 5, "BLOCK": 16}, {"out"}),
        (in_loops, {"a": FLOATS, "b": FLOATS, "index": INTEGERS, "flag": None, "n": 2, "BLOCK": 16}, {"b"}),
        (
            in_loops,
            {"a": FLOATS, "b": FLOATS, "index": INTEGERS, "flag": INTEGERS, "n": 2, "BLOCK": 16},
            {"b", "flag"},
        ),
        (by_branches, {"a": FLOATS, "b": FLOATS, "c": FLOATS, "d": INTEGERS, "n": 2, "BLOCK": 16}, {"a", "b"}),
        (
            by_branches,
            {"a": FLOATS, "b": FLOATS, "c": FLOATS, "d": torch.empty(0, dtype=torch.int32), "n": 2, "BLOCK": 4},
            {"a", "b", "d"},
        ),
        (by_blocks, {"a": FLOATS, "b": FLOATS, "BLOCK": 16}, {"b"}),
        (by_assembly, {"a": FLOATS, "b": FLOATS, "BLOCK": 16}, {"b"}),
        (of_pairs, {"pair": (FLOATS, FLOATS), "out": FLOATS, "BLOCK": 16}, None),
        (by_helpers, {"x": 1.5, "y": FLOATS, "out": FLOATS, "n": 5, "BLOCK": 16}, None),
    ],
)
def test_arguments_that_are_written(monkeypatch, kernel, given, written):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert _torch.written_by(kernel, given) == written


def test_pointers_out_of_memory(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(_torch.Elsewhere):
        _torch.written_by(by_numbers, {"addresses": INTEGERS, "BLOCK": 1})
