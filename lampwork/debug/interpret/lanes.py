"""Kernels run by numpy: all iterations of a parallel or vector loop at once, statement by statement.

A second meaning of the kernel IR beside `ir/kernel_interpret.py`, which runs one iteration after the other. Where the
iterations of such a loop are independent, as they must be, both agree; and this one is fast enough for real programs.
An iteration is a lane. A loop gives each lane of its surroundings as many lanes as it has iterations there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from lampwork.debug.interpret.memory import Cells, from_bits, to_bits
from lampwork.ir.interpret import array_dtype, arrays_of, convert, size_values
from lampwork.ir.kernel_interpret import KernelFault, better, identity
from lampwork.ir.loops import (
    FIRSTS,
    Accumulate,
    Accumulator,
    Compute,
    Constant,
    Expr,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Scratch,
    Stmt,
    Store,
)
from lampwork.ir.size import Size

#: Lanes of one kernel beyond which a run is refused: it would need too much memory.
MOST_LANES = 1 << 24


def run_kernel(kernel: Kernel, cells: Sequence[Cells], sizes: Mapping[str, int]) -> None:
    """Runs `kernel` on its parameters' memory. Raises `KernelFault` for accesses outside of it, reads of what nothing
    wrote and stores that race."""
    memory = {parameter.name: each for parameter, each in zip(kernel.parameters, cells, strict=True)}
    frame = _Lanes(memory, None, np.zeros(1, np.int64), dict(sizes))
    with np.errstate(all="ignore"):
        frame.run(kernel.body)


class _Lanes:
    """The lanes of one body. `up`: for each, its lane in the body around. Also the environment of sizes."""

    def __init__(
        self, memory: dict[str, Cells], around: _Lanes | None, up: np.ndarray, symbols: dict[str, Any]
    ) -> None:
        if len(up) > MOST_LANES:
            raise MemoryError("too many iterations")
        self.memory, self.around, self.up, self.symbols = memory, around, up, symbols
        self.count = len(up)
        self.locals: dict[str, np.ndarray] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.best: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.scratch: dict[str, _Rows] = {}

    # Names ----------------------------------------------------------------------------------------------------------

    def __getitem__(self, symbol: str) -> Any:
        """The values of a symbol, one a lane (or one number for all)."""
        if symbol in self.symbols:
            return self.symbols[symbol]
        if self.around is None:
            raise KernelFault(f"{symbol} is not visible")
        found = self.around[symbol]
        return found[self.up] if isinstance(found, np.ndarray) else found

    def size(self, size: Size) -> Any:
        """The value of a size, one a lane (or one number for all)."""
        return size_values(size, cast(Mapping[str, Any], self))

    def local(self, name: str) -> np.ndarray:
        if name in self.locals:
            return self.locals[name]
        if self.around is None:
            raise KernelFault(f"{name} is not visible")
        return self.around.local(name)[self.up]

    def owner(self, name: str, table: str) -> tuple[_Lanes, np.ndarray]:
        """The body that declares `name`, and for each lane here its lane there."""
        frame, lanes = self, np.arange(self.count)
        while name not in getattr(frame, table):
            if frame.around is None:
                raise KernelFault(f"{name} is not declared")
            lanes, frame = frame.up[lanes], frame.around
        return frame, lanes

    def inside(self, up: np.ndarray, symbols: dict[str, Any] | None = None) -> _Lanes:
        return _Lanes(self.memory, self, up, symbols or {})

    # Statements -----------------------------------------------------------------------------------------------------

    def run(self, body: tuple[Stmt, ...]) -> None:
        if not self.count:
            return
        for stmt in body:
            match stmt:
                case Loop():
                    self.loop(stmt)
                case Let():
                    self.locals[stmt.name] = self.value(stmt.value)
                case Accumulator():
                    self.start(stmt)
                case Accumulate():
                    self.accumulate(stmt)
                case Scratch():
                    self.scratch[stmt.name] = _Rows(stmt, self.count)
                case Store():
                    self.store(stmt)
                case If():
                    self.inside(np.flatnonzero(self.value(stmt.condition))).run(stmt.body)
                case _:
                    raise TypeError(f"not a statement: {stmt!r}")

    def loop(self, loop: Loop) -> None:
        extents = np.broadcast_to(self.size(loop.axis.extent), (self.count,)).astype(np.int64)
        extents = np.maximum(extents, 0)
        if loop.kind in ("parallel", "vector"):
            up = np.repeat(np.arange(self.count), extents)
            starts = np.cumsum(extents) - extents
            self.inside(up, {loop.axis.name: np.arange(len(up)) - starts[up]}).run(loop.body)
            return
        for number in range(int(extents.max(initial=0))):
            self.inside(np.flatnonzero(extents > number), {loop.axis.name: number}).run(loop.body)

    def start(self, stmt: Accumulator) -> None:
        self.accumulators[stmt.name] = stmt
        first = np.full(self.count, identity(stmt.op, stmt.dtype), array_dtype(stmt.dtype))
        if stmt.op.startswith("arg"):
            self.best[stmt.name] = (first, np.full(self.count, -1, np.int64))
            first = np.zeros(self.count, np.int64)
        self.locals[stmt.name] = first

    def accumulate(self, stmt: Accumulate) -> None:
        frame, lanes = self.owner(stmt.name, "accumulators")
        op, dtype = frame.accumulators[stmt.name].op, frame.accumulators[stmt.name].dtype
        value = self.value(stmt.value)
        if op.startswith("arg"):
            assert stmt.position is not None
            values, positions = frame.best[stmt.name]
            places = np.broadcast_to(self.size(stmt.position), (self.count,))
            for lane, each, place in zip(lanes, value, places):
                before = None if positions[lane] < 0 else int(positions[lane])
                if better(op, each, int(place), values[lane], before):
                    values[lane], positions[lane] = each, place
            frame.locals[stmt.name] = np.maximum(positions, 0)
            return
        total = frame.locals[stmt.name].copy()
        if op in ("any", "all"):
            value = value != 0
        _FOLDS[FIRSTS.get(op, op)].at(total, lanes, value.astype(total.dtype))
        frame.locals[stmt.name] = convert(total, dtype)

    def store(self, stmt: Store) -> None:
        value = self.value(stmt.value)
        places = self.places(stmt.index, stmt.indirect)
        if stmt.buffer in self.memory:
            cells = self.memory[stmt.buffer]
            (cells.add if stmt.mode == "add" else cells.store)(places, value)
            return
        frame, lanes = self.owner(stmt.buffer, "scratch")
        frame.scratch[stmt.buffer].store(lanes, places, value)

    # Expressions ----------------------------------------------------------------------------------------------------

    def places(self, index: tuple, indirect: tuple) -> np.ndarray:
        frame = self
        if indirect:
            bound = {name: np.asarray(self.value(value)).astype(np.int64) for name, value in indirect}
            frame = self.inside(np.arange(self.count), bound)
        return np.broadcast_to(frame.size(index[0]), (self.count,)).astype(np.int64)

    def value(self, expr: Expr) -> np.ndarray:
        """The value of an expression, one a lane."""
        memo: dict[int, np.ndarray] = {}
        return self._value(expr, memo)

    def _value(self, expr: Expr, memo: dict[int, np.ndarray]) -> np.ndarray:
        found = memo.get(id(expr))
        if found is None:
            found = memo[id(expr)] = np.broadcast_to(self._evaluate(expr, memo), (self.count,))
        return found

    def _evaluate(self, expr: Expr, memo: dict[int, np.ndarray]) -> np.ndarray:
        if isinstance(expr, Constant):
            return convert(np.asarray(expr.value), expr.dtype)
        if isinstance(expr, Index):
            return np.asarray(self.size(expr.value), dtype=np.int64)
        if isinstance(expr, Local):
            return self.local(expr.name)
        if isinstance(expr, Load):
            return self._load(expr, memo)
        arguments = [self._value(argument, memo) for argument in expr.args]
        return compute(expr, arguments)

    def _load(self, load: Load, memo: dict[int, np.ndarray]) -> np.ndarray:
        if load.mask is None:
            return self.fetch(load)
        reached = self._value(load.mask, memo)
        other = convert(np.asarray(load.other), load.dtype)
        result = np.array(np.broadcast_to(other, (self.count,)))
        lanes = np.flatnonzero(reached)
        if len(lanes):
            result[lanes] = self.inside(lanes).fetch(load)
        return result

    def fetch(self, load: Load) -> np.ndarray:
        places = self.places(load.index, load.indirect)
        if load.buffer in self.memory:
            return self.memory[load.buffer].load(places)
        frame, lanes = self.owner(load.buffer, "scratch")
        return frame.scratch[load.buffer].load(lanes, places)


class _Rows:
    """A scratch buffer: a row for each lane of the body that declares it."""

    def __init__(self, stmt: Scratch, lanes: int) -> None:
        self.stmt = stmt
        self.array = np.zeros((lanes, stmt.numel), "uint16" if stmt.dtype == "bfloat16" else array_dtype(stmt.dtype))
        self.defined = np.zeros((lanes, stmt.numel), bool)

    def _check(self, places: np.ndarray) -> None:
        outside = (places < 0) | (places >= self.stmt.numel)
        if outside.any():
            raise KernelFault(f"{self.stmt.name}[{places[outside][0]}] is outside its {self.stmt.numel} elements")

    def load(self, lanes: np.ndarray, places: np.ndarray) -> np.ndarray:
        self._check(places)
        if not self.defined[lanes, places].all():
            raise KernelFault(f"{self.stmt.name} is read where nothing was written")
        return from_bits(self.array[lanes, places], self.stmt.dtype)

    def store(self, lanes: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
        self._check(places)
        self.array[lanes, places] = to_bits(values, self.stmt.dtype)
        self.defined[lanes, places] = True


_FOLDS: dict[str, Any] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
    "all": np.logical_and,
}  # fmt: skip


def compute(expr: Compute, arguments: list[np.ndarray]) -> np.ndarray:
    """One operation on arrays."""
    if expr.op == "cast":
        return convert(arguments[0], expr.dtype)
    if expr.op == "bitcast":
        bits = to_bits(arguments[0], expr.args[0].dtype)
        if expr.dtype == "bfloat16":
            return from_bits(np.ascontiguousarray(bits).view(np.uint16), "bfloat16")
        return np.ascontiguousarray(bits).view(array_dtype(expr.dtype))
    return arrays_of(expr.op, arguments)
