"""Shapes of kernel trees against the slow interpreter of `ir.kernel_interpret`, on every machine level."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from lampwork.ir.kernel_interpret import run_kernel
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Compute,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Scratch,
    Store,
)  # fmt: skip
from lampwork.ir.size import Symbol, floordiv, minimum, mod

from .helpers import TARGETS, compiled, constant, execute, f32, local, parameter, run, sample, symbol


def check(kernel, tensors, target, threads=1, sizes=(), close=False):
    """Runs `kernel` both ways on the same memory."""
    expected = [tensors[p.name].tolist() for p in kernel.parameters]
    run_kernel(kernel, expected, dict(zip(kernel.sizes, sizes)))
    run(kernel, tensors, target, threads, sizes)
    for p, cells in zip(kernel.parameters, expected):
        if p.access != "read":
            wanted = torch.tensor(cells, dtype=tensors[p.name].dtype)
            options = {} if close else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(tensors[p.name], wanted, equal_nan=True, **options)


def matrix(rows, columns, seed=0):
    """Small whole numbers, whose sums are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, (rows * columns,), generator=generator).float()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [1, 3, 7, 16, 33, 64, 100, 257])
@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_row_reduction(op, columns, target):
    rows = 5
    i, j = symbol("i0", rows), symbol("i1", columns)
    inner = Loop(Axis("i1", columns), (Accumulate("a0", Load("b0", (i * columns + j,), "float32")),), "vector")
    body = (Accumulator("a0", op, "float32"), inner, Store("b1", (i,), local("a0")))
    kernel = Kernel(
        "rows", (parameter("b0", "float32", rows * columns), parameter("b1", "float32", rows, "write")),
        (Loop(Axis("i0", rows), body, "parallel"),),
    )  # fmt: skip
    values = (
        matrix(rows, columns)
        if op != "prod"
        else torch.ones(rows * columns) * 2.0 ** (torch.arange(rows * columns) % 3 - 1)
    )
    if op in ("max", "min"):
        values[columns] = math.nan
    check(kernel, {"b0": values, "b1": torch.zeros(rows)}, target, threads=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [5, 40])
def test_column_reduction_keeps_one_accumulator_per_lane(columns, target):
    rows = 9
    i, j = symbol("i1", rows), symbol("i0", columns)
    inner = Loop(Axis("i1", rows), (Accumulate("a0", Load("b0", (i * columns + j,), "float32")),))
    body = (Accumulator("a0", "sum", "float32"), inner, Store("b1", (j,), local("a0")))
    kernel = Kernel(
        "columns", (parameter("b0", "float32", rows * columns), parameter("b1", "float32", columns, "write")),
        (Loop(Axis("i0", columns), body, "vector"),),
    )  # fmt: skip
    check(kernel, {"b0": matrix(rows, columns), "b1": torch.zeros(columns)}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("case", ["plain", "ties", "nan", "infinite"])
def test_argmax(op, case, target):
    count = 75
    j = symbol("i0", count)
    values = torch.randn(count, generator=torch.Generator().manual_seed(1))
    if case == "ties":
        values = values.round()
    elif case == "nan":
        values[[40, 70]] = math.nan
    elif case == "infinite":
        values[:] = math.inf if op == "argmin" else -math.inf
    inner = Loop(Axis("i0", count), (Accumulate("a0", Load("b0", (j,), "float32"), j),), "vector")
    body = (Accumulator("a0", op, "float32"), inner, Store("b1", (0,), local("a0", "int64")))
    kernel = Kernel("arg", (parameter("b0", "float32", count), parameter("b1", "int64", 1, "write")), body)
    check(kernel, {"b0": values, "b1": torch.zeros(1, dtype=torch.int64)}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float64", "int8"])
def test_reductions_of_other_types(dtype, target):
    count = 77
    j = symbol("i0", count)
    ops = ["any", "all", "max", "min"] if dtype == "bool" else ["sum", "max", "min"]
    for op in ops:
        inner = Loop(Axis("i0", count), (Accumulate("a0", Load("b0", (j,), dtype)),), "vector")
        body = (Accumulator("a0", op, dtype), inner, Store("b1", (0,), local("a0", dtype)))
        kernel = Kernel("reduce", (parameter("b0", dtype, count), parameter("b1", dtype, 1, "write")), body)
        values = sample(dtype, count, 3)
        if dtype == "float64":
            values = values.nan_to_num(0, 0, 0).round()
        check(kernel, {"b0": values, "b1": torch.zeros(1, dtype=values.dtype)}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "uint32", "float32", "float64"])
def test_what_a_reduction_begins_with_is_not_in_its_result(dtype, target):
    """All elements lie on one side of any number that it could begin with, in one lane or in all."""
    numbers = [5, 100] if dtype.startswith("u") else [-100, -5, 5, 100]
    for number, count in itertools.product(numbers, (1, 19)):
        j = symbol("i0", count)
        body = []
        for place, op in enumerate(("max", "min")):
            fold = Accumulate(f"a{place}", Load("b0", (j,), dtype))
            body += [
                Accumulator(f"a{place}", op, dtype), Loop(Axis("i0", count), (fold,), "vector"),
                Store("b1", (place,), local(f"a{place}", dtype)),
            ]  # fmt: skip
        parameters = (parameter("b0", dtype, count), parameter("b1", dtype, 2, "write"))
        values, found = (
            torch.full((count,), number, dtype=getattr(torch, dtype)),
            torch.zeros(2, dtype=getattr(torch, dtype)),
        )
        run(Kernel("extremes", parameters, tuple(body)), {"b0": values, "b1": found}, target)
        assert found.tolist() == [number, number]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [10, 64, 77])
