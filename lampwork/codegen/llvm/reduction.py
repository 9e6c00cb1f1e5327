"""Accumulators: one slot per lane where they are declared, and one per lane of each vector loop that folds into them.

Slots are stack variables, which LLVM's SROA turns into registers. A vector loop folds into a vector of partial results;
after the statement that holds the loop, `combine_lanes` folds those into the accumulator proper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from lampwork.codegen.llvm.builder import Value
from lampwork.codegen.llvm.sizes import Unvectorizable
from lampwork.codegen.llvm.types import REGISTER, vector
from lampwork.errors import CompileError
from lampwork.ir.dtype import FLOATING
from lampwork.ir.loops import POSITIONS, Accumulate, Accumulator, Compute, Constant, Expr, If, Loop, Stmt
from lampwork.ir.record import record

if TYPE_CHECKING:
    from lampwork.codegen.llvm.kernel import FunctionEmitter

#: Position before the first element: later than every real one.
_NOWHERE = (1 << 63) - 1


@record(frozen=False)
class Slot:
    """Stack variables of the value and, for those of POSITIONS, the position."""

    value: str
    position: str | None


@record(frozen=False)
class Slots:
    """An accumulator. `dtype` is the type of what is compared or summed; `depth` the level that declares it."""

    op: str
    dtype: str
    lanes: int
    depth: int
    main: Slot
    partial: dict[int, Slot] = field(default_factory=dict)

    @property
    def has_position(self) -> bool:
        return self.op in POSITIONS


def declare(self: FunctionEmitter, statement: Accumulator, scope: Iterable[Stmt]) -> Slots:
    """Starts `statement`'s accumulator at its identity. `scope`: the statements that may fold into it."""
    dtype = statement.dtype
    if statement.op in POSITIONS:
        dtype = _folded_dtype(scope, statement.name) or dtype
    slots = Slots(statement.op, dtype, self.lanes, self.build.depth, Slot("", None))
    slots.main = _start(self, slots, self.lanes)
    return slots


def _folded_dtype(statements: Iterable[Stmt], name: str) -> str | None:
    for statement in statements:
        if isinstance(statement, Accumulate) and statement.name == name:
            return statement.value.dtype
        if isinstance(statement, (Loop, If)):
            found = _folded_dtype(statement.body, name)
            if found is not None:
                return found
    return None


def _start(self: FunctionEmitter, slots: Slots, lanes: int) -> Slot:
    """A new slot of `lanes` lanes, set to the identity at the end, so far, of the declaring level."""
    build = self.build
    type = vector(REGISTER[slots.dtype], lanes)
    slot = Slot(build.allocate(type, 64), None)
    identity = build.widen(self.arithmetic.identity(slots.op, slots.dtype), lanes)
    build.effect(f"store {identity}, ptr {slot.value}", depth=slots.depth)
    if slots.has_position:
        slot.position = build.allocate(vector("i64", lanes), 64)
        build.effect(f"store {build.widen(build.integer(_NOWHERE), lanes)}, ptr {slot.position}", depth=slots.depth)
    return slot


def accumulate(self: FunctionEmitter, slots: Slots, statement: Accumulate) -> None:
    """Folds `statement.value` in, lane by lane, where the mask is on."""
    build = self.build
    # Not below a mask: LLVM 22 moves a masked load into the masked instruction that fuses. Where it moves it out again
    # (TwoAddressInstructionPass) the mask is lost, and it reads past the last element.
    scaled, scale = _scaled(slots, statement.value) if self.mask is None else (statement.value, None)
    value = self.arithmetic.cast(self.expression(scaled), scaled.dtype, slots.dtype)
    lanes = self.lanes
    if slots.lanes == lanes:
        slot = slots.main
    elif slots.lanes == 1:
        if lanes not in slots.partial:
            slots.partial[lanes] = _start(self, slots, lanes)
        slot = slots.partial[lanes]
    else:
        raise Unvectorizable("accumulator of another vector loop")
    value = build.widen(value, lanes)
    position = None
    if slots.has_position:
        if statement.position is None:
            raise CompileError("generate", f"{slots.op} needs a position")
        position = build.widen(self.sizes.value(statement.position), lanes)
    old, old_position = _load(self, slots, slot, lanes)
    new_position: Value | None
    if scale is not None:
        new, new_position = build.multiply_add(value, build.widen(build.number(scale, value.type), lanes), old), None
    elif slots.op == "argmax_of_window" and old_position is not None and position is not None:
        new, new_position = _fold_next(self, slots, (old, old_position), (value, position))
    else:
        new, new_position = _fold(self, slots, old, old_position, value, position)
    if self.mask is not None:
        new = build.select(self.mask, new, old)
        if new_position is not None and old_position is not None:
            new_position = build.select(self.mask, new_position, old_position)
    _save(self, slot, new, new_position)


