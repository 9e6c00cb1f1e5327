"""Generated programs, scheduled for a GPU, as Triton text in Triton's interpreter: results are what their nests say."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings

from lampwork.codegen.triton import tiles
from lampwork.codegen.triton.source import kernel_source
from lampwork.ir.loops import storage_numel
from lampwork.ir.program import Launch, Program
from lampwork.ir.size import Symbol, evaluate
from tests.unit.codegen.triton.interpret import available, launch
from tests.unit.codegen.triton.programs import TARGET
from tests.unit.schedule.programs import Graph, assert_same, op
from tests.unit.schedule.programs import _fill as fill
from tests.unit.schedule.test_fuzz import COMMON, programs
from tests.unit.schedule.test_tiles import eager_to_split

pytestmark = pytest.mark.skipif(bool(available()), reason=available())

FEW = {**COMMON, "max_examples": 60}


@contextmanager
def small_tiles():
    """Limits so low that tiny rows are folded block by block, and tiny tensors transposed in tiles."""
    names = ("ROW_BLOCK", "WHOLE_ROW", "COLUMN_ELEMENTS", "COLUMN_BYTES", "COLUMN_TURN", "TILE_BYTES",
             "TRANSPOSED_SIDE_BYTES", "SHORTEST_ROW", "LONGEST_UNROLLED", "LONG_INNER_ROW", "LONGEST_BLOCK")  # fmt: skip
    saved = {name: getattr(tiles, name) for name in names}
    values = (4, ((1 << 30, 4),), 16, 8, 16, 32, 16, 3, 0, 3, 16)
    try:
        for name, value in zip(names, values, strict=True):
            setattr(tiles, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(tiles, name, value)


def run(program: Program, inputs, sizes=None) -> dict[str, list]:
    """As `tests.unit.schedule.programs.run_program`, with kernels as Triton text."""
    memory: dict[str, torch.Tensor] = {}

    def place(name: str) -> torch.Tensor:
        if name not in memory:
            buffer = program.buffers[name]
            numel = evaluate(storage_numel(buffer), sizes or {})
            dtype = getattr(torch, buffer.dtype)
            memory[name] = torch.full((numel,), float("nan") if dtype.is_floating_point else 77, dtype=dtype)
        return memory[name]

    for name in program.inputs:
        if name in program.buffers:
            cells = place(name).tolist()
            fill(cells, program.buffers[name], inputs[name], sizes)
            memory[name] = torch.tensor(cells, dtype=memory[name].dtype)
    for step in program.steps:
        if isinstance(step, Launch):
            kernel = program.kernels[step.kernel]
            values = {name: evaluate(size, sizes or {}) for name, size in zip(kernel.sizes, step.sizes)}
            launch(kernel_source(kernel, TARGET), [place(name) for name in step.buffers], values)
        else:
            place(step.outputs[0]).copy_(2 * place(step.args[0].buffer))
    return {name: tensor.tolist() for name, tensor in memory.items()}


@settings(**FEW)
@given(programs())
def test_programs_compute_what_their_nests_say(lowered):
    assert_same(lowered, target=TARGET, run_program=run)


@settings(**FEW)
@given(programs(long_axis=12))
def test_blocks_and_stages_too(lowered):
    with eager_to_split(), small_tiles():
        assert_same(lowered, target=TARGET, run_program=run)


@pytest.mark.slow
@settings(**{**COMMON, "max_examples": 400, "derandomize": False})
@given(programs(long_axis=9))
def test_many_programs(lowered):
    with eager_to_split(), small_tiles():
        assert_same(lowered, target=TARGET, run_program=run)


@pytest.mark.parametrize("extents", [(1, 5), (3, 700), (40, 33)])
def test_sizes_known_at_run_time(extents):
    """Rows and columns are arguments of the kernel; so are the strides they make."""
    n, m = Symbol("s0", 1, 1 << 20), Symbol("s1", 1, 1 << 10)
    g = Graph(("s0", "s1"))
    x = g.input((n, m))
    top = g.reduce("max", (n,), (m,), lambda i, r: g.load(x, i, r))
    y = g.pointwise((n, m), lambda i, j: op("sub", g.load(x, i, j), g.load(top, i)))
    z = g.pointwise((m, n), lambda i, j: g.load(x, j, i))
    sums = g.reduce("sum", (m,), (n,), lambda i, r: g.load(x, r, i))
    assert_same(g.finish(y, z, sums), sizes=dict(zip(("s0", "s1"), extents)), target=TARGET, run_program=run)
