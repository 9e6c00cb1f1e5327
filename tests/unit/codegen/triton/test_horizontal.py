"""Kernels that run for many tensors at once: their text in Triton's interpreter, and the launches that fill their tables."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from lampwork.capture.capture import capture
from lampwork.codegen.host import host_source
from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.codegen.triton.compile import _JOB
from lampwork.codegen.triton.horizontal import FILLED, fill_kernel
from lampwork.codegen.triton.launch import from_outside, launch_code
from lampwork.codegen.triton.source import kernel_source
from lampwork.codegen.triton.worker import compile_text
from lampwork.config import Settings
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Launch
from lampwork.lower import lower
from lampwork.runtime.launch.native import LoadedCode
from lampwork.schedule import schedule
from tests.cuda_stand_in import cuda_stand_in
from tests.thresholds import thresholds
from tests.unit.codegen.triton.interpret import available, launch
from tests.unit.codegen.triton.programs import TARGET, assert_like_eager, program_of, sources
from tests.unit.codegen.triton.test_launch import Driver

pytestmark = pytest.mark.skipif(bool(available()), reason=available())

SHAPES = [(3,), (16,), (5, 7), (32, 33), (64, 32), (1000,), (1024,), (1040,), (2, 3, 8), (48,), (160,), (11,), (9, 5),
          (4, 1, 3, 3), (4096,), (208,), (13,), (272,), (15,)]  # fmt: skip


def tensors(dtype=torch.float32, shapes=SHAPES):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def update(scale, *values):
    """Half of the values are momenta of the other half."""
    count = len(values) // 2
    results = []
    for value, momentum in zip(values[:count], values[count:]):
        momentum = momentum * 0.9 + value * scale
        results += [momentum, value - 0.1 * momentum / (momentum.abs().sqrt() + 1e-3)]
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_of_all_sizes(dtype):
    program = assert_like_eager(update, torch.tensor(0.5, dtype=dtype), *tensors(dtype), *tensors(dtype))
    assert [kernel.horizontal for kernel in program.kernels] == [True, True]  # sizes divisible by 16, and others
    assert sum(isinstance(step, Launch) for step in program.steps) == 2


def test_numbers_from_a_list():
    numbers = torch.linspace(-1, 1, len(SHAPES), dtype=torch.float64)
    scaled = lambda numbers, *values: [value * numbers[place].float() for place, value in enumerate(values)]
    program = assert_like_eager(scaled, numbers, *tensors())
    assert [kernel.horizontal for kernel in program.kernels] == [True, True]
    assert [len(kernel.sizes) for kernel in program.kernels] == [2, 2]


def test_more_rows_than_are_looked_at_at_once():
    program = assert_like_eager(lambda *values: [value * 2 + 1 for value in values], *tensors(shapes=[(16,)] * 600))
    assert len(program.kernels) == len(program.steps) == 1


def test_a_large_table_is_made_before_it_is_filled():
    """Rows' tables are buffers as others are: from some size on they have memory of their own."""
    values = tensors(shapes=[(16,)] * 8)
    with cuda_stand_in(), torch.no_grad(), thresholds({"lampwork.schedule.plan.OWN_MEMORY_BYTES": 1024}):
        region = capture(lambda *values: [value * 2 + 1 for value in values], values, {}, Settings())
        program = schedule(lower(prepare(region, Settings()), Settings()), Settings(), TARGET)
    (step,) = program.steps
    assert program.placements[step.table].kind == "extern"
    native = launch_code(program, launch_sequences(program), [*sources(program), fill_kernel(TARGET)])
    text = host_source(program, native)
    place = native.buffer_order.index(step.table)
    assert text.index(f"p[{place}] = e0.data_ptr()") < text.index("run0(")