def _scaled(slots: Slots, value: Expr) -> tuple[Expr, float | None]:
    """What a sum adds up, and the power of two below 1 that it is multiplied by, if it is: the product is exact unless
    it is below the smallest normal number, so that one instruction may take it and the sum."""
    if slots.op != "sum" or not isinstance(value, Compute) or value.op != "mul" or slots.dtype != value.dtype:
        return value, None
    x, factor = value.args
    if value.dtype not in ("float32", "float64") or not isinstance(factor, Constant):
        return value, None
    scale = float(factor.value)
    return (x, scale) if 0 < scale < 1 and math.frexp(scale)[0] == 0.5 and x.dtype == value.dtype else (value, None)


def combine_lanes(self: FunctionEmitter, slots: Slots) -> None:
    """Folds the partial results of vector loops into the accumulator."""
    build = self.build
    for lanes, slot in slots.partial.items():
        value, position = _load(self, slots, slot, lanes)
        while value.lanes > 1:
            half = value.lanes // 2
            low, high = build.piece(value, 0, half), build.piece(value, half, half)
            if position is None:
                value, _ = _fold(self, slots, low, None, high, None)
            else:
                places = build.piece(position, 0, half), build.piece(position, half, half)
                value, position = _fold(self, slots, low, places[0], high, places[1])
        old, old_position = _load(self, slots, slots.main, 1)
        _save(self, slots.main, *_fold(self, slots, old, old_position, value, position))
    slots.partial.clear()


def read(self: FunctionEmitter, slots: Slots) -> Value:
    """The accumulated value; for those of POSITIONS the position."""
    if slots.partial or slots.lanes not in (1, self.lanes):
        raise Unvectorizable("reads an accumulator while lanes fold into it")
    value, position = _load(self, slots, slots.main, slots.lanes)
    return value if position is None else position


def _load(self: FunctionEmitter, slots: Slots, slot: Slot, lanes: int) -> tuple[Value, Value | None]:
    type = REGISTER[slots.dtype]
    value = self.build.here(type, lanes, f"load {vector(type, lanes)}, ptr {slot.value}")
    if slot.position is None:
        return value, None
    return value, self.build.here("i64", lanes, f"load {vector('i64', lanes)}, ptr {slot.position}")


def _save(self: FunctionEmitter, slot: Slot, value: Value, position: Value | None) -> None:
    self.build.effect(f"store {value}, ptr {slot.value}")
    if position is not None:
        self.build.effect(f"store {position}, ptr {slot.position}")


def _fold_next(
    self: FunctionEmitter, slots: Slots, old: tuple[Value, Value], new: tuple[Value, Value]
) -> tuple[Value, Value]:
    """As `_fold` of a pooling window, where `new` lies after `old`, as it does within each lane."""
    build = self.build
    larger = self.arithmetic.operation("gt", slots.dtype, "bool", (new[0], old[0]))
    missing = self.arithmetic.operation("isnan", slots.dtype, "bool", (new[0],))
    nothing = build.compare("icmp eq", old[1], build.widen(build.integer(_NOWHERE), old[1].lanes))
    take = build.binary("or", build.binary("or", larger, missing), nothing)
    return build.select(take, new[0], old[0]), build.select(take, new[1], old[1])


def _fold(
    self: FunctionEmitter, slots: Slots, a: Value, a_position: Value | None, b: Value, b_position: Value | None
) -> tuple[Value, Value | None]:
    if a_position is None or b_position is None:
        return self.arithmetic.combine(slots.op, slots.dtype, a, b), None
    build = self.build
    larger = slots.op != "argmin"
    operation = self.arithmetic.operation
    better = operation("gt" if larger else "lt", slots.dtype, "bool", (b, a))
    equal = operation("eq", slots.dtype, "bool", (a, b))
    if slots.dtype in FLOATING:
        nan_a = operation("isnan", slots.dtype, "bool", (a,))
        nan_b = operation("isnan", slots.dtype, "bool", (b,))
        only_b = build.binary("and", nan_b, build.binary("xor", nan_a, build.boolean(True)))
        better, both = build.binary("or", better, only_b), build.binary("and", nan_a, nan_b)
        if slots.op == "argmax_of_window":
            later = build.binary("and", both, build.compare("icmp sgt", b_position, a_position))
            better = build.binary("or", better, later)
        else:
            equal = build.binary("or", equal, both)
    earlier = build.binary("and", equal, build.compare("icmp slt", b_position, a_position))
    take = build.binary("or", better, earlier)
    return build.select(take, b, a), build.select(take, b_position, a_position)
