"""How many iterations of a vector loop run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES, compute_dtype
from lampwork.ir.loops import POSITIONS, Accumulate, Accumulator, Compute, Expr, If, Let, Load, Loop, Stmt, Store
from lampwork.ir.record import record
from lampwork.ir.scalar_operators import SCALARS

if TYPE_CHECKING:
    from lampwork.codegen.llvm.kernel import FunctionEmitter


@record
class VectorPlan:
    """`masks`: the rest runs as one masked vector; else as vectors down to `least` lanes, then one by one."""

    lanes: int
    masks: bool
    least: int = 4


def plan_vector_loop(loop: Loop, emitter: FunctionEmitter) -> VectorPlan:
    """Lanes fill one register of the widest type that differs between lanes, or several where the work is light.

    Folding into an accumulator is a chain of dependent additions, so several registers hide its latency. Elsewhere
    iterations are independent and the processor overlaps them itself, until one is so long that few fit its window: a
    transcendental function takes two registers where there are 32 of them (gelu gains 10% on Zen 4).
    """
    module = emitter.module
    widest, operations, heavy = 1, 0, False
    for expr in expressions(loop.body):
        if isinstance(expr, Load):
            widest = max(widest, ITEM_SIZE_BYTES[expr.dtype])
        elif isinstance(expr, Compute):
            operations += 1
            heavy = heavy or SCALARS[expr.op].long
            if expr.dtype in FLOATING:
                widest = max(widest, ITEM_SIZE_BYTES[compute_dtype(expr.dtype)])
    for statement in statements(loop.body):
        if isinstance(statement, Store):
            widest = max(widest, ITEM_SIZE_BYTES[statement.value.dtype])
    register = max(module.vector_bytes // widest, 2)
    if widest == 1:
        register = min(register, 32)
    folds = any(isinstance(statement, Accumulate) for statement in loop.body)
    if folds:
        registers = 4 if operations <= 4 else 2
    else:
        registers = 2 if heavy and module.vector_bytes == 64 else 1
    limit = 64
    if not heavy and operations <= 4 and _reduces_down(loop):
        # Each pass down a column reads `lanes` neighbours of every row: wide ones use whole memory pages. Half of the
        # registers hold accumulators.
        registers, limit = (16, 256) if module.vector_bytes == 64 else (8, 64)
    lanes = min(register * registers, limit)
    masks = module.vector_bytes == 64
    extent = loop.axis.extent
    if isinstance(extent, int):
        if extent < 4 and not masks or extent < 2:
            return VectorPlan(1, masks)
        narrower = lanes
        while narrower > register and extent % narrower:
            narrower //= 2
        if extent % narrower == 0 or extent < lanes:
            lanes = max(narrower, register)
    return VectorPlan(lanes, masks)


def _reduces_down(loop: Loop) -> bool:
    """Whether the loop holds one accumulator per lane, folded in a serial loop."""
    own = [statement for statement in loop.body if isinstance(statement, Accumulator)]
    return len(own) == 1 and own[0].op not in POSITIONS and any(
        isinstance(statement, Loop) for statement in loop.body
    )  # fmt: skip


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, inner ones included."""
    for statement in body:
        yield statement
        if isinstance(statement, (Loop, If)):
            yield from statements(statement.body)


def expressions(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    """Every distinct expression object in `body`."""
    seen: set[int] = set()

    def walk(expr: Expr) -> Iterator[Expr]:
        if id(expr) in seen:
            return
        seen.add(id(expr))
        yield expr
        if isinstance(expr, Compute):
            for arg in expr.args:
                yield from walk(arg)
        elif isinstance(expr, Load):
            for _, index in expr.indirect:
                yield from walk(index)
            if expr.mask is not None:
                yield from walk(expr.mask)

    for statement in statements(body):
        if isinstance(statement, (Let, Accumulate)):
            yield from walk(statement.value)
        elif isinstance(statement, Store):
            yield from walk(statement.value)
            for _, index in statement.indirect:
                yield from walk(index)
        elif isinstance(statement, If):
            yield from walk(statement.condition)
