"""Which memory the steps of a program read and write."""

from __future__ import annotations

from lampwork.ir.program import Extern, FromBuffer, FromInput, Launch, Program, TensorRef, ViewOfInput


def step_buffers(step: Extern) -> set[str]:
    """Buffers that a call of ATen reads, writes or makes."""
    found = {name for name in step.outputs if name is not None} | set(step.mutates)
    pending: list[object] = [*step.args, *(value for _, value in step.kwargs)]
    while pending:
        value = pending.pop()
        if isinstance(value, TensorRef):
            found.add(value.buffer)
        elif isinstance(value, tuple):
            pending.extend(value)
    return found


def accessed_inputs(program: Program) -> set[int]:
    """Inputs whose memory the steps of a program read or write, or that are results. For a program that was just
    compiled: see `Artifact.accessed`."""
    accessed: set[str] = set()
    for step in program.steps:
        if isinstance(step, Launch):
            accessed.update(step.buffers)
        elif isinstance(step, Extern):
            accessed |= step_buffers(step)
        else:
            accessed.add(step.buffer)
    found = {index for index, name in enumerate(program.inputs) if name in accessed} | {*program.written_inputs}
    for result in program.results:
        if isinstance(result, (FromInput, ViewOfInput)):
            found.add(result.input)
        elif isinstance(result, FromBuffer) and result.view.buffer in program.inputs:
            found.add(program.inputs.index(result.view.buffer))
    return found
