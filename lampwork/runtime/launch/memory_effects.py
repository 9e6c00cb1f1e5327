"""Which memory the steps of a program read and write."""

from __future__ import annotations

from lampwork.ir.program import FromBuffer, FromInput, Program, ViewOfInput, raised_inputs, step_buffers


def accessed_inputs(program: Program) -> set[int]:
    """Inputs whose memory the steps of a program read or write, whose versions it raises, or that are results. For a
    program that was just compiled: see `Artifact.accessed`."""
    accessed: set[str] = set()
    for step in program.steps:
        accessed.update(step_buffers(step))
    found = {index for index, name in enumerate(program.inputs) if name in accessed} | {*program.written_inputs}
    found.update(raised_inputs(program))
    for result in program.results:
        if isinstance(result, (FromInput, ViewOfInput)):
            found.add(result.input)
        elif isinstance(result, FromBuffer) and result.view.buffer in program.inputs:
            found.add(program.inputs.index(result.view.buffer))
    return found
