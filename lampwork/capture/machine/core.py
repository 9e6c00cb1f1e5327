"""The machine: an explicit stack of frames, the loop that runs them, and the unwinding of exceptions."""

from __future__ import annotations

import builtins
import sys
from typing import Any
from weakref import WeakSet

from ..bytecode.decode import OPERATIONS, VERSION, decode
from .errors import Interruption, Unsupported
from .exceptions import raise_unchanged, stop_iteration_error
from .frames import Frame, bind_arguments
from .generators import MachineGenerator
from .handlers import Handlers
from .private import keep_builtins
from .tracebacks import prepend, strip
from .values import UNBOUND, Enter
from .views import FrameView

keep_builtins(globals())


class Handled:
    """The exception that `except` clauses of one run, or of one generator, are handling (CPython's exc_info)."""

    __slots__ = ("value", "previous")

    def __init__(self) -> None:
        self.value: BaseException | None = None
        self.previous: Handled | None = None


#: From so many frames on, it matters how many there may be.
DEEP = 100


class Machine(Handlers):
    """Interprets Python functions; what values mean is decided by `world` (see `World`).

    `frames` holds every live frame, outermost first.  A machine belongs to the thread that made it.  A call from
    native code back into Python (`call`, or the methods of a `MachineGenerator`) starts a nested run on the same
    list of frames; `base` is the number of frames below the innermost run.
    """

    new_handled = Handled
    intrinsic_leaves_value = VERSION >= (3, 12)

    def __init__(self, world: Any) -> None:
        self.world = world
        self.frames: list[Frame] = []
        self.base = 0
        self.handled = Handled()
        # What CPython itself was handling when the innermost run began.
        self.entry_error: BaseException | None = None
        # The innermost run's outcome, and whether the loop must return to `run` to notice a change.
        self.result: Any = None
        self.error: BaseException | None = None
        self.attention = False
        # Nothing runs any more: generators that are collected from here on run no code.
        self.finished = False
        #: Generators that have begun.
        self.begun: WeakSet[MachineGenerator] = WeakSet()
        self.handlers = [getattr(self, name) for name in OPERATIONS]
        world.machine = self

    # -- entry points

    def call(self, function: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """`function(*args, **kwargs)`, with Python code interpreted.  Exceptions propagate as they would natively."""
        result = self.world.call(function, args, kwargs or {})
        if type(result) is Enter:
            return self.complete(result)
        return result

    def complete(self, answer: Any) -> Any:
        """The value of what a world's operation answered: itself, or the result of a nested run."""
        if type(answer) is not Enter:
            return answer
        generator = answer.generator
        if generator is not None:
            return generator.resume(answer.args[0], None)
        base = len(self.frames)
        value = self.enter(answer)
        return self.run(base) if value is UNBOUND else value

    def run_code(self, raw: Any, globals: dict[str, Any], names: Any, closure: Any = None) -> Any:
        """Runs a code object that keeps its names in a mapping: a class body, a module or an argument of exec."""
        code = decode(raw)
        frame = Frame(code, [UNBOUND] * code.empty_locals, globals, self.builtins_of(globals))
        frame.names = names
        frame.closure = closure
        base = len(self.frames)
        self.frames.append(frame)
        return self.run(base)

    def run_class_body(self, function: Any, namespace: Any) -> Any:
        _, _, closure = self.world.function_parts(function)
        return self.run_code(function.__code__, function.__globals__, namespace, closure)

    def location(self) -> tuple[str, int]:
        """(file, line) of the innermost frame of the user's code; ("<native>", 0) outside any."""
        for frame in reversed(self.frames):
            if not frame.code.hidden:
                return frame.code.raw.co_filename, frame.code.line(frame.index - 1)
        return "<native>", 0

    def user_frame(self, depth: int = 0) -> Frame | None:
        """The `depth`-th innermost frame of the user's code, 0 being the innermost; None if there are fewer."""
        for frame in reversed(self.frames):
            if not frame.code.hidden:
                if depth == 0:
                    return frame
                depth -= 1
        return None

    def frame_view(self, frame: Frame, generator: MachineGenerator | None = None) -> FrameView:
        return FrameView(self, frame, generator)

    @staticmethod
    def builtins_of(globals: dict[str, Any]) -> dict[str, Any]:
        found = globals.get("__builtins__", builtins)
        return found if isinstance(found, dict) else found.__dict__

    # -- entering and leaving frames

    def enter(self, request: Enter) -> Any:
        """Pushes the frame of a function.  Answers UNBOUND, or the function's result if CPython must run it."""
        function = request.function
        code = decode(function.__code__)
        if code.is_native or not self.world.should_interpret(function):
            value = function(*request.args, **(request.kwargs or {}))
            return value if request.constructed is UNBOUND else self.constructed(request.constructed, value)
        frames = self.frames
        if len(frames) >= DEEP:
            self.world.note_depth()
        if len(frames) >= sys.getrecursionlimit():
            raise RecursionError("maximum recursion depth exceeded")
        defaults, keyword_defaults, closure = self.world.function_parts(function)
        try:
            slots = bind_arguments(function, code, request.args, request.kwargs, defaults, keyword_defaults)
        except TypeError:
            self.world.note_signature(function)
            raise
        frame = Frame(code, slots, function.__globals__, function.__builtins__)
        frame.function = function
        frame.closure = closure
        frame.constructed = request.constructed
        frames.append(frame)
        return UNBOUND

    def deliver(self, frame: Frame, value: Any) -> bool:
        """Pushes what a world's operation answered; True if another frame has to run for it first."""
        if type(value) is Enter:
            generator = value.generator
            if generator is not None:
                if generator.machine is not self:
                    frame.stack.append(generator.resume(value.args[0], None))
                    return False
                if not generator.begin(value.args[0]):
                    raise StopIteration
                return self.link(generator)
            value = self.enter(value)
            if value is UNBOUND:
                return True
        frame.stack.append(value)
        return False

    def link(self, generator: MachineGenerator) -> bool:
        """A frame of this run has resumed the generator: what it is handling comes on top."""
        generator.handled.previous = self.handled
        self.handled = generator.handled
        if self.handled.value is not None:
            self.attention = True
        return True

    def unlink(self, generator: MachineGenerator) -> None:
        handled = generator.handled
        if handled.value is not None:
            self.attention = True
        assert handled.previous is not None
        self.handled = handled.previous
        handled.previous = None

    def leave(self, value: Any) -> bool:
        """Pops the running frame and hands its result to the frame below, or to the caller of the run."""
        frames = self.frames
        frame = frames.pop()
        generator = frame.generator
        if generator is not None:
            generator.finish()
            if len(frames) == self.base:
                self.result = value
            else:
                self.unlink(generator)
                self.generator_returned(frames[-1], value)
            return True
        if frame.constructed is not UNBOUND:
            value = self.constructed(frame.constructed, value)
        if len(frames) == self.base:
            self.result = value
        else:
            frames[-1].stack.append(value)
        return True

    @staticmethod
    def constructed(instance: Any, value: Any) -> Any:
        """The instance whose `__init__` returned `value`."""
        if value is not None:
            raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
        return instance

    # -- the loop

    def resume(self, interruption: Interruption, value: Any = None, error: BaseException | None = None) -> Any:
        """Goes on with the frames of an interruption, the interrupted operation giving `value` or raising `error`.

        Raises Unsupported if native code lay between the frames: its state is not data.
        """
        assert interruption.frames is not None
        if len(interruption.depths) > 1 or interruption.depths[0] != 0:
            raise Unsupported("resuming frames with native code between them")
        base = len(self.frames)
        self.frames.extend(interruption.frames)
        for frame in interruption.frames:
            if frame.generator is not None:
                frame.generator.running = True
        if error is None:
            self.frames[-1].stack.append(value)
        return self.run(base, error, interruption.handled)

    def run(
        self, base: int, error: BaseException | None = None, handling: Handled | None = None, fresh: bool = True
    ) -> Any:
        """Runs until `base` frames are left; returns or raises what the last of them did.

        With `error`, begins by raising it in the innermost frame, whose line its traceback gets if it is `fresh`;
        `handling` is what its handlers are handling.
        """
        # A run may begin anywhere within another one: a dropped generator closes itself.
        saved = self.base, self.handled, self.entry_error, self.attention, self.error, self.result
        self.error = self.result = None
        self.base = base
        self.entry_error = sys.exception()
        generator = self.frames[-1].generator
        self.handled = handling or (Handled() if generator is None else generator.handled)
        try:
            if error is None or self.unwind(error, fresh):
                while True:
                    self.attention = False
                    handled = self.topmost()
                    if handled is None:
                        self.loop(base)
                    else:
                        self.loop_handling(handled, base)
                    if self.error is not None:
                        break
                    if len(self.frames) <= base:
                        return self.result
            error = self.error
        except Interruption as interruption:
            if interruption.frames is None:
                interruption.frames = list(self.frames)
                interruption.handled = self.handled
                interruption.depths = []
            interruption.depths.append(base)
            self.abandon(base)
            raise
        finally:
            self.base, self.handled, self.entry_error, self.attention, self.error, self.result = saved
            del saved
        assert error is not None
        try:
            raise_unchanged(error)
        finally:
            del error

    def forget(self, error: BaseException) -> None:
        """Nobody will ask for an error again: what is known of it goes, with the frames that its traceback keeps."""

    def abandon(self, base: int) -> None:
        """Drops the frames of an interrupted run."""
        for frame in self.frames[base:]:
            if frame.generator is not None:
                frame.generator.running = False
        del self.frames[base:]
        self.error = None

    def topmost(self) -> BaseException | None:
        """The exception being handled in this run, as far as interpreted code is concerned."""
        handled: Handled | None = self.handled
        while handled is not None:
            if handled.value is not None:
                return handled.value
            handled = handled.previous
        return None

    def loop_handling(self, handled: BaseException, base: int) -> None:
        """The loop, run while CPython too is handling `handled`.

        So native code sees the right `sys.exception()`, and whatever is raised, by native code or by handlers,
        gets the right `__context__` from CPython itself.
        """
        traceback = handled.__traceback__
        try:
            raise_unchanged(handled)
        except BaseException:
            handled.__traceback__ = traceback
            del traceback
            self.loop(base)

    def loop(self, base: int) -> None:
        """Executes instructions until the run is done, an exception leaves it, or the handled exception changes."""
        handlers = self.handlers
        frames = self.frames
        error: BaseException | None = None
        while True:
            frame = frames[-1]
            instructions = frame.code.instructions
            try:
                while True:
                    index = frame.index
                    frame.index = index + 1
                    operation, argument = instructions[index]
                    if handlers[operation](frame, argument):
                        break
            except Interruption:
                raise
            except BaseException as raised:
                error = raised
            if error is not None:
                self.note_raised(error)
                error.__traceback__ = strip(error.__traceback__)
                self.unwind(error)
                error = None
            if self.attention or len(frames) <= base:
                return

    def note_raised(self, error: BaseException) -> None:
        """An instruction raised `error`, whose traceback still shows where."""

    def unwind(self, error: BaseException, fresh: bool = True) -> bool:
        """Transfers control to the handler of an exception, popping frames that have none.

        `fresh` is false when the running frame re-raises: its traceback entry is there already.  Answers true
        if the run goes on; else `self.error` is what leaves it.
        """
        frames = self.frames
        base = self.base
        while len(frames) > base:
            frame = frames[-1]
            index = frame.index - 1
            if fresh:
                error.__traceback__ = prepend(error.__traceback__, frame)
            fresh = True
            handler = frame.code.handlers[index]
            if handler is not None:
                target, depth, with_position = handler
                stack = frame.stack
                del stack[depth:]
                if with_position:
                    stack.append(index)
                stack.append(error)
                frame.index = target
                return True
            frames.pop()
            generator = frame.generator
            if generator is not None:
                if isinstance(error, StopIteration):
                    error = stop_iteration_error(error)
                generator.finish()
                if len(frames) > base:
                    self.unlink(generator)
        self.error = error
        self.attention = True
        return False
