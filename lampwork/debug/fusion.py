"""Why operators that hand a result on do not share a kernel: what the scheduler refused, and calls of ATen."""

from __future__ import annotations

from collections.abc import Iterator

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.location import Origin
from lampwork.ir.program import Extern, Launch, Program, RefusedFusion, launch_instances, tensor_refs
from lampwork.ir.size import product
from lampwork.schedule.expressions import estimate


def refusals(program: Program) -> list[tuple[RefusedFusion, int]]:
    """Each refused fusion with how often it occurs (the same operators on the same lines), most bytes first.

    `bytes` is that of all of them together.
    """
    found: dict[tuple, tuple[RefusedFusion, int]] = {}
    for each in (*program.refused, *_around_calls(program)):
        key = (each.id, each.reason, *_line(each.producer), *_line(each.consumer))
        if key in found:
            first, count = found[key]
            each = RefusedFusion(each.id, first.producer, first.consumer, each.reason, first.bytes + each.bytes)
            found[key] = (each, count + 1)
        else:
            found[key] = (each, 1)
    return sorted(found.values(), key=lambda item: -item[0].bytes)


def _line(origin: Origin) -> tuple[str, str, int]:
    return origin.op, origin.location.file, origin.location.line


def _around_calls(program: Program) -> Iterator[RefusedFusion]:
    """Buffers that a kernel makes for a call of ATen, or reads from one."""
    made: dict[str, tuple[Origin, bool]] = {}  # buffer -> who made it last, and whether that was a call
    for step in program.steps:
        if isinstance(step, Launch):
            kernel = program.kernels[step.kernel]
            pairs = [pair for buffers, _ in launch_instances(step, kernel) for pair in zip(buffers, kernel.parameters)]
            for name, parameter in pairs:
                if parameter.access != "write" and made.get(name, (None, False))[1]:
                    yield _refused(program, name, made[name][0], _of(step, 0), made[name][0])
            for name, parameter in pairs:
                if parameter.access != "read":
                    made[name] = (_of(step, -1), False)
        elif isinstance(step, Extern):
            for name in {each.buffer for each in tensor_refs(step)}:
                if name in made and not made[name][1]:
                    yield _refused(program, name, made[name][0], step.origin, step.origin)
            for output in (*step.outputs, *step.mutates):
                if output is not None:
                    made[output] = (step.origin, True)


def _of(step: Launch, index: int) -> Origin:
    return step.origins[index] if step.origins else Origin("", "")


def _refused(program: Program, name: str, producer: Origin, consumer: Origin, call: Origin) -> RefusedFusion:
    buffer = program.buffers[name]
    size = estimate(product(buffer.shape)) * ITEM_SIZE_BYTES.get(buffer.dtype, 8)
    return RefusedFusion("fusion-aten-call", producer, consumer, f"{call.op} is called as it is", 2 * size)
