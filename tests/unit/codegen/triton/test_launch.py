"""The native code that launches kernels, with a driver that writes down what it is asked to do."""

from __future__ import annotations

import ctypes
import random

import pytest

from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.codegen.triton import launcher
from lampwork.codegen.triton.launch import launch_code
from lampwork.errors import CompileError
from lampwork.ir.loops import Buffer, Kernel, Parameter
from lampwork.ir.program import UNALIGNED, DeviceKernel, Extern, Launch, Placement, Program
from lampwork.ir.size import Symbol, add, evaluate, floordiv, maximum, minimum, mod, mul
from lampwork.runtime.launch.native import LoadedCode
from tests.unit.runtime.handmade import LAUNCH_KERNEL

N, M, S0 = Symbol("n"), Symbol("m"), Symbol("s0")
STREAM = 0x5EA


@pytest.fixture(params=["stored", "from text"], autouse=True)
def code(request, monkeypatch):
    """Every test runs the stored machine code, and what LLVM makes of its text today."""
    if request.param == "from text":
        image, places = launcher.compiled()
        monkeypatch.setattr(launcher, "CODE", image)
        monkeypatch.setattr(launcher, "RUN", places["run"])
        monkeypatch.setattr(launcher, "CALL", places["call"])


class Driver:
    """`launches`: (function, grid, threads, shared bytes, stream, argument values). `codes` are answered in turn."""

    def __init__(self, kernels, codes=()):
        self.kernels, self.codes, self.launches = kernels, list(codes), []
        self.function = LAUNCH_KERNEL(self._launch)

    def _launch(self, function, x, y, z, tx, ty, tz, shared, stream, parameters, extra):
        assert (ty, tz, extra) == (1, 1, None)
        kernel = self.kernels[function - 100]
        types = [*kernel.signature, *["*fp32"] * kernel.hidden]
        values = tuple(
            (ctypes.c_int32 if kind == "i32" else ctypes.c_int64).from_address(parameters[i]).value
            for i, kind in enumerate(types)
        )
        self.launches.append((function, (x, y, z), tx, shared, stream, values))
        return self.codes.pop(0) if self.codes else 0

    def addresses(self):
        handles = {f"kernel:{i}": 100 + i for i in range(len(self.kernels))}
        shared = {f"shared:{i}": each.shared_bytes for i, each in enumerate(self.kernels)}
        return {"cuda:cuLaunchKernel": ctypes.cast(self.function, ctypes.c_void_p).value, **handles, **shared}


def kernel(name, parameters, sizes=()):
    return Kernel(name, tuple(Parameter(p, "float32", "read", 8) for p in parameters), (), tuple(sizes))


COPY = kernel("copy", ("b0", "b1"))
SIZED = kernel("sized", ("b0",), ("s0",))
DEVICE_COPY = DeviceKernel("copy", "", ("*fp32", "*fp32"), (0, 1), grid=(3,), num_warps=8, shared_bytes=512, hidden=2)
DEVICE_SIZED = DeviceKernel(
    "sized", "", ("*fp32", "i32"), (), grid=(floordiv(add(S0, 127), 128), 2), num_warps=1, hidden=1
)


def program(*steps, kernels=(COPY, SIZED), places=None):
    names = dict.fromkeys(name for step in steps if isinstance(step, Launch) for name in step.buffers)
    places = places or {"x": Placement("input", 0), "y": Placement("workspace"), "z": Placement("result")}
    return Program(
        kernels, {name: Buffer(name, "float32", (8,), (1,)) for name in names}, places, steps, ("x",), (),
        sizes=("m", "n"), device="cuda:0",
    )  # fmt: skip


def run(program, pointers, sizes=(0, 0), kernels=(DEVICE_COPY, DEVICE_SIZED), codes=(), foreign=False):
    """(answers of all sequences, the driver)"""
    native = launch_code(program, launch_sequences(program), kernels)
    driver = Driver(kernels, codes)
    code = LoadedCode(native, driver.addresses())
    table = (ctypes.c_int64 * len(native.buffer_order))(*(pointers[name] for name in native.buffer_order))
    numbers = (ctypes.c_int64 * 2)(*sizes)
    runs = [code._foreign(offset) for offset in native.runs] if foreign else code.runs
    return [each(ctypes.addressof(table), ctypes.addressof(numbers), STREAM) for each in runs], driver


POINTERS = {"x": 16, "y": 1024, "z": 4096}


@pytest.mark.parametrize("foreign", [False, True])
def test_arguments_grids_and_streams(foreign):
    steps = (Launch(0, ("x", "y")), Launch(1, ("z",), (N,)), Launch(0, ("y", "z")))
    answers, driver = run(program(*steps), POINTERS, (7, 300), foreign=foreign)
    assert answers == [0]
    assert driver.launches == [
        (100, (3, 1, 1), 256, 512, STREAM, (16, 1024, 0, 0)),
        (101, (3, 2, 1), 32, 0, STREAM, (4096, 300, 0)),
        (100, (3, 1, 1), 256, 512, STREAM, (1024, 4096, 0, 0)),
    ]


def test_sizes_that_are_expressions():
    steps = (Launch(1, ("z",), (mul(N, M),)), Launch(1, ("y",), (M,)), Launch(1, ("y",), (5,)))
    _, driver = run(program(*steps), POINTERS, (7, 300))
    assert [(grid[0], values[:2]) for _, grid, _, _, _, values in driver.launches] == [
        (17, (4096, 2100)), (1, (1024, 7)), (1, (1024, 5)),
    ]  # fmt: skip


