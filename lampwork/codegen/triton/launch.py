"""The native code that launches a program's kernels: one function per launch sequence, as on the CPU.

    run_0(externals, buffers, sizes, stream) -> i64     launches the sequence's kernels on a CUDA stream, in order
    call_0(self, args, count)                           the same as a CPython function of three integers

The answer is 0, or what went wrong and where (see `NativeCode`); nothing is launched after an error. Before anything
is launched, pointers that come from outside are compared with what the kernels were compiled for.

An image is the machine code of `launcher.py` with a table for each sequence, and two jumps into it that name the table.
A launch hands the driver the addresses of its arguments. Pointers and sizes stand in the tables that the caller passes
already, so nothing is copied: an argument's address is its place in the table. Behind them stand addresses of null
pointers, as many as any release of Triton appends arguments for; the driver takes what the kernel has.

What only the compiled kernel tells, its shared memory, comes in through the externals: so this code is made while the
kernels are compiled.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping, Sequence
from functools import reduce

from lampwork.codegen.triton import launcher
from lampwork.codegen.triton.horizontal import FILLED, is_wide
from lampwork.codegen.triton.launcher import BUFFERS, OPERATIONS, SIZES, TABLE, VALUES
from lampwork.errors import CompileError
from lampwork.ir.program import DeviceKernel, Launch, NativeCode, Program, launch_instances, step_buffers
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol, evaluate

#: Addresses of null pointers after a kernel's arguments.
NULLS = 4


def launch_code(program: Program, sequences: Sequence[Sequence[Launch]], kernels: Sequence[DeviceKernel]) -> NativeCode:
    """The native code of a program for a GPU. `kernels` stand in the order of the program's; they need not be compiled.

    `buffer_order`, `runs` and `calls` are as on the CPU.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise CompileError("generate", f"GPU programs are launched by x86-64 code, not on {platform.machine()}")
    places: dict[str, int] = {}
    for sequence in sequences:
        for launch in sequence:
            for buffer in step_buffers(launch):
                places.setdefault(buffer, len(places))
    image = bytearray(launcher.CODE)
    runs, calls = [], []
    for sequence in sequences:
        image += bytes(-len(image) % 16)
        table = len(image)
        image += _Table(program, kernels, places).bytes_of(sequence)
        runs.append(_jump(image, _RUN_TABLE, table, launcher.RUN))
        calls.append(_jump(image, _CALL_TABLE, table, launcher.CALL))
    externals = list(launcher.EXTERNALS)
    for number in range(len(kernels)):
        externals += [f"kernel:{number}", f"shared:{number}"]
    return NativeCode(
        image=bytes(image),
        runs=tuple(runs),
        buffer_order=tuple(places),
        externals=tuple(externals),
        features=(),
        kernel_names=tuple(kernel.name for kernel in program.kernels),
        calls=tuple(calls),
        device=program.device,
        kernels=tuple(kernels),
    )


#: `lea r8, [rip + distance]` and `lea rdx, [rip + distance]`: the table is run's fifth and call's third argument.
_RUN_TABLE, _CALL_TABLE = b"\x4c\x8d\x05", b"\x48\x8d\x15"


def _jump(image: bytearray, load: bytes, table: int, target: int) -> int:
    """Appends a function that goes on at `target` with the address of `table` as one more argument; where it begins."""
    begin = len(image)
    image += load + struct.pack("<i", table - (begin + 7))
    image += b"\xe9" + struct.pack("<i", target - (begin + 12))
    return begin


