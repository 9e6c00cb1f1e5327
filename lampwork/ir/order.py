"""Whether each step of a program reads what an earlier one wrote: invariants 13 and 14 of `kernel_verify.py`.

A pass that forgets whose memory a buffer has become makes a program that reads what nothing wrote, and gives numbers
all the same. Looking costs some microseconds a step, so every program is looked at, not only those that are verified.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lampwork.ir.loops import Accumulate, Expr, If, Kernel, Let, Load, Loop, Stmt, Store, nodes
from lampwork.ir.program import Extern, FromBuffer, Launch, Program, launch_instances, tensor_refs


def read_before_written(program: Program) -> str:
    """The first buffer that is read before it is written, or that has no place, in words; empty where there is none."""
    written = {name for name, place in program.placements.items() if place.kind in ("input", "constant")}
    written |= {name for name, buffer in program.buffers.items() if buffer.kind == "unwritten"}
    for number, step in enumerate(program.steps):
        reads, writes = step_accesses(program, step)
        for name in (*reads, *writes):
            if name not in program.placements:
                return f"step {number}: invariant 13: {name} has no placement"
        for name in reads:
            if name not in written and 0 not in program.buffers[name].shape:
                return f"step {number}: invariant 14: {name} is read before it is written"
        written.update(writes)
    for result in program.results:
        if isinstance(result, FromBuffer):
            name = result.view.buffer
            if name not in program.placements:
                return f"invariant 13: result {name} has no placement"
            if name not in written and 0 not in program.buffers[name].shape:
                return f"invariant 14: result {name} is never written"
    return ""


def step_accesses(program: Program, step: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(buffers read, buffers written) by one step."""
    if isinstance(step, Launch):
        kernel = program.kernels[step.kernel]
        pairs = [pair for buffers, _ in launch_instances(step, kernel) for pair in zip(kernel.parameters, buffers)]
        # A parameter that the same kernel fills first counts as written only.
        before = loaded_before_stored(kernel)
        reads = tuple(name for p, name in pairs if p.access == "read" or p.name in before)
        return reads, tuple(name for p, name in pairs if p.access != "read")
    if isinstance(step, Extern):
        refs = tuple(ref.buffer for ref in tensor_refs(step))
        return refs, (*(name for name in step.outputs if name is not None), *step.mutates)
    return (step.buffer,), ()


def loaded_before_stored(kernel: Kernel) -> set[str]:
    """The `readwrite` parameters that the kernel takes something from before it stores any of it.

    Loads that a mask or a condition may leave out do not count: what they would find may be of an earlier iteration.
    """
    left = {each.name for each in kernel.parameters if each.access == "readwrite"}
    found: set[str] = set()

    def expressions(values: Iterable[Expr]) -> None:
        for node in nodes(values):
            if type(node) is Load and node.mask is None and node.buffer in left:
                found.add(node.buffer)

    def body(statements: tuple[Stmt, ...], sure: bool) -> None:
        for stmt in statements:
            if not left:
                return
            if isinstance(stmt, Loop):
                body(stmt.body, sure)
            elif isinstance(stmt, If):
                if sure:
                    expressions([stmt.condition])
                body(stmt.body, False)
            elif isinstance(stmt, Store):
                if sure:
                    expressions([stmt.value, *(value for _, value in stmt.indirect)])
                    if stmt.mode == "add" and stmt.buffer in left:
                        found.add(stmt.buffer)
                left.discard(stmt.buffer)
            elif isinstance(stmt, (Let, Accumulate)) and sure:
                expressions([stmt.value])

    body(kernel.body, True)
    return found
