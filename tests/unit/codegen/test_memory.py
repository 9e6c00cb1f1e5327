"""What kernels touch of memory: nothing where a mask is off, nothing but the places of their stores, no addition halfway."""

from __future__ import annotations

import re

import pytest
import torch

from lampwork.ir.loops import Axis, Compute, Index, Kernel, Load, Loop, Store
from lampwork.ir.size import Symbol, evaluate, floordiv, mod

from .helpers import TARGETS, compiled, constant, execute, parameter, sample, symbol
from .test_programs import Memory


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", ["a row", "every second", "reversed", "one"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_where_the_mask_is_off_memory_is_not_touched(dtype, place, target):
    """The last row lies where nothing may be read; the condition that leaves it out is of the row alone, or of some
    of its columns."""
    rows, columns = 4, 23
    i, j = symbol("i0", rows), symbol("i1", columns)
    index = {
        "a row": i * columns + j, "every second": (i * columns + j) * 2, "reversed": i * columns + (columns - 1) - j,
        "one": i,
    }[place]  # fmt: skip
    above = Compute("lt", (Index(i), constant(rows - 1, "int64")), "bool")
    some = Compute("ge", (Index(j), constant(3, "int64")), "bool")
    numel = {"every second": 2, "one": 1 / columns}.get(place, 1) * (rows - 1) * columns
    other = True if dtype == "bool" else 5
    values = sample(dtype, 200, 6)[: round(numel)]
    memory = Memory(len(values), values.numpy().dtype, tight=True)
    memory.cells[:] = values.numpy()
    at = torch.tensor([[evaluate(index, {"i0": a, "i1": b}) for b in range(columns)] for a in range(rows - 1)])
    for mask in (above, Compute("and", (above, some), "bool"), Compute("and", (some, above), "bool")):
        store = Store("b1", (i * columns + j,), Load("b0", (index,), dtype, (), mask, other))
        # Parallel: a compiler that knew the row would drop its loads.
        body = (Loop(Axis("i0", rows), (Loop(Axis("i1", columns), (store,), "vector"),), "parallel"),)
        parameters = (parameter("b0", dtype, len(values)), parameter("b1", dtype, rows * columns, "write"))
        found = torch.zeros(rows, columns, dtype=values.dtype)
        execute(
            compiled(Kernel("masked", parameters, body), target), {"b0": torch.from_numpy(memory.cells), "b1": found}
        )
        expected = torch.cat([values[at], torch.full((1, columns), other, dtype=values.dtype)])
        if mask is not above:
            expected[:, :3] = other
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("step", [1, 2, -1])
def test_a_row_s_condition_is_in_the_masks_of_its_loads(step):
    """LLVM may make any load that its mask lets it make, whatever becomes of the value. The rest of a row is masked."""
    i, j = symbol("i0", 4), symbol("i1", 23)
    above = Compute("lt", (Index(i), constant(3, "int64")), "bool")
    store = Store("b1", (i * 23 + j,), Load("b0", (i * 50 + j * step + 23,), "float32", (), above, 5))
    body = (Loop(Axis("i0", 4), (Loop(Axis("i1", 23), (store,), "vector"),)),)
    parameters = (parameter("b0", "float32", 250), parameter("b1", "float32", 92, "write"))
    source = compiled(Kernel("masked", parameters, body), "avx512").source
    loads = re.findall(r"call .*@llvm\.masked\.(?:load|gather)\..*", source)
    assert loads and not [each for each in loads if "i1 true" in each]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool"])
@pytest.mark.parametrize("count", [1, 3, 19, 33])
def test_nothing_but_its_places_is_written(count, dtype, target):
    i = symbol("i0", count)
    values = sample(dtype, 64, 5)[:count]
    for index in (i, count - 1 - i, i * 3, count * 2 - i * 2, mod(i, 4) * count + floordiv(i, 4)):
        store = Store("b1", (index,), Load("b0", (i,), dtype))
        parameters = (parameter("b0", dtype, count), parameter("b1", dtype, 4 * count, "write"))
        native = compiled(Kernel("places", parameters, (Loop(Axis("i0", count), (store,), "vector"),)), target)
        memory = torch.ones(4 * count + 256, dtype=values.dtype)
        expected = memory.clone()
        for k in range(count):
            expected[128 + evaluate(index, {"i0": k})] = values[k]
        execute(native, {"b0": values, "b1": memory[128:]})
        torch.testing.assert_close(memory, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int8", "uint16"])
def test_additions_of_threads_are_atomic(dtype):
    """What two threads add to one element is not lost: no additions in parallel loops are loads and stores."""
    i, q = symbol("i0", 90), Symbol("q0")
    store = Store("b1", (q,), Load("b0", (i,), dtype), "add", (("q0", Load("b2", (i,), "int64")),))
    parameters = (parameter("b0", dtype, 90), parameter("b1", dtype, 7, "readwrite"), parameter("b2", "int64", 90))
    for kind, is_atomic in (("parallel", True), ("serial", False)):
        source = compiled(Kernel("scatter", parameters, (Loop(Axis("i0", 90), (store,), kind),)), TARGETS[0]).source
        assert ("atomicrmw" in source or "cmpxchg" in source) == is_atomic
