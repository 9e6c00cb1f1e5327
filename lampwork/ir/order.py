"""Whether each step of a program reads what an earlier one wrote: invariants 13 and 14 of `kernel_verify.py`.

A pass that forgets whose memory a buffer has become makes a program that reads what nothing wrote, and gives numbers
all the same. Looking costs some microseconds a step, so every program is looked at, not only those that are verified.
"""

from __future__ import annotations

from typing import Any

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
        # A readwrite parameter that the same kernel fills first counts as written only.
        reads = tuple(name for p, name in pairs if p.access == "read")
        return reads, tuple(name for p, name in pairs if p.access != "read")
    if isinstance(step, Extern):
        refs = tuple(ref.buffer for ref in tensor_refs(step))
        return refs, (*(name for name in step.outputs if name is not None), *step.mutates)
    return (step.buffer,), ()
