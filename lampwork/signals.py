"""`deferred`: handlers of signals wait while a call is compiled. `run_pending`: where they run. `raised_by_handler`:
whether an exception is a handler's, or a tracer's.

Python runs a handler of the program's between two instructions of whatever the main thread executes. In a capture that
would be in the middle of recording: the handler's tensors would enter the graph, what it raises would be taken for the
program's error. So signals are noted while a call is compiled, and handled between two stages of it, where the state
that the caller set is in force.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from lampwork import forks

#: Those of the C module: the public ones look up an enumeration for each signal (0.1 ms for all of them).
_native: Any = importlib.import_module("_signal")
_handler: Callable[[int], object] = _native.getsignal
_set_handler: Callable[[int, object], object] = _native.signal
_SIGNALS: tuple[int, ...] = tuple(sorted(signal.valid_signals()))

#: Where `struct sigaction` of Linux has its flags, its size, and the flag of handlers that system calls survive.
_FLAGS_OFFSET, _SIGACTION_BYTES, _RESTART = 136, 152, 0x10000000

#: The program's handlers that wait, with whether system calls go on behind them, by signal.
_waiting: dict[int, tuple[Callable, bool]] = {}
_pending: list[int] = []
_owner = 0


class HandlerRaised(BaseException):
    """What a handler raised, on its way out of the compiler: nothing there takes it for an error of its own."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def deferred() -> Iterator[None]:
    """Handlers written in Python run in `run_pending()`, and at the end, instead of when their signal comes. Raises
    `HandlerRaised` for what one raises.

    Only the main thread runs handlers, so others have nothing to do here.
    """
    global _owner
    thread = threading.get_ident()
    if thread != threading.main_thread().ident or _owner:
        yield
        return
    _owner = thread
    try:
        try:
            for number in _SIGNALS:
                handler = _handler(number)
                if callable(handler):
                    _waiting[number] = (handler, _restarts(number))
                    _set_handler(number, _note)
        except ValueError:  # an interpreter beside the main one has no handlers
            pass
        yield
    finally:
        try:
            _put_back()
        finally:
            _owner = 0
            handlers = [(each, _waiting[each][0]) for each in _taken()]
            _waiting.clear()
            _run(handlers)


def run_pending() -> None:
    """Runs the handlers of signals that came. Raises `HandlerRaised` for what one raises."""
    if _pending and threading.get_ident() == _owner:
        _run([(each, _waiting[each][0]) for each in _taken()])


def _run(handlers: list[tuple[int, Callable]]) -> None:
    """Runs all of them, the later ones while the earlier ones' errors are on their way, as Python does."""
    if handlers:
        number, handler = handlers[0]
        try:
            handler(number, sys._getframe())
        except BaseException as error:
            raise HandlerRaised(error) from None
        finally:
            _run(handlers[1:])


def _taken() -> list[int]:
    pending = _pending.copy()
    _pending.clear()
    return pending


def _note(number: int, frame: FrameType | None) -> None:
    """The handler meanwhile. Who presses Ctrl-C a second time is not kept waiting."""
    if number not in _pending:
        _pending.append(number)
    elif _waiting[number][0] is signal.default_int_handler:
        _pending.remove(number)
        signal.default_int_handler(number, frame)


def _put_back() -> None:
    for number, (handler, restarts) in _waiting.items():
        if _handler(number) is _note:
            _set_handler(number, handler)
            if restarts:
                signal.siginterrupt(number, False)


@forks.in_child
def _in_child() -> None:
    """The thread that forked is the main thread now, and may be none whose compile will end."""
    global _owner
    if _owner and _owner != threading.get_ident():
        _put_back()
        _waiting.clear()
        _pending.clear()
        _owner = 0


@functools.cache
def _sigaction() -> Any:
    return ctypes.CDLL(None).sigaction


def _restarts(number: int) -> bool:
    """Whether system calls go on behind the handler (`signal.siginterrupt`), which setting another one ends."""
    if number == signal.SIGINT or not sys.platform.startswith("linux"):
        return False
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _sigaction()(number, None, action):
        return False
    flags = int.from_bytes(action.raw[_FLAGS_OFFSET : _FLAGS_OFFSET + 4], sys.byteorder)
    return bool(flags & _RESTART)


def raised_by_handler(error: BaseException | None) -> bool:
    """Whether `error` comes out of a handler of signals, or of a tracer (a debugger that is told to quit): it is the
    program's, whatever code it interrupted."""
    traceback = error.__traceback__ if error is not None else None
    if traceback is None:
        return False
    codes = {_code(_handler(number)) for number in _SIGNALS}
    frame: FrameType | None = traceback.tb_frame
    while frame is not None:  # a tracer that raised is installed no more, but callers have it
        codes.add(_code(frame.f_trace))
        frame = frame.f_back
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        codes.add(_code(traceback.tb_frame.f_trace))
        traceback = traceback.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    """The code that runs when `handler` is called, if that is Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = next((vars(cls)["__call__"] for cls in type(handler).__mro__ if "__call__" in vars(cls)), None)
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
