"""Generated programs, scheduled and compiled, against their nests run one by one. No torch.

Inputs end where readable memory ends, so that a vector that reads past its buffer faults.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lampwork.codegen.generate import generate
from lampwork.codegen.target import make_target
from lampwork.config import Settings
from lampwork.ir.interpret import array_dtype
from lampwork.ir.loops import storage_numel
from lampwork.ir.program import Launch
from lampwork.ir.size import evaluate
from lampwork.runtime.launch.native import LoadedCode
from tests.unit.schedule.programs import random_inputs, run_nests, scheduled
from tests.unit.schedule.test_fuzz import eager_to_split, programs

from .helpers import TARGETS

EXAMPLES = int(os.environ.get("LAMPWORK_FUZZ_EXAMPLES", "25"))
PAGE = mmap.PAGESIZE
_protect = ctypes.CDLL(None, use_errno=True).mprotect


class Memory:
    """`numel` elements; `tight`: the byte after the last one may not be touched, else the first is 64-byte aligned."""

    def __init__(self, numel: int, dtype: np.dtype, tight: bool) -> None:
        size = numel * dtype.itemsize
        pages = -(-max(size, 1) // PAGE)
        self.map = mmap.mmap(-1, (pages + 1) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        assert _protect(ctypes.c_void_p(base + pages * PAGE), ctypes.c_size_t(PAGE), 0) == 0
        start = pages * PAGE - (size if tight else -(-size // 64) * 64)
        self.address = base + start
        self.cells = np.frombuffer(self.map, dtype, numel, start)


def run_native(program, inputs, sizes, target: str, threads: int) -> dict[str, np.ndarray]:
    """Flat buffers after running the program's machine code. Externs double their first argument."""
    native = generate(program, Settings(), make_target(target, threads))
    code = LoadedCode(native)
    memory = {}
    for name, buffer in program.buffers.items():
        numel = evaluate(storage_numel(buffer), sizes)
        dtype = array_dtype(buffer.dtype)
        memory[name] = Memory(numel, dtype, tight=program.placements[name].kind == "input")
        if dtype.kind == "f":
            memory[name].cells[:] = np.nan
    for name in program.inputs:
        if name in memory:
            strides = [evaluate(stride, sizes) for stride in program.buffers[name].strides]
            for place in np.ndindex(*inputs[name].shape):
                memory[name].cells[sum(p * s for p, s in zip(place, strides))] = inputs[name][place]
    pointers = (ctypes.c_void_p * max(len(native.buffer_order), 1))(*(memory[n].address for n in native.buffer_order))
    numbers = (ctypes.c_int64 * max(len(program.sizes), 1))(*(sizes[name] for name in program.sizes))
    runs = iter(code.runs)
    for launch, steps in itertools.groupby(program.steps, lambda step: isinstance(step, Launch)):
        if launch:
            next(runs)(ctypes.addressof(pointers), ctypes.addressof(numbers), threads)
            continue
        for step in steps:
            memory[step.outputs[0]].cells[:] = 2 * memory[step.args[0].buffer].cells
    return {name: piece.cells.copy() for name, piece in memory.items()}


def check(lowered, target: str, threads: int, sizes=None) -> None:
    program = scheduled(lowered)
    inputs = random_inputs(lowered, 0, sizes)
    expected = run_nests(lowered, inputs, sizes)
    found = run_native(program, inputs, sizes or {}, target, threads)
    for name in [result.view.buffer for result in lowered.results] + [n for n in lowered.inputs if n in found]:
        strides = [evaluate(stride, sizes or {}) for stride in lowered.buffers[name].strides]
        ours = np.empty(expected[name].shape)
        for place in np.ndindex(*ours.shape):
            ours[place] = found[name][sum(p * s for p, s in zip(place, strides))]
        np.testing.assert_allclose(ours, expected[name].astype(np.float64), rtol=2e-5, atol=2e-5, err_msg=name)


COMMON = dict(deadline=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES, derandomize=True)


@pytest.mark.parametrize("target", TARGETS)
def test_programs(target):
    @settings(**COMMON)
    @given(programs(long_axis=19), st.sampled_from([1, 2]))
    def run(lowered, threads):
        check(lowered, target, threads)

    run()


@pytest.mark.parametrize("target", TARGETS)
def test_programs_cut_tiled_and_parallel(target):
    @settings(**COMMON)
    @given(programs(long_axis=36))
    def run(lowered):
        with eager_to_split():
            check(lowered, target, 2)

    run()