class _Table:
    """The table of one sequence; see `launcher.py`."""

    def __init__(self, program: Program, kernels: Sequence[DeviceKernel], places: Mapping[str, int]) -> None:
        self.program, self.kernels, self.places = program, kernels, places
        self.constants: dict[int, int] = {0: 0}
        self.steps: dict[tuple[int, int, int], int] = {}
        self.symbols = {name: self._word(SIZES, 8 * i) for i, name in enumerate(program.sizes)}

    def bytes_of(self, sequence: Sequence[Launch]) -> bytes:
        checked = [self.places[buffer] for buffer in from_outside(self.program, sequence, self.kernels)]
        launches: list[list[int]] = []
        for position, launch in enumerate(sequence):
            many = self.program.kernels[launch.kernel].horizontal
            launches += self._launch_instances(position, launch) if many else [self._launch(position, launch)]
        if len(self.steps) > launcher.MOST_VALUES:
            raise CompileError("generate", f"the grids of {len(sequence)} launches take {len(self.steps)} computations")
        start = 4 + 2 * len(self.constants)
        head = struct.pack("<4I", len(checked), len(self.steps), len(launches), start)
        steps = [word for step in self.steps for word in step]
        words = [*checked, *steps, *(word for launch in launches for word in launch)]
        return head + struct.pack(f"<{len(self.constants)}q", *self.constants) + struct.pack(f"<{len(words)}I", *words)

    def _launch(self, position: int, launch: Launch) -> list[int]:
        kernel = self.kernels[launch.kernel]
        sizes = [self._value(size, self.symbols) for size in launch.sizes]
        inside = dict(zip(self.program.kernels[launch.kernel].sizes, sizes))
        grid = [self._value(size, inside) for size in (*kernel.grid, 1, 1)[:3]]
        arguments = [*(self._buffer(name) for name in launch.buffers), *sizes]
        return self._record(launch.kernel, position, grid, arguments)

    def _launch_instances(self, position: int, launch: Launch) -> list[list[int]]:
        """Launches that fill the rows' table, and the one of the kernel."""
        kernel, device = self.program.kernels[launch.kernel], self.kernels[launch.kernel]
        rows = launch_instances(launch, kernel)
        columns: list[list[int]] = [[] for _ in range(1 + len(kernel.sizes) + len(kernel.parameters))]
        programs = 0
        for buffers, sizes in rows:
            numbers = [evaluate(size, {}) for size in sizes]
            words = [*map(self._constant, [programs, *numbers]), *map(self._buffer, buffers)]
            for column, word in zip(columns, words, strict=True):
                column.append(word)
            programs += evaluate(device.grid[0], dict(zip(kernel.sizes, numbers)))
        values = [word for column in columns for word in column]
        room = self.program.buffers[launch.table].shape[0]
        if not isinstance(room, int) or room < max(len(values), FILLED):
            raise CompileError("generate", f"a table of {room} words is filled by {FILLED} at a time: `SHORTEST_TABLE`")
        fill = len(self.program.kernels)  # it stands after them
        one, zero = self._constant(1), self._constant(0)
        table = self._buffer(launch.table)
        launches = []
        for first in range(0, len(values), FILLED):
            # The last sequence begins earlier: all are of one length. A table has room for one (`SHORTEST_TABLE`).
            begin = max(0, min(first, len(values) - FILLED))
            given = values[begin : begin + FILLED]
            given += [zero] * (FILLED - len(given))
            launches.append(self._record(fill, position, [one] * 3, [table, self._constant(begin), *given]))
        grid = [self._constant(programs), one, one]
        launches.append(self._record(launch.kernel, position, grid, [table, self._constant(len(rows))]))
        return launches

    def _record(self, number: int, position: int, grid: list[int], arguments: list[int]) -> list[int]:
        kernel = self.kernels[number]
        arguments = [*arguments, *[self._constant(0)] * NULLS]
        if len(arguments) > launcher.MOST_ARGUMENTS:
            raise CompileError("generate", f"kernel {kernel.name} has {len(arguments)} arguments")
        external = len(launcher.EXTERNALS) + 2 * number
        return [external, position, *grid, 32 * kernel.num_warps, len(arguments), *arguments]

    def _buffer(self, name: str) -> int:
        return self._word(BUFFERS, 8 * self.places[name])

    # Values: words that say where 64 bits lie ------------------------------------------------------------------------

    @staticmethod
    def _word(base: int, offset: int) -> int:
        return offset | base

    def _constant(self, value: int) -> int:
        return self._word(TABLE, 16 + 8 * self.constants.setdefault(value, len(self.constants)))

    def _step(self, operation: str, a: int, b: int) -> int:
        step = (OPERATIONS.index(operation), a, b)
        return self._word(VALUES, 8 * self.steps.setdefault(step, len(self.steps)))

    def _value(self, size: Size, symbols: Mapping[str, int]) -> int:
        """Where the value of `size` lies, computed by steps if need be."""

        def word(part: Size) -> int:
            return self._value(part, symbols)

        match size:
            case int():
                return self._constant(size)
            case Symbol(name):
                return symbols[name]
            case Sum(constant, terms):
                parts = [
                    word(atom) if k == 1 else self._step("mul", word(atom), self._constant(k)) for k, atom in terms
                ]
                if constant:
                    parts.append(self._constant(constant))
                return reduce(lambda a, b: self._step("add", a, b), parts)
            case Product(factors):
                return reduce(lambda a, b: self._step("mul", a, b), [word(factor) for factor in factors])
            case FloorDiv(value, divisor):
                return self._step("floordiv", word(value), word(divisor))
            case Mod(value, divisor):
                return self._step("mod", word(value), word(divisor))
            case Min(left, right):
                return self._step("min", word(left), word(right))
            case Max(left, right):
                return self._step("max", word(left), word(right))
        raise CompileError("generate", f"no launch code for the size {size!r}")


def from_outside(program: Program, sequence: Sequence[Launch], kernels: Sequence[DeviceKernel]) -> tuple[str, ...]:
    """Buffers of a sequence that must be aligned and whose memory is not ours: inputs, and what ATen calls returned."""
    found: dict[str, None] = {}
    for launch in sequence:
        kernel = program.kernels[launch.kernel]
        aligned: Sequence[int] = kernels[launch.kernel].aligned
        if kernel.horizontal:
            aligned = [i for i in range(len(kernel.parameters)) if is_wide(kernel, i)]
        for buffers, _ in launch_instances(launch, kernel):
            for i in aligned:
                if i < len(buffers) and program.placements[buffers[i]].kind in ("input", "extern"):
                    found[buffers[i]] = None
    return tuple(found)
