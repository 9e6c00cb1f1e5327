"""Lowered programs by hand, and both meanings of them: nest by nest, and kernel by kernel after scheduling. No torch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from lampwork.config import Settings
from lampwork.ir.interpret import array_dtype, interpret_nest
from lampwork.ir.kernel_interpret import run_kernel
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.kernel_verify import verify_program
from lampwork.ir.loops import (
    Axis,
    Buffer,
    Compute,
    Constant,
    Expr,
    Index,
    Load,
    LoopNest,
    Origin,
    Reduction,
    Store,
    storage_numel,
)
from lampwork.ir.program import Extern, FromBuffer, InputWrite, Launch, Lowered, Program, TensorRef, launch_instances
from lampwork.ir.size import Size, Symbol, bounds
from lampwork.ir.target import Target
from lampwork.ir.verify import verify_lowered
from lampwork.schedule import schedule

TARGET = Target(threads=2)


def contiguous(shape: Sequence[Size]) -> tuple[Size, ...]:
    strides: list[Size] = []
    step: Size = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent if extent != 0 else step
    return tuple(strides)


def symbol(name: str, extent: Size) -> Symbol:
    return Symbol(name, 0, max(bounds(extent)[1] - 1, 0))


class Graph:
    """Builds a `Lowered`, one nest a call. Tensors are buffer names; bodies get the index tuple."""

    def __init__(self, sizes: tuple[str, ...] = ()) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.inputs: list[str] = []
        self.items: list = []
        self.writes: list[InputWrite] = []
        self.sizes = sizes

    def input(self, shape: Sequence[Size], dtype: str = "float32", strides: Sequence[Size] | None = None) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        return self._buffer(name, shape, dtype, "input", strides)

    def pointwise(
        self, shape: Sequence[Size], body: Callable, dtype: str = "float32", strides: Sequence[Size] | None = None
    ) -> str:
        axes, index = self._grid(shape, "i")
        name = self._buffer(f"t{len(self.items)}", shape, dtype, "intermediate", strides)
        self._add(LoopNest(axes, Store(name, index, body(*index)), origin=Origin(name, "pointwise")))
        return name

    def reduce(
        self, op: str, shape: Sequence[Size], reduced: Sequence[Size], body: Callable, dtype: str = "float32"
    ) -> str:
        """`body(*kept, *reduced)` folded over `reduced`."""
        axes, index = self._grid(shape, "i")
        inner, inner_index = self._grid(reduced, "r")
        if not inner:
            return self.pointwise(shape, lambda *i: body(*i, *inner_index), dtype)
        name = self._buffer(
            f"t{len(self.items)}", shape, "int64" if op.startswith("arg") else dtype, "intermediate", None
        )
        value = body(*index, *inner_index)
        nest = LoopNest(axes, Store(name, index, value), Reduction(op, inner, dtype), origin=Origin(name, op))
        self._add(nest)
        return name

    def store_part(self, name: str, shape: Sequence[Size], where: Callable, body: Callable) -> None:
        axes, index = self._grid(shape, "i")
        self._add(LoopNest(axes, Store(name, where(*index), body(*index)), partial=True, origin=Origin(name, "store")))

    def load(self, name: str, *index: Size, **options) -> Load:
        return Load(name, index, self.buffers[name].dtype, **options)

    def extern(self, op: str, args: Sequence, shape: Sequence[Size], dtype: str = "float32") -> str:
        name = self._buffer(f"t{len(self.items)}", shape, dtype, "intermediate", None)
        refs = tuple(self.ref(arg) if isinstance(arg, str) else arg for arg in args)
        self._add(Extern(op, refs, outputs=(name,), out_variant=op))
        return name

    def write(self, name: str, source: str) -> None:
        self.writes.append(InputWrite(self.inputs.index(name), self.ref(source)))

    def ref(self, name: str) -> TensorRef:
        buffer = self.buffers[name]
        return TensorRef(name, buffer.dtype, buffer.shape, buffer.strides)

    def finish(self, *results: str) -> Lowered:
        lowered = Lowered(
            self.buffers,
            tuple(self.inputs),
            tuple(self.items),
            tuple(FromBuffer(self.ref(name)) for name in results),
            tuple(self.writes),
            sizes=self.sizes,
        )
        verify_lowered(lowered)
        return lowered

    def _grid(self, shape: Sequence[Size], letter: str) -> tuple[tuple[Axis, ...], tuple[Size, ...]]:
        axes = tuple(Axis(f"{letter}{k}", extent) for k, extent in enumerate(shape) if extent != 1)
        return axes, tuple(symbol(f"{letter}{k}", n) if n != 1 else 0 for k, n in enumerate(shape))

    def _buffer(self, name: str, shape, dtype: str, kind, strides) -> str:
        shape = tuple(shape)
        self.buffers[name] = Buffer(name, dtype, shape, tuple(strides) if strides else contiguous(shape), kind)
        return name

    def _add(self, item) -> None:
        self.items.append(item)


# Expressions ---------------------------------------------------------------------------------------------------------


def inside(value: Expr, rows: int) -> Expr:
    """An integer of any value as a row of `rows`: kernels read and write where they are proved to."""
    return op("minimum", op("maximum", value, constant(0, "int64")), constant(rows - 1, "int64"))


def op(name: str, *args: Expr, dtype: str | None = None) -> Compute:
    return Compute(name, args, dtype or args[-1].dtype)


def constant(value: float, dtype: str = "float32") -> Constant:
    return Constant(value, dtype)


def below(position: Size, limit: Size) -> Compute:
    return Compute("lt", (Index(position), Index(limit)), "bool")


# Running -------------------------------------------------------------------------------------------------------------


def scheduled(lowered: Lowered, target: Target = TARGET) -> Program:
    program = schedule(lowered, Settings(), target)
    verify_program(program)
    return program


def launches(program: Program) -> int:
    return sum(isinstance(step, Launch) for step in program.steps)


def texts(program: Program) -> str:
    return "\n".join(kernel_text(kernel) for kernel in program.kernels)


def random_inputs(lowered: Lowered, seed: int = 0, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    from lampwork.ir.size import evaluate

    generator = random.Random(seed)
    arrays = {}
    for name in lowered.inputs:
        buffer = lowered.buffers[name]
        shape = tuple(evaluate(extent, sizes or {}) for extent in buffer.shape)
        values = [
            generator.choice([generator.uniform(-2, 2), generator.uniform(-2, 2), 1.0]) for _ in range(math.prod(shape))
        ]
        if not buffer.dtype.startswith(("float", "bfloat")):
            values = [generator.randrange(0, 3) for _ in values]
        arrays[name] = np.array(values, dtype=array_dtype(buffer.dtype)).reshape(shape)
    return arrays


def run_nests(lowered: Lowered, inputs: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> dict:
    """Buffers after running every nest in order. Externs double their first argument."""
    arrays = {name: array.copy() for name, array in inputs.items()}
    for item in lowered.items:
        if isinstance(item, LoopNest):
            interpret_nest(item, lowered.buffers, arrays, sizes)
        else:
            arrays[item.outputs[0]] = arrays[item.args[0].buffer] * 2
    for write in lowered.writes:
        arrays[lowered.inputs[write.input]] = arrays[write.source.buffer].copy()
    return arrays


def run_program(
    program: Program, inputs: dict[str, np.ndarray], sizes: dict[str, int] | None = None
) -> dict[str, list]:
    """Flat buffers after running the program; workspace buffers share bytes as placed, so that overlaps show."""
    from lampwork.ir.size import evaluate

    memory: dict[str, list] = {}

    def cells(name: str) -> list:
        if name not in memory:
            numel = evaluate(storage_numel(program.buffers[name]), sizes or {})
            memory[name] = [math.nan if "float" in program.buffers[name].dtype else 77] * numel
        return memory[name]

    for name in program.inputs:
        if name in program.buffers:
            _fill(cells(name), program.buffers[name], inputs[name], sizes)
    last_use = {}
    for number, step in enumerate(program.steps):
        for name in _touched(step):
            last_use[name] = number
    for number, step in enumerate(program.steps):
        if isinstance(step, Launch):
            kernel = program.kernels[step.kernel]
            for buffers, numbers in launch_instances(step, kernel):
                values = {name: evaluate(size, sizes or {}) for name, size in zip(kernel.sizes, numbers)}
                run_kernel(kernel, [cells(name) for name in buffers], values)
        else:
            cells(step.outputs[0])[:] = [2 * value for value in cells(step.args[0].buffer)]
        for name, last in last_use.items():
            if last == number and program.placements[name].kind == "workspace":
                memory.pop(name, None)  # Whoever reads it later gets NaN.
    return memory


def _touched(step) -> list[str]:
    return list(step.buffers) if isinstance(step, Launch) else [step.args[0].buffer, step.outputs[0]]


def _fill(cells: list, buffer: Buffer, array: np.ndarray, sizes) -> None:
    from lampwork.ir.size import evaluate

    strides = [evaluate(stride, sizes or {}) for stride in buffer.strides]
    for place in np.ndindex(*array.shape):
        cells[sum(p * s for p, s in zip(place, strides))] = array[place].item()


def _read(cells: list, buffer: Buffer, shape: tuple[int, ...], sizes) -> np.ndarray:
    from lampwork.ir.size import evaluate

    strides = [evaluate(stride, sizes or {}) for stride in buffer.strides]
    result = np.empty(shape, array_dtype(buffer.dtype))
    for place in np.ndindex(*shape):
        result[place] = cells[sum(p * s for p, s in zip(place, strides))]
    return result


def assert_same(
    lowered: Lowered,
    seed: int = 0,
    sizes: dict[str, int] | None = None,
    target: Target = TARGET,
    run_program: Callable = run_program,
) -> Program:
    """Schedules, verifies, runs both ways and compares every result and every input afterwards."""
    program = scheduled(lowered, target)
    inputs = random_inputs(lowered, seed, sizes)
    expected = run_nests(lowered, inputs, sizes)
    found = run_program(program, inputs, sizes)
    names = [(result.view.buffer, made.view.buffer) for result, made in zip(lowered.results, program.results)]
    names += [(name, name) for name in lowered.inputs if name in found]
    for name, now in names:  # buffers that became one have the name of one
        buffer = program.buffers[now]
        ours = _read(found.get(now, []), buffer, expected[name].shape, sizes)
        np.testing.assert_allclose(
            ours.astype(np.float64), expected[name].astype(np.float64), rtol=2e-5, atol=2e-5, err_msg=name
        )
    return program
