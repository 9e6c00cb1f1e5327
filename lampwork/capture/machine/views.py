"""Frames as interpreted programs see them through `sys._getframe`: read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bytecode.decode import VERSION
from .private import keep_builtins
from .values import UNBOUND

keep_builtins(globals())

if TYPE_CHECKING:
    from .core import Machine
    from .frames import Frame


class FrameView:
    """The attributes of a CPython frame object, answered from a machine frame."""

    __slots__ = ("_machine", "_frame", "_generator")

    def __init__(self, machine: Machine, frame: Frame, generator: Any = None) -> None:
        self._machine = machine
        self._frame = frame
        self._generator = generator

    @property
    def f_code(self) -> Any:
        return self._frame.code.raw

    @property
    def f_globals(self) -> dict[str, Any]:
        return self._frame.globals

    @property
    def f_builtins(self) -> dict[str, Any]:
        return self._frame.builtins

    @property
    def f_locals(self) -> Any:
        frame = self._frame
        if frame.names is None:
            return frame.variables()
        inlined = {name: value for name, value in frame.variables().items() if name in frame.code.raw.co_varnames}
        return {**frame.names, **inlined} if inlined else frame.names

    @property
    def f_lineno(self) -> int:
        return self._frame.line

    @property
    def f_lasti(self) -> int:
        return self._frame.code.offsets[max(self._frame.index - 1, 0)]

    @property
    def f_back(self) -> FrameView | None:
        frames = self._machine.frames
        below = None
        for frame in frames:
            if frame is self._frame:
                return None if below is None else FrameView(self._machine, below)
            if not frame.code.hidden:
                below = frame
        return None

    def clear(self) -> None:
        frame, generator = self._frame, self._frame.generator or self._generator
        if frame in self._machine.frames:
            raise RuntimeError("cannot clear an executing frame")
        if generator is not None and generator.frame is frame:
            if generator.started and VERSION >= (3, 13):
                raise RuntimeError("cannot clear a suspended frame")
            generator.close()
        frame.locals = [UNBOUND] * len(frame.locals)
        frame.stack.clear()

    if VERSION >= (3, 14):

        @property
        def f_generator(self) -> Any:
            return self._frame.generator or self._generator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameView) and other._frame is self._frame

    def __hash__(self) -> int:
        return hash(id(self._frame))

    def __repr__(self) -> str:
        return f"<frame, file {self._frame.filename!r}, line {self._frame.line}, code {self._frame.code.raw.co_name}>"
