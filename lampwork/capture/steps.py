"""`TorchMachine`: the machine of a capture. It notes how each step began, so that a break can be undone to there.

A step is an instruction that can do more than move values about in its own frame. Capture is deterministic: the same
call takes the same steps, so a second capture can be told to stop before the step at which the first one came to grief.
`Frame.before` is (the frame's stack, the number of the step, the last operator recorded, the frame's index) when its
last step began.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from lampwork import _torch
from lampwork.capture.bytecode.decode import OP
from lampwork.capture.failures import break_for, eager_error, raised_deliberately, tells_of_stand_ins
from lampwork.capture.leave.operations import STEP_NUMBERS, operands_of
from lampwork.capture.machine import NULL, Frame, Machine
from lampwork.capture.outside.overlay import Break, Deferred
from lampwork.capture.outside.tensor_inputs import is_tensor_function
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.scalar import is_unbacked
from lampwork.errors import GraphBreak

_CALLS = frozenset({OP["CALL"], OP["CALL_KW"], OP["CALL_FUNCTION_EX"]})
#: Instructions that work on their operands themselves.
_OPERATIONS = frozenset({
    OP["BINARY_OP"], OP["INPLACE_OP"], OP["UNARY_OP"], OP["COMPARE_OP"], OP["BINARY_SUBSCR"], OP["STORE_SUBSCR"],
    OP["DELETE_SUBSCR"],
})  # fmt: skip


class StopHere(Break):
    """A capture that was told to stop before a step has come to it."""

    def __init__(self) -> None:
        super().__init__("stop", "capture was told to stop here")


def begun(frame: Frame) -> tuple[list[Any], int, Any]:
    """(stack, step, last operator) when the instruction that `frame` is executing began; step -1 if it is no step."""
    before = frame.before
    return before[:3] if before is not None and before[3] == frame.index else ([], -1, None)


class TorchMachine(Machine):
    """A machine whose program cannot catch what stops capture.

    `stop_at`: the step before which to raise `StopHere`; 0: none. An error that a tensor operator raises on fakes
    becomes what eager raises, or, where that is not certain, is a break. `may_break`: whether the program goes on after
    one; else it is the call that does, in eager.
    """

    def __init__(self, world: Any, stop_at: int = 0, may_break: bool = False) -> None:
        super().__init__(world)
        self.steps = 0
        self.stop_at = stop_at
        self.may_break = may_break
        #: Exceptions, with the step that raised each first; 0: a `raise` statement, an unbound variable, or what eager
        #: raises.
        self.first_raised: dict[int, tuple[BaseException, int]] = {}
        #: Those of them, by id, that torch's own machinery raised, which may know less here than in eager, or a defect
        #: of capture.
        self.doubtful: set[int] = set()
        for number in STEP_NUMBERS:
            self.handlers[number] = self._step(self.handlers[number])

    def _step(self, handler: Callable[[Frame, Any], Any]) -> Callable[[Frame, Any], Any]:
        root = self.world.recorder.graph._root

        def run(frame: Frame, argument: Any) -> Any:
            self.steps = step = self.steps + 1
            frame.before = (frame.stack[:], step, root._prev, frame.index)
            if step == self.stop_at:
                raise StopHere
            return handler(frame, argument)

        return run

    def call(self, function: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.steps += 1  # native code, in the middle of a step, calls back: the step is no longer at its beginning
        return super().call(function, args, kwargs)

    def forget(self, error: BaseException) -> None:
        self.first_raised.pop(id(error), None)

    def complete(self, answer: Any) -> Any:
        self.steps += 1
        return super().complete(answer)

    @property
    def last_node(self) -> Any:
        """The operator recorded last."""
        return self.world.recorder.graph._root.prev

    def use_deferred(self) -> None:
        """From here on, operands of steps may be `Deferred`: each is loaded when a step is about to look at it."""
        for number in STEP_NUMBERS:
            self.handlers[number] = self._loading(number, self.handlers[number])

    def _loading(self, number: int, handler: Callable[[Frame, Any], Any]) -> Callable[[Frame, Any], Any]:
        is_call = number in _CALLS

        def run(frame: Frame, argument: Any) -> Any:
            count = operands_of(number, argument)
            stack = frame.stack
            if count and any(type(value) is Deferred for value in stack[-count:]):
                first = len(stack) - count
                last = len(stack)
                if is_call:
                    last = first + 2
                    self._load(stack, first, last)
                    function = stack[first + 1] if stack[first] is NULL else stack[first]
                    if not self.world.rules.breaks_always(function):
                        last = len(stack)
                self._load(stack, first, last)
            return handler(frame, argument)

        return run

    def _load(self, stack: list[Any], first: int, last: int) -> None:
        for position in range(first, last):
            stack[position] = self.world.loader.look(stack[position])

    def note_raised(self, error: BaseException) -> None:
        if not raised_deliberately(error):
            self.doubtful.add(id(error))

    def unwind(self, error: BaseException, fresh: bool = True) -> bool:
        if isinstance(error, GraphBreak):
            diagnostic = error.diagnostic
            raise Break(diagnostic.id, diagnostic.reason, diagnostic.remedy) from None
        frame = self.frames[-1]
        if fresh and id(error) not in self.first_raised:
            number = frame.code.instructions[frame.index - 1][0]
            certain = number == OP["RAISE_VARARGS"] or number not in STEP_NUMBERS
            if isinstance(error, Exception) and self._raised_by_operator(error):
                eager = eager_error(self.world.recorder, frame, begun(frame)[0], error)
                if eager is None:
                    raise break_for(error)
                self.doubtful.discard(id(error))  # nobody keeps it, and another one may get its id
                error, certain = eager, True
            elif not certain and self._calls_torch(frame):
                if _torch.finds_freed_history(error):
                    # Fakes have eager's history, freed where eager's is. What a region that ended here would leave of
                    # it leads to no leaf.
                    certain = True
                else:
                    self.doubtful.add(id(error))
            self.first_raised[id(error)] = (error, 0 if certain else begun(frame)[1])
        return super().unwind(error, fresh)

    def _raised_by_operator(self, error: Exception) -> bool:
        """Whether the running instruction is an operation on a fake: what it raises may be worded otherwise, or be
        wrong. What a dict that holds tensors raises, or the call of a function with them, is the program's own, unless
        it names a stand-in. Where the graph cannot break, what a number out of a tensor raises is the program's own,
        too: nothing can check it against eager."""
        frame = self.frames[-1]
        number, argument = frame.code.instructions[frame.index - 1]
        stack, step, _ = begun(frame)
        if step < 0 or number == OP["RAISE_VARARGS"]:
            return False
        if tells_of_stand_ins(error):
            return True
        count = operands_of(number, argument)
        operands = stack[-count:] if count else []
        if number in _CALLS:
            function = operands[1] if operands[0] is NULL else operands[0]
            if type(getattr(function, "__self__", None)) is Fake:
                return True  # a method of a tensor
            return (self.may_break and any(map(_holds_number, operands))) or (
                self._is_operator(function) and any(map(_holds_fake, operands))
            )
        holds = _holds_fake if self.may_break else _holds_tensor
        return number in _OPERATIONS and any(holds(each, 1 if type(each) is tuple else 0) for each in operands)

    def _calls_torch(self, frame: Frame) -> bool:
        """Whether the running instruction calls something of torch's that is no operator: autograd, transforms."""
        number, argument = frame.code.instructions[frame.index - 1]
        stack, step, _ = begun(frame)
        if step < 0 or number not in _CALLS:
            return False
        operands = stack[-operands_of(number, argument) :]
        function = operands[1] if operands[0] is NULL else operands[0]
        if is_tensor_function(function):
            return False
        kinds = type(function), type(getattr(function, "__self__", None))
        modules = [getattr(function, "__module__", None), *[kind.__module__ for kind in kinds]]
        return any(str(module).startswith(("torch", "pybind11")) for module in modules)

    def _is_operator(self, function: Any) -> bool:
        """A function that runs natively on fakes."""
        if type(function) is types.FunctionType:
            return self.world.rules.runs_on_fakes(function)
        return is_tensor_function(function)


def _holds_number(value: Any) -> bool:
    return is_unbacked(value)


def _holds_tensor(value: Any, depth: int) -> bool:
    return type(value) is Fake or bool(depth) and any(_holds_tensor(each, depth - 1) for each in value)


def _holds_fake(value: Any, depth: int = 3) -> bool:
    kind = type(value)
    if kind is Fake or is_unbacked(value):
        return True
    if depth and (kind is list or kind is tuple):
        return any(_holds_fake(each, depth - 1) for each in value)
    return bool(depth) and kind is dict and any(_holds_fake(each, depth - 1) for each in value.values())