def test_grids_without_programs_are_left_out():
    empty = DeviceKernel("copy", "", ("*fp32", "*fp32"), grid=(0,))
    steps = (Launch(1, ("z",), (N,)), Launch(0, ("x", "y")), Launch(1, ("y",), (M,)))
    answers, driver = run(program(*steps), POINTERS, (7, 0), (empty, DEVICE_SIZED))
    assert answers == [0] and [values[0] for *_, values in driver.launches] == [1024]


def test_each_sequence_is_a_function():
    steps = (Launch(0, ("x", "y")), Extern("aten::relu", ()), Launch(0, ("y", "z")))
    answers, driver = run(program(*steps), POINTERS)
    assert answers == [0, 0] and len(driver.launches) == 2


@pytest.mark.parametrize("foreign", [False, True])
def test_nothing_is_launched_behind_an_error(foreign):
    steps = (Launch(0, ("x", "y")), Launch(1, ("z",), (N,)), Launch(0, ("y", "z")))
    answers, driver = run(program(*steps), POINTERS, (7, 300), codes=[0, 719], foreign=foreign)
    assert answers == [1 << 32 | 719] and len(driver.launches) == 2


def test_pointers_from_outside_that_are_not_aligned_stop_the_sequence():
    steps = (Launch(1, ("x",), (N,)), Launch(0, ("x", "y")))
    answers, driver = run(program(*steps), {**POINTERS, "x": 20}, (7, 300))
    assert answers == [UNALIGNED] and not driver.launches
    # Planned memory is not looked at, nor what kernels do not want to be aligned.
    answers, driver = run(program(*steps), {**POINTERS, "y": 20}, (7, 300))
    assert answers == [0]
    answers, driver = run(program(steps[0]), {**POINTERS, "x": 20}, (7, 300))
    assert answers == [0]
    returned = {"x": Placement("extern"), "y": Placement("workspace")}
    answers, driver = run(program(*steps, places=returned), {**POINTERS, "x": 8}, (7, 300))
    assert answers == [UNALIGNED]


def test_sizes_as_the_ir_evaluates_them():
    """Random expressions as arguments and as grids."""
    pick = random.Random(3)
    symbols = {"n": Symbol("n", -50, 50), "m": Symbol("m", 1, 50)}

    def expression(depth):
        if depth == 0 or pick.random() < 0.2:
            return pick.choice([*symbols.values(), pick.randint(-9, 9)])
        left, right = expression(depth - 1), expression(depth - 1)
        kind = pick.choice([add, mul, minimum, maximum, floordiv, mod])
        if kind in (floordiv, mod):
            right = maximum(right, 1) if pick.random() < 0.5 else pick.randint(1, 9)
        return kind(left, right)

    for _ in range(200):
        size, extent = expression(3), expression(3)
        grid = add(mod(extent, 1000), 1)
        sized = Kernel("sized", (Parameter("b0", "float32", "read", 8),), (), ("n", "m", "s0"))
        kernel = DeviceKernel("sized", "", ("*fp32", "i64", "i64", "i64"), (), grid=(grid,))
        values = {"n": pick.randint(-50, 50), "m": pick.randint(1, 50)}
        made = program(Launch(0, ("z",), (*symbols.values(), size)), kernels=(sized,))
        _, driver = run(made, POINTERS, (values["m"], values["n"]), (kernel,))
        ((_, (x, _, _), _, _, _, arguments),) = driver.launches
        assert x == evaluate(grid, values) and arguments[-1] == evaluate(size, values)


def test_many_kernels_and_launches():
    kernels = tuple(kernel(f"k{i}", ("b0", "b1")) for i in range(60))
    device = tuple(DeviceKernel(f"k{i}", "", ("*fp32", "*fp32"), grid=(i + 1, 2, 3), shared_bytes=i) for i in range(60))
    steps = tuple(Launch(i % 60, ("x", "y") if i % 2 else ("y", "z")) for i in range(300))
    answers, driver = run(program(*steps, kernels=kernels), POINTERS, kernels=device)
    assert answers == [0] and len(driver.launches) == 300
    for i, (function, grid, threads, shared, _, values) in enumerate(driver.launches):
        assert (function, grid, threads, shared) == (100 + i % 60, (i % 60 + 1, 2, 3), 128, i % 60)
        assert values == ((16, 1024) if i % 2 else (1024, 4096))


def test_grids_that_no_device_has():
    huge = DeviceKernel("sized", "", ("*fp32", "i64"), (), grid=(mul(S0, S0),))
    steps = (Launch(1, ("z",), (N,)),)
    answers, driver = run(program(*steps), POINTERS, (7, 1 << 20), (DEVICE_COPY, huge))
    assert answers == [1] and not driver.launches, "the driver's word for an invalid value"


def test_more_arguments_than_the_launcher_takes():
    wide = kernel("wide", [f"b{i}" for i in range(600)])
    with pytest.raises(CompileError, match="604 arguments"):
        launch_code(
            program(Launch(0, ("x",) * 600), kernels=(wide,)), [[Launch(0, ("x",) * 600)]],
            (DeviceKernel("wide", "", ("*fp32",) * 600),),
        )  # fmt: skip