def test_softmax_in_one_kernel(columns, target):
    rows = 3
    i, j, k, m = (symbol(f"i{n}", rows if n == 0 else columns) for n in range(4))
    load = lambda index: Load("b0", (i * columns + index,), "float32")
    body = (
        Scratch("s0", "float32", columns),
        Accumulator("a0", "max", "float32"),
        Loop(Axis("i1", columns), (Accumulate("a0", load(j)),), "vector"),
        Accumulator("a1", "sum", "float32"),
        Loop(Axis("i2", columns), (
            Let("t0", f32("exp", f32("sub", load(k), local("a0")))),
            Store("s0", (k,), local("t0")),
            Accumulate("a1", local("t0")),
        ), "vector"),
        Let("t1", f32("reciprocal", local("a1"))),
        Loop(Axis("i3", columns), (
            Store("b1", (i * columns + m,), f32("mul", Load("s0", (m,), "float32"), local("t1"))),
        ), "vector"),
    )  # fmt: skip
    kernel = Kernel(
        "softmax", (parameter("b0", "float32", rows * columns), parameter("b1", "float32", rows * columns, "write")),
        (Loop(Axis("i0", rows), body, "parallel"),),
    )  # fmt: skip
    tensors = {"b0": torch.randn(rows * columns), "b1": torch.zeros(rows * columns)}
    check(kernel, tensors, target, threads=2, close=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_strides_reversal_and_division(dtype, target):
    count = 48
    i = symbol("i0", count)
    indices = {
        "strided": i * 3, "reversed": 200 - i, "transposed": mod(i, 6) * 8 + floordiv(i, 6), "blocks": floordiv(i, 16) * 40 + mod(i, 16),
        "uniform": 7, "back two": 150 - i * 2,
    }  # fmt: skip
    for name, index in indices.items():
        body = (Loop(Axis("i0", count), (Store("b1", (i,), Load("b0", (index,), dtype)),), "vector"),)
        kernel = Kernel(name, (parameter("b0", dtype, 201), parameter("b1", dtype, count, "write")), body)
        values = sample(dtype, 201, 5)
        check(kernel, {"b0": values, "b1": torch.zeros(count, dtype=values.dtype)}, target)
        # The same places written.
        places = index if not isinstance(index, int) else i
        body = (Loop(Axis("i0", count), (Store("b1", (places,), Load("b0", (i,), dtype)),), "vector"),)
        kernel = Kernel(name, (parameter("b0", dtype, count), parameter("b1", dtype, 201, "write")), body)
        check(kernel, {"b0": values[:count].clone(), "b1": torch.zeros(201, dtype=values.dtype)}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_masked_loads(dtype, target):
    """Padding: lanes outside read nothing. The buffer's neighbours are unmapped as far as the kernel knows."""
    rows, columns = 4, 23
    i, j = symbol("i0", rows), symbol("i1", columns)
    inside_column = Compute("lt", (Index(j), constant(20, "int64")), "bool")
    inside_row = Compute("ge", (Index(i), constant(1, "int64")), "bool")
    for mask in (inside_column, inside_row, Compute("and", (inside_column, inside_row), "bool")):
        value = Load("b0", ((i - 1) * 20 + j,), dtype, (), mask, 5)
        body = (
            Loop(Axis("i0", rows), (Loop(Axis("i1", columns), (Store("b1", (i * columns + j,), value),), "vector"),)),
        )
        kernel = Kernel("pad", (parameter("b0", dtype, 80), parameter("b1", dtype, rows * columns, "write")), body)
        values = sample(dtype, 80, 6)
        # Where the row is outside but the mask does not say so, the interpreter would read before the buffer.
        if mask is inside_column:
            continue
        padded = torch.cat([values, values])
        check(kernel, {"b0": padded, "b1": torch.zeros(rows * columns, dtype=values.dtype)}, target)


@pytest.mark.parametrize("target", TARGETS)
def test_embedding_rows_and_gathered_elements(target):
    rows, columns = 6, 19
    i, j = symbol("i0", rows), symbol("i1", columns)
    row = Symbol("q0")
    value = Load("b0", (row * columns + j,), "float32", (("q0", Load("b2", (i,), "int64")),))
    body = (
        Loop(
            Axis("i0", rows),
            (Loop(Axis("i1", columns), (Store("b1", (i * columns + j,), value),), "vector"),),
            "parallel",
        ),
    )
    parameters = (
        parameter("b0", "float32", 10 * columns), parameter("b1", "float32", rows * columns, "write"), parameter("b2", "int64", rows),
    )  # fmt: skip
    tensors = {
        "b0": torch.randn(10 * columns),
        "b1": torch.zeros(rows * columns),
        "b2": torch.tensor([9, 0, 3, 3, 1, 8]),
    }
    check(Kernel("embedding", parameters, body), tensors, target)
    element = Load("b0", (row,), "float32", (("q0", Load("b2", (j,), "int32")),))
    body = (Loop(Axis("i1", columns), (Store("b1", (j,), element),), "vector"),)
    parameters = (
        parameter("b0", "float32", 50),
        parameter("b1", "float32", columns, "write"),
        parameter("b2", "int32", columns),
    )
    tensors = {
        "b0": torch.randn(50),
        "b1": torch.zeros(columns),
        "b2": torch.randint(0, 50, (columns,), dtype=torch.int32),
    }
    check(Kernel("take", parameters, body), tensors, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "int16"])
@pytest.mark.parametrize("kind", ["serial", "vector", "parallel"])
def test_scattered_additions(kind, dtype, target):
    count = 90
    i = symbol("i0", count)
    q = Symbol("q0")
    store = Store("b1", (q,), Load("b0", (i,), dtype), "add", (("q0", Load("b2", (i,), "int64")),))
    kernel = Kernel(
        "scatter", (parameter("b0", dtype, count), parameter("b1", dtype, 7, "readwrite"), parameter("b2", "int64", count)),
        (Loop(Axis("i0", count), (store,), kind),),
    )  # fmt: skip
    values = torch.randint(-3, 4, (count,)).to(getattr(torch, dtype))
    tensors = {"b0": values, "b1": torch.zeros(7, dtype=values.dtype), "b2": torch.randint(0, 7, (count,))}
    check(kernel, tensors, target, threads=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [0, 1, 15, 64, 203])
def test_sizes_known_at_run_time(size, target):
    n = Symbol("s0", 0)
    i, j = Symbol("i0", 0), Symbol("i1", 0)
    value = f32("add", Load("b0", (i * n + j,), "float32"), Load("b0", (j,), "float32"))
    inner = Loop(Axis("i1", n), (Store("b1", (i * n + j,), value),), "vector")
    rows = 3
    kernel = Kernel(
        "dynamic",
        (parameter("b0", "float32", rows * n), parameter("b1", "float32", rows * n, "write")),
        (Loop(Axis("i0", rows), (inner,), "parallel"),), ("s0",),
    )  # fmt: skip
    tensors = {"b0": matrix(rows, max(size, 1)), "b1": torch.zeros(rows * max(size, 1))}
    check(kernel, tensors, target, threads=2, sizes=(size,))


@pytest.mark.parametrize("target", TARGETS)
def test_conditions(target):
    count = 50
    i = symbol("i0", count)
    positive = Compute("gt", (Load("b0", (i,), "float32"), constant(0.0)), "bool")
    store = Store("b1", (i,), f32("sqrt", Load("b0", (i,), "float32")))
    fold = Accumulate("a0", Load("b0", (i,), "float32"))
    for kind in ("vector", "serial"):
        body = (
            Accumulator("a0", "sum", "float32"),
            Loop(Axis("i0", count), (If(positive, (store, fold)),), kind),
            If(Compute("gt", (local("a0"), constant(-1.0)), "bool"), (Store("b2", (0,), local("a0")),)),
        )
        parameters = (
            parameter("b0", "float32", count),
            parameter("b1", "float32", count, "write"),
            parameter("b2", "float32", 1, "write"),
        )
        tensors = {"b0": matrix(1, count), "b1": torch.zeros(count), "b2": torch.zeros(1)}
        check(Kernel("conditions", parameters, body), tensors, target)


@pytest.mark.parametrize("target", TARGETS)
def test_running_sum_unrolled_and_serial(target):
    for kind in ("serial", "unroll"):
        i = symbol("i0", 9)
        body = (
            Accumulator("a0", "sum", "float32"),
            Loop(Axis("i0", 9), (Accumulate("a0", Load("b0", (i,), "float32")), Store("b1", (i,), local("a0"))), kind),
        )
        kernel = Kernel("scan", (parameter("b0", "float32", 9), parameter("b1", "float32", 9, "write")), body)
        check(kernel, {"b0": matrix(1, 9), "b1": torch.zeros(9)}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("grain", [1, 4, 100])
def test_nested_parallel_loops_and_what_they_capture(grain, target):
    a, b, c = 5, 6, 21
    i, j, k = symbol("i0", a), symbol("i1", b), symbol("i2", c)
    value = f32("mul", Load("b0", (i * b * c + j * c + k,), "float32"), f32("add", local("t0"), local("a0")))
    inner = Loop(Axis("i2", c), (Store("b1", (i * b * c + j * c + k,), value),), "vector")
    body = (
        Let("t0", Load("b0", (3,), "float32")),
        Accumulator("a0", "sum", "float32"),
        Loop(Axis("i3", 4), (Accumulate("a0", Load("b0", (symbol("i3", 4),), "float32")),), "vector"),
        Scratch("s0", "float32", 4),
        Store("s0", (2,), local("a0")),
        Loop(Axis("i0", a), (Loop(Axis("i1", b), (inner,), "parallel", grain),), "parallel"),
        Loop(Axis("i4", b), (Store("b2", (symbol("i4", b),), Load("s0", (2,), "float32")),), "parallel"),
    )
    parameters = (
        parameter("b0", "float32", a * b * c), parameter("b1", "float32", a * b * c, "write"), parameter("b2", "float32", b, "write"),
    )  # fmt: skip
    tensors = {"b0": matrix(a * b, c), "b1": torch.zeros(a * b * c), "b2": torch.zeros(b)}
    check(Kernel("nested", parameters, body), tensors, target, threads=2)


@pytest.mark.parametrize("target", TARGETS)
def test_reads_and_writes_of_one_buffer_stay_in_order(target):
    count = 70
    i = symbol("i0", count)
    body = (
        Loop(Axis("i0", count), (Store("b0", (i,), f32("add", Load("b0", (i,), "float32"), constant(1.0))),), "vector"),
        Loop(Axis("i0", count), (Store("b1", (i,), Load("b0", (count - 1 - i,), "float32")),), "vector"),
    )
    kernel = Kernel(
        "order", (parameter("b0", "float32", count, "readwrite"), parameter("b1", "float32", count, "write")), body
    )
    check(kernel, {"b0": matrix(1, count), "b1": torch.zeros(count)}, target)


@pytest.mark.parametrize("target", TARGETS)
def test_memory_that_is_not_aligned(target):
    count = 100
    i = symbol("i0", count)
    body = (Loop(Axis("i0", count), (Store("b1", (i,), f32("neg", Load("b0", (i,), "float32"))),), "vector"),)
    kernel = Kernel("neg", (parameter("b0", "float32", count), parameter("b1", "float32", count, "write")), body)
    native = compiled(kernel, target)
    for shift in range(4):
        source, result = torch.randn(count + 4), torch.zeros(count + 4)
        execute(native, {"b0": source[shift:], "b1": result[shift:]})
        assert torch.equal(result[shift : shift + count], -source[shift : shift + count])


@pytest.mark.parametrize("target", TARGETS)
def test_streaming_stores(target):
    """Results larger than the last cache bypass it."""
    rows, columns = 3, 6 << 20
    i, j = symbol("i0", rows), symbol("i1", columns)
    store = Store("b1", (i * columns + j,), f32("neg", Load("b0", (j,), "float32")))
    body = (Loop(Axis("i0", rows), (Loop(Axis("i1", columns), (store,), "vector"),), "parallel"),)
    parameters = (
        parameter("b0", "float32", columns, "read", True),
        parameter("b1", "float32", rows * columns, "write", True),
    )
    native = compiled(Kernel("stream", parameters, body), target, l3_bytes=32 << 20)
    assert "!nontemporal" in native.source and "sfence" in native.source
    source, result = torch.randn(columns), torch.zeros(rows * columns)
    execute(native, {"b0": source, "b1": result}, threads=2)
    assert torch.equal(result, (-source).repeat(rows))


@pytest.mark.parametrize("target", TARGETS)
def test_large_scratch_memory(target):
    numel = 200_000
    i = symbol("i0", numel)
    body = (
        Scratch("s0", "float32", numel),
        Loop(Axis("i0", numel), (Store("s0", (i,), Compute("cast", (Index(i),), "float32")),), "vector"),
        Loop(Axis("i0", numel), (Store("b0", (i,), Load("s0", (numel - 1 - i,), "float32")),), "vector"),
    )
    result = torch.zeros(numel)
    run(Kernel("scratch", (parameter("b0", "float32", numel, "write"),), body), {"b0": result}, target)
    assert torch.equal(result, torch.arange(numel).flip(0).float())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(32, 48), (20, 35), (16, 16), (64, 33)])
