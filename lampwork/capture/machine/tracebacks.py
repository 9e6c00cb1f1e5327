"""Traceback entries for interpreted frames, and the removal of the machine's own.

An exception that passes through the machine shows the user's frames at the user's lines, as it would have in
CPython.  `types.TracebackType` needs real frame objects, so each entry gets one: the user's code object is
copied with its instructions replaced by `RETURN_GENERATOR`, calling it makes a suspended generator, and that
generator's frame has the right code name, file, globals and, at the right offset, the right line and columns.

Nothing may look at the frame before it is suspended: a profiler or tracer that is told of its call would be given
a frame object that CPython does not move into the generator.  So the copy jumps over its RESUME, which is what
tells profilers, and what CPython takes for the end of the prologue, where nothing is traced.
"""

from __future__ import annotations

import dis
import os
import sys
from types import CodeType, FrameType, FunctionType, TracebackType

from ..bytecode.decode import INTERNAL, VERSION
from .frames import Frame
from .private import keep_builtins

keep_builtins(globals())

# For work on the machine itself: keep its own frames in tracebacks.
KEEP_INTERNAL = os.environ.get("LAMPWORK_INTERNAL_TRACEBACKS") == "1"


def strip(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the entries that belong to the machine."""
    if KEEP_INTERNAL:
        return traceback
    kept: list[TracebackType] = []
    entry = traceback
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(INTERNAL):
            kept.append(entry)
        entry = entry.tb_next
    following: TracebackType | None = None
    for entry in reversed(kept):
        if entry.tb_next is not following:
            entry.tb_next = following
        following = entry
    return following


def prepend(traceback: TracebackType | None, frame: Frame) -> TracebackType | None:
    """The traceback with an entry for an interpreted frame in front."""
    code = frame.code
    if code.hidden:
        return traceback
    index = min(max(frame.index - 1, 0), len(code.offsets) - 1)
    return entry_at(traceback, frame, code.offsets[index], code.line(index))


def entry_at(following: TracebackType | None, frame: Frame, offset: int, line: int) -> TracebackType:
    """An entry for an interpreted frame that stands at this offset of its code."""
    return TracebackType(following, real_frame(frame), offset + _PROLOGUE, line)


def real_frame(frame: Frame) -> FrameType:
    """A suspended CPython frame that stands for an interpreted one: same code names, globals; no local values."""
    code = frame.code
    offset = code.offsets[min(max(frame.index - 1, 0), len(code.offsets) - 1)]
    stubs = code.stub
    if stubs is None:
        stubs = code.stub = {}
    stub = stubs.get(offset)
    if stub is None:
        stub = stubs[offset] = _stub(code.raw, offset)
    return _suspended(FunctionType(stub, frame.globals, code.raw.co_name))


def _suspended(function: FunctionType) -> FrameType:
    # CPython 3.11 tells tracers of lines wherever the prologue is left; later ones only after a RESUME was run.
    tracer = sys.gettrace() if VERSION < (3, 12) else None
    if tracer is None:
        return function().gi_frame
    sys.settrace(None)
    try:
        return function().gi_frame
    finally:
        sys.settrace(tracer)


#: Bytes before what stands for the user's instructions: a jump, with its argument of up to three bytes, and a RESUME.
_PROLOGUE = 8
#: An entry of `co_linetable` for four instructions that have no line (Objects/locations.md of CPython).
_NO_LINES = bytes((0x80 | 15 << 3 | _PROLOGUE // 2 - 1,))


def _stub(raw: CodeType, offset: int) -> CodeType:
    """The code with RETURN_GENERATOR where the frame shall seem to stand, so that `f_lineno` is right too."""
    # 3.13 points after the instruction.  CPython moves a dead frame that stands before its RESUME.
    position = max(offset - 2 if VERSION >= (3, 13) else offset, 0)
    body = bytearray(bytes((dis.opmap["NOP"], 0)) * (len(raw.co_code) // 2))
    body[position : position + 2] = bytes((dis.opmap["RETURN_GENERATOR"], 0))
    distance = position // 2 + 1  # over the RESUME
    prologue = (
        *(dis.opmap["EXTENDED_ARG"], distance >> 16 & 255),
        *(dis.opmap["EXTENDED_ARG"], distance >> 8 & 255),
        *(dis.opmap["JUMP_FORWARD"], distance & 255),
        *(dis.opmap["RESUME"], 0),
    )
    return raw.replace(
        co_code=bytes(prologue) + bytes(body), co_linetable=_NO_LINES + raw.co_linetable,
        co_flags=(raw.co_flags & ~0x3AC) | 0x20,
        co_argcount=0, co_posonlyargcount=0, co_kwonlyargcount=0, co_exceptiontable=b"",
        co_stacksize=max(raw.co_stacksize, 2),
        # Reading f_locals expects cells in the slots of free variables, and nothing here would put them there.
        co_freevars=(),
    )  # fmt: skip
