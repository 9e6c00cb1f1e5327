"""Instructions that decide what runs next: jumps, calls, generators, exceptions, blocks."""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ..bytecode.decode import OP
from .exceptions import WRAPPED_WHERE_CAUGHT, match_group, prepare_reraise_star, raise_value, stop_iteration_error
from .frames import Frame
from .generators import MachineGenerator
from .private import keep_builtins
from .tracebacks import prepend
from .values import NULL, UNBOUND, Enter, is_a

keep_builtins(globals())

_FOR_ITER, _SEND = OP["FOR_ITER"], OP["SEND"]


class Flow:
    """The half of `Handlers` that pushes, pops and leaves frames, or moves within one.

    What is declared here is the machine's.
    """

    world: Any
    handled: Any
    frames: list[Frame]
    attention: bool
    base: int
    result: Any
    entry_error: BaseException | None
    intrinsic_leaves_value: bool

    if TYPE_CHECKING:

        def deliver(self, frame: Frame, value: Any) -> bool: ...
        def unwind(self, error: BaseException, fresh: bool = True) -> bool: ...
        def leave(self, value: Any) -> bool: ...
        def unlink(self, generator: MachineGenerator) -> None: ...
        def topmost(self) -> BaseException | None: ...

    def JUMP(self, frame: Frame, argument: Any) -> Any:
        frame.index = argument

    def POP_JUMP_IF_TRUE(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack.pop()
        if value is True or (value is not False and self.world.branch(frame, value, argument, frame.index)):
            frame.index = argument

    def POP_JUMP_IF_FALSE(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack.pop()
        if value is False or (value is not True and not self.world.branch(frame, value, frame.index, argument)):
            frame.index = argument

    def POP_JUMP_IF_NONE(self, frame: Frame, argument: Any) -> Any:
        if self.world.is_(frame.stack.pop(), None):
            frame.index = argument

    def POP_JUMP_IF_NOT_NONE(self, frame: Frame, argument: Any) -> Any:
        if not self.world.is_(frame.stack.pop(), None):
            frame.index = argument

    def JUMP_IF_TRUE_OR_POP(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack[-1]
        if value is True or (value is not False and self.world.truth(value)):
            frame.index = argument
        else:
            frame.stack.pop()

    def JUMP_IF_FALSE_OR_POP(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack[-1]
        if value is False or (value is not True and not self.world.truth(value)):
            frame.index = argument
        else:
            frame.stack.pop()

    def GET_ITER(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.get_iter(frame.stack.pop()))

    def FOR_ITER(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        iterator = stack[-1]
        if type(iterator) is MachineGenerator and iterator.machine is self:
            if iterator.begin(None):
                return self.link(iterator)
            found = False
        else:
            found, value = self.world.iter_next(iterator)
        if found:
            stack.append(value)
        else:
            stack.pop()
            frame.index = argument

    # -- functions and calls

    def CALL(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        if argument:
            args = stack[-argument:]
            del stack[-argument:]
        else:
            args = []
        second = stack.pop()
        function = stack.pop()
        # Up to 3.12 the stack holds (null, callable) or (method, self), from 3.13 on (callable, null or self).
        if function is NULL:
            function = second
        elif second is not NULL:
            args.insert(0, second)
        value = self.world.call(function, tuple(args), {})
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def CALL_KW(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        names = stack.pop()
        args = stack[-argument:]
        del stack[-argument:]
        kwargs = dict(zip(names, args[argument - len(names) :]))
        del args[argument - len(names) :]
        second = stack.pop()
        function = stack.pop()
        if function is NULL:
            function = second
        elif second is not NULL:
            args.insert(0, second)
        return self.deliver(frame, self.world.call(function, tuple(args), kwargs))

    def CALL_FUNCTION_EX(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        kwargs = stack.pop() if argument else {}
        args = stack.pop()
        second = stack.pop()
        function = stack.pop()
        if function is NULL:
            function = second
            if function is NULL:
                raise SystemError("call without a callable")
        if type(args) is not tuple:
            args = self.world.positional_arguments(function, args)
        if type(kwargs) is not dict:
            merged: dict[str, Any] = {}
            self.world.dict_merge(merged, kwargs, function)
            kwargs = merged
        if second is not NULL and second is not function:
            args = (second, *args)
        return self.deliver(frame, self.world.call(function, args, kwargs))

    def MAKE_FUNCTION(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        raw = stack.pop()
        closure = stack.pop() if argument & 8 else None
        annotations = stack.pop() if argument & 4 else None
        keyword_defaults = stack.pop() if argument & 2 else None
        defaults = stack.pop() if argument & 1 else None
        stack.append(self.world.make_function(frame, raw, defaults, keyword_defaults, annotations, closure))

    def SET_FUNCTION_ATTRIBUTE(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        function = stack.pop()
        stack.append(self.world.set_function_attribute(function, argument, stack.pop()))

    def RETURN_VALUE(self, frame: Frame, argument: Any) -> Any:
        return self.leave(frame.stack.pop())

    # -- generators

    def RETURN_GENERATOR(self, frame: Frame, argument: Any) -> Any:
        self.frames.pop()
        generator = MachineGenerator(self, frame)
        if len(self.frames) == self.base:
            self.result = generator
        else:
            self.frames[-1].stack.append(generator)
        return True

    def GET_YIELD_FROM_ITER(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack[-1]
        if type(value) is CoroutineType:
            raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
        if type(value) is not MachineGenerator:
            frame.stack[-1] = self.world.get_iter(value)

    def SEND(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        value = stack.pop()
        receiver = stack[-1]
        if type(receiver) is MachineGenerator and receiver.machine is self:
            if receiver.begin(value):
                return self.link(receiver)
            running, value = False, None
        else:
            running, value = self.world.send(receiver, value)
        if not running:
            stack.pop()
            frame.index = argument
        stack.append(value)

    def YIELD_VALUE(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack.pop()
        self.frames.pop()
        generator = frame.generator
        generator.running = False
        frame.generator = None
        if len(self.frames) == self.base:
            self.result = value
        else:
            self.unlink(generator)
            self.frames[-1].stack.append(value)
        return True

    def generator_returned(self, frame: Frame, value: Any) -> None:
        """A generator that `frame` resumed has returned: ends its loop, its delegation or its call."""
        operation, argument = frame.code.instructions[frame.index - 1]
        if operation == _FOR_ITER:
            frame.stack.pop()
            frame.index = argument
        elif operation == _SEND:
            frame.stack[-1] = value
            frame.index = argument
        else:
            raise StopIteration() if value is None else StopIteration(value)

    def END_SEND(self, frame: Frame, argument: Any) -> Any:
        del frame.stack[-2]

    def CLEANUP_THROW(self, frame: Frame, argument: Any) -> Any:
        error = frame.stack.pop()
        if not isinstance(error, StopIteration):
            self.unwind(error, fresh=False)
            return True
        frame.stack[-2:] = [None, error.value]

    # -- exceptions

    def RAISE_VARARGS(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        if argument == 0:
            current = self.topmost()
            if current is None:
                self.world.note_handling()
                current = self.entry_error
            if current is None:
                raise RuntimeError("No active exception to reraise")
            self.unwind(current, fresh=False)
            return True
        cause = stack.pop() if argument == 2 else UNBOUND
        raise_value(self.world, stack.pop(), cause)

    def RERAISE(self, frame: Frame, argument: Any) -> Any:
        # The position below the exception only serves tracebacks, which have this frame's entry already.
        self.unwind(frame.stack.pop(), fresh=False)
        return True

    def PUSH_EXC_INFO(self, frame: Frame, argument: Any) -> Any:
        if not frame.code.hidden:
            self.world.note_handling()
        stack = frame.stack
        error = stack[-1]
        stack[-1] = self.handled.value
        stack.append(error)
        self.handled.value = error
        self.attention = True
        return True

    def POP_EXCEPT(self, frame: Frame, argument: Any) -> Any:
        self.handled.value = frame.stack.pop()
        self.attention = True
        return True

    def CHECK_EXC_MATCH(self, frame: Frame, argument: Any) -> Any:
        pattern = frame.stack.pop()
        frame.stack.append(self.world.exception_matches(frame.stack[-1], pattern))

    def CHECK_EG_MATCH(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        pattern, error = stack.pop(), stack.pop()
        match, rest = match_group(self.world, error, pattern)
        if WRAPPED_WHERE_CAUGHT and match is not None and not is_a(error, BaseExceptionGroup):
            match.__traceback__ = prepend(None, frame)
        stack.append(rest)
        stack.append(match)
        if match is not None:
            self.handled.value = match
            self.attention = True
            return True

    def PREP_RERAISE_STAR(self, frame: Frame, argument: Any) -> Any:
        errors = frame.stack.pop()
        frame.stack[-1] = prepare_reraise_star(frame.stack[-1], errors)

    def STOPITERATION_ERROR(self, frame: Frame, argument: Any) -> Any:
        frame.stack[-1] = stop_iteration_error(frame.stack[-1])

    def BEFORE_WITH(self, frame: Frame, argument: Any) -> Any:
        enter, leave = self.world.enter_with(frame.stack.pop())
        if argument:
            frame.stack.append(NULL)
        frame.stack.append(leave)
        return self.deliver(frame, self.world.call(enter, (), {}))

    def WITH_EXCEPT_START(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        error = stack[-1]
        args = (type(error), error, error.__traceback__)
        return self.deliver(frame, self.world.call(stack[-4], args, {}))