@pytest.mark.parametrize("order", ["rows inside", "columns inside", "both parallel"])
def test_transposed_tiles(order, shape, dtype, target):
    """`o[i, j] = x[j, i]` in tiles of 16 by 16, the last ones smaller, walked in any order."""
    rows, columns = shape
    row_tiles, column_tiles = -(-rows // 16), -(-columns // 16)
    p, q = symbol("i0", row_tiles), symbol("i1", column_tiles)
    a, b = symbol("i2", 16), symbol("i3", 16)
    i, j = p * 16 + a, q * 16 + b
    value = Load("b0", (j * rows + i,), dtype)
    inner = Loop(Axis("i3", minimum(16, columns - q * 16)), (Store("b1", (i * columns + j,), value),), "vector")
    tile = Loop(Axis("i2", minimum(16, rows - p * 16)), (inner,))
    over = [Axis("i1", column_tiles), Axis("i0", row_tiles)]
    outer, inside = over if order == "rows inside" else over[::-1]
    kind = "parallel" if order == "both parallel" else "serial"
    body = (Loop(outer, (Loop(inside, (tile,), kind),), "parallel"),)
    count = rows * columns
    kernel = Kernel("transpose", (parameter("b0", dtype, count), parameter("b1", dtype, count, "write")), body)
    values = sample(dtype, count, 5)
    tensors = {"b0": values, "b1": torch.zeros(count, dtype=values.dtype)}
    check(kernel, tensors, target, threads=2)
    assert torch.equal(tensors["b1"].view(rows, columns).nan_to_num(), values.view(columns, rows).t().nan_to_num())
