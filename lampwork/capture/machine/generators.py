"""Generators whose body the machine interprets.

A `MachineGenerator` holds its frame as data.  Interpreted `for` loops, `yield from`, `next` and `send` resume it by
pushing that frame on the machine's stack; native code that iterates it starts a nested run.  It passes for a
native generator: `isinstance(g, types.GeneratorType)` holds, with the attributes of one.
"""

from __future__ import annotations

import collections.abc
import types
import warnings
from typing import TYPE_CHECKING, Any

from ..bytecode.decode import OP, VERSION
from .errors import Interruption
from .exceptions import chain_context
from .frames import Frame
from .private import keep_builtins
from .tracebacks import entry_at
from .values import UNBOUND, Enter, is_a

keep_builtins(globals())

if TYPE_CHECKING:
    pass

_YIELD = OP["YIELD_VALUE"]
#: What handlers begin with that CPython puts around the body of a generator, and around `yield from`.
_OF_CPYTHON = frozenset({OP["STOPITERATION_ERROR"], OP["CLEANUP_THROW"]})
_DEPRECATED_THROW = "the (type, exc, tb) signature of throw() is deprecated, use the single-arg signature instead."


class MachineGenerator:
    __slots__ = ("machine", "frame", "running", "started", "handled", "code", "__name__", "__qualname__", "__weakref__")

    def __init__(self, machine: Any, frame: Frame) -> None:
        self.machine = machine
        self.frame: Frame | None = frame
        self.code = frame.code.raw
        self.running = False
        self.started = False
        self.handled = machine.new_handled()
        function = frame.function
        self.__name__: str = frame.code.raw.co_name if function is None else function.__name__
        self.__qualname__: str = frame.code.raw.co_qualname if function is None else function.__qualname__

    # -- used by the machine

    def begin(self, value: Any) -> bool:
        """Pushes the frame, ready to run with `value` as the result of its `yield`.  False if it is finished."""
        if self.running:
            raise ValueError("generator already executing")
        frame = self.frame
        if frame is None:
            return False
        if value is not None and not self.started:
            raise TypeError("can't send non-None value to a just-started generator")
        frame.stack.append(value)
        if not self.started:
            self.machine.begun.add(self)
        self.running = self.started = True
        frame.generator = self  # only while it runs: a suspended generator is no reference cycle
        self.machine.frames.append(frame)
        return True

    def finish(self) -> None:
        if self.frame is not None:
            self.frame.generator = None
        self.frame = None
        self.running = False

    # -- the generator protocol, for native callers

    def __iter__(self) -> MachineGenerator:
        return self

    def __next__(self) -> Any:
        return self.resume(None, None)

    def send(self, value: Any) -> Any:
        return self.resume(value, None)

    def resume(self, value: Any, error: BaseException | None) -> Any:
        machine = self.machine
        base = len(machine.frames)
        if not self.begin(value):
            if error is not None:
                raise error
            raise StopIteration
        if error is not None and self.handled.value is not None:
            chain_context(error, self.handled.value)
        try:
            value = machine.run(base, error)
        finally:
            del error  # whose traceback holds this frame
        if self.frame is None:
            raise StopIteration() if value is None else StopIteration(value)
        return value

    def throw(self, kind: Any, *rest: Any) -> Any:
        if rest and VERSION >= (3, 12):
            warnings.warn(_DEPRECATED_THROW, DeprecationWarning, stacklevel=2)
        return self.throw_error(_normalise(kind, *rest))

    def throw_error(self, error: BaseException) -> Any:
        if self.running:
            raise ValueError("generator already executing")
        receiver = self.gi_yieldfrom
        frame = self.frame
        if frame is None:
            raise error
        if receiver is not None:
            outcome = UNBOUND
            self.running = True
            self.machine.frames.append(frame)  # it is on the stack while its sub-iterator works
            try:
                if is_a(error, GeneratorExit):
                    close_iterator(receiver)
                else:
                    throw = getattr(receiver, "throw", None)
                    if throw is not None:
                        outcome = throw(error)
            except Interruption:
                raise  # the run below drops our frame with its own
            except BaseException as raised:
                # CLEANUP_THROW, or the lines below on 3.11, make a StopIteration the value of `yield from`.
                failure: BaseException | None = raised
            else:
                failure = None
            self.machine.frames.pop()
            self.running = False
            if failure is not None:
                if isinstance(failure, StopIteration) and not is_a(error, GeneratorExit):
                    send = frame.code.instructions[frame.index - 2]
                    frame.stack.pop()
                    frame.index = send[1]
                    return self.resume(failure.value, None)
                error = failure
            elif outcome is not UNBOUND:
                return outcome
        if not self.started:
            # CPython enters the frame at its first instruction, outside any handler.
            self.finish()
            traceback = entry_at(error.__traceback__, frame, frame.code.offsets[0], frame.code.raw.co_firstlineno)
            raise error.with_traceback(traceback)
        try:
            return self.resume(None, error)
        finally:
            del error, frame  # the traceback of what is raised holds this frame

    def close(self) -> Any:
        if self.frame is None:
            return None
        if not self.started and not self.running:
            self.finish()
            return None
        error = GeneratorExit()
        try:
            self.throw_error(error)
        except StopIteration as stop:
            return stop.value if _CLOSE_RETURNS else None
        except GeneratorExit:
            return None
        finally:
            self.machine.forget(error)
            del error
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        # One that was made past `__init__` has no frame.
        if getattr(self, "frame", None) is not None and not self.running and self.started and not self.machine.finished:
            self.close()

    @property
    def has_end(self) -> bool:
        """Whether code of its own runs when it is closed where it stands: `finally`, `with`, `except`."""
        frame = self.frame
        if frame is None or self.running or not self.started:
            return False
        handler = frame.code.handlers[frame.index - 1]
        while handler is not None and frame.code.instructions[handler[0]][0] in _OF_CPYTHON:
            handler = frame.code.handlers[handler[0]]
        return handler is not None

    # -- the attributes of a native generator

    @property
    def gi_code(self) -> types.CodeType:
        return self.code

    @property
    def gi_frame(self) -> Any:
        return None if self.frame is None else self.machine.frame_view(self.frame, self)

    @property
    def gi_running(self) -> bool:
        return self.running

    @property
    def gi_suspended(self) -> bool:
        return self.frame is not None and not self.running and self.started

    @property
    def gi_yieldfrom(self) -> Any:
        frame = self.frame
        if frame is None or self.running or frame.code.instructions[frame.index - 1] != (_YIELD, True):
            return None
        return frame.stack[-1]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return types.GeneratorType

    def __repr__(self) -> str:
        return f"<generator object {self.__qualname__} at {id(self):#x}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle 'generator' object")


