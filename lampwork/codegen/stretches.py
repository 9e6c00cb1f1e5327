"""A program's launches as native code runs them: in maximal runs of consecutive ones."""

from __future__ import annotations

from lampwork.ir.program import Launch, Program


def launch_stretches(program: Program) -> list[list[Launch]]:
    """The maximal runs of consecutive launches among the program's steps, in order."""
    result: list[list[Launch]] = []
    open_stretch = False
    for step in program.steps:
        if not isinstance(step, Launch):
            open_stretch = False
            continue
        if not open_stretch:
            result.append([])
            open_stretch = True
        result[-1].append(step)
    return result
