"""Traceback entries for interpreted frames, and the removal of the machine's own.

An exception that passes through the machine shows the user's frames at the user's lines, as it would have in
CPython.  `types.TracebackType` needs real frame objects, so each entry gets one: the user's code object is
copied with its instructions replaced by `RETURN_GENERATOR`, calling it makes a suspended generator, and that
generator's frame has the right code name, file, globals and, at the right offset, the right line and columns.
"""

from __future__ import annotations

import dis
import os
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
    return TracebackType(traceback, real_frame(frame), code.offsets[index], code.line(index))


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
    return FunctionType(stub, frame.globals, code.raw.co_name)().gi_frame


def _stub(raw: CodeType, offset: int) -> CodeType:
    """The code with RETURN_GENERATOR where the frame shall seem to stand, so that `f_lineno` is right too."""
    # 3.13 points after the instruction.  CPython moves a dead frame that stands before its RESUME.
    position = max(offset - 2 if VERSION >= (3, 13) else offset, 2)
    size = len(raw.co_code)
    body = bytearray(bytes((dis.opmap["NOP"], 0)) * (size // 2))
    body[:2] = bytes((dis.opmap["RESUME"], 0))
    body[position : position + 2] = bytes((dis.opmap["RETURN_GENERATOR"], 0))
    return raw.replace(
        co_code=bytes(body), co_flags=(raw.co_flags & ~0x3AC) | 0x20,
        co_argcount=0, co_posonlyargcount=0, co_kwonlyargcount=0, co_exceptiontable=b"",
        co_stacksize=max(raw.co_stacksize, 2),
        # Reading f_locals expects cells in the slots of free variables, and nothing here would put them there.
        co_freevars=(),
    )  # fmt: skip