collections.abc.Generator.register(MachineGenerator)

import sys  # noqa: E402

_CLOSE_RETURNS = sys.version_info >= (3, 13)


def resume_request(generator: MachineGenerator, value: Any) -> Enter:
    """What `next` and `send` of interpreted code answer: resume in a frame on the same stack."""
    return Enter(None, (value,), None, UNBOUND, generator)


def close_iterator(receiver: Any) -> None:
    if type(receiver) is MachineGenerator:
        receiver.close()
        return
    close = None
    try:
        close = getattr(receiver, "close", None)
    except Exception as error:
        report_unraisable(error)
    if close is not None:
        close()


def report_unraisable(error: BaseException) -> None:
    """Hands an error to `sys.unraisablehook`, the way CPython does where it cannot raise."""

    class Reporter:
        def __del__(self) -> None:
            raise error

    Reporter()


for _name in ("__iter__", "__next__", "send", "throw", "close"):
    getattr(MachineGenerator, _name).__doc__ = getattr(types.GeneratorType, _name).__doc__


def _normalise(kind: Any, value: Any = None, traceback: Any = None) -> BaseException:
    """The exception that `throw(kind, value, traceback)` throws, checked as CPython checks it."""
    if traceback is not None and not is_a(traceback, types.TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    if is_a(kind, type) and issubclass(kind, BaseException):
        error = value
        if not is_a(value, kind):
            # An exception that cannot be made is replaced by the failure, which is thrown instead.
            args = () if value is None else value if is_a(value, tuple) else (value,)
            try:
                error = kind(*args)
            except Interruption:
                raise
            except BaseException as failure:
                error = failure
        if not is_a(error, BaseException):
            error = TypeError(
                f"calling {kind!r} should have returned an instance of BaseException, not {type(error).__name__}"
            )
    elif is_a(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    else:
        raise TypeError(
            f"exceptions must be classes or instances deriving from BaseException, not {type(kind).__name__}"
        )
    if traceback is not None:
        error.__traceback__ = traceback
    return error