def test_integers_and_masks():
    values = [torch.arange(size) - size // 2 for size in (16, 32, 48, 64, 80, 96, 112, 128)]
    program = assert_like_eager(lambda *values: [(value > 0, value * 3) for value in values], *values)
    assert all(kernel.horizontal for kernel in program.kernels)


def test_text_is_vectorised_where_sizes_allow_it():
    program = program_of(update, [torch.tensor(0.5), *tensors(), *tensors()])
    narrow, wide = sources(program)
    assert narrow.signature == wide.signature == ("*i64", "i32")
    found = []
    for kernel in (narrow, wide):
        job = {field: getattr(kernel, field) for field in _JOB}
        found.append(compile_text(job)["ptx"].count(".v4."))
    assert found[0] == 0 and found[1] >= 4  # two loads and two stores


def launched(program, pointers):
    """(the driver, kernels) after the program's one sequence ran."""
    kernels = [*(kernel_source(kernel, TARGET) for kernel in program.kernels), fill_kernel(TARGET)]
    native = launch_code(program, launch_sequences(program), kernels)
    driver = Driver(kernels)
    code = LoadedCode(native, driver.addresses())
    table = (ctypes.c_int64 * len(native.buffer_order))(*(pointers[name] for name in native.buffer_order))
    answers = [run(ctypes.addressof(table), 0, 77) for run in code.runs]
    return answers, driver


@pytest.mark.parametrize("count", [8, 39, 40, 41, 300])
def test_tables_are_filled_by_launches(count):
    program = program_of(
        lambda *values: [value * 2 + 1 for value in values], tensors(shapes=[(16 * n + 16,) for n in range(count)])
    )
    (step,) = program.steps
    (kernel,) = program.kernels
    names = list(dict.fromkeys([*step.buffers, step.table]))
    pointers = {name: 4096 * (number + 1) for number, name in enumerate(names)}
    answers, driver = launched(program, pointers)
    assert answers == [0]
    *fills, (function, grid, _, _, _, values) = driver.launches
    assert len(fills) == math.ceil(4 * count / FILLED)
    table = {}
    for filling, one, _, _, _, (address, first, *stored) in fills:
        assert (filling, one, address) == (101, (1, 1, 1), pointers[step.table])
        table.update({first + place: value for place, value in enumerate(stored[:FILLED])})
    assert max(table) < program.buffers[step.table].shape[0]
    column = lambda number: [table[number * count + row] for row in range(count)]
    block = dict(driver.kernels[0].constants)["XBLOCK"]
    programs = [math.ceil(16 * size / block) for size in step.sizes]
    assert column(0) == [sum(programs[:row]) for row in range(count)]
    assert column(1) == list(step.sizes) == [n + 1 for n in range(count)]
    assert column(2) == [pointers[name] for name in step.buffers[::2]]
    assert column(3) == [pointers[name] for name in step.buffers[1::2]]
    assert (function, grid, values[:2]) == (100, (sum(programs), 1, 1), (pointers[step.table], count))


def test_the_fill_kernel_stores_its_arguments():
    table = torch.full((FILLED + 9,), -1)
    launch(fill_kernel(TARGET), [table], {"first": 5, **{f"a{n}": 2**40 + n for n in range(FILLED)}})
    assert table.tolist() == [-1] * 5 + [2**40 + n for n in range(FILLED)] + [-1] * 4


def test_pointers_from_outside_are_checked_where_accesses_are_wide():
    program = program_of(
        lambda scale, *values: [value * scale for value in values], [torch.tensor(2.0), *tensors(shapes=[(32,)] * 8)]
    )
    kernels = [*sources(program), fill_kernel(TARGET)]
    (sequence,) = launch_sequences(program)
    outside = from_outside(program, sequence, kernels)
    assert set(outside) == {name for name in program.inputs if program.buffers[name].shape == (32,)}
    program = program_of(lambda *values: [value * 2 for value in values], tensors(shapes=[(33,)] * 8))
    assert from_outside(program, launch_sequences(program)[0], [*sources(program), fill_kernel(TARGET)]) == ()
