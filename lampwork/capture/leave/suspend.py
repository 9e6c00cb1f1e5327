"""From frames that were interrupted to the outcome `Continue`, and from a `Resumption` back to frames.

    suspended = suspend(machine, stop)           # frames right before an operation that can run natively
    outcome = suspended.outcome(templates, reason)
    frames, handled = rebuild(resumption, values)

Frames that cannot be suspended (generators, class bodies, frames below native code) are undone: the operation is then
the call that led to them, in the innermost frame outside. `Retry` says that capture must be run again to get there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lampwork.capture.bytecode.decode import decode
from lampwork.capture.bytecode.liveness import holds_frame, live_slots
from lampwork.capture.leave.operations import Operation, operation_of
from lampwork.capture.leave.reconstruction import Templates
from lampwork.capture.machine import NULL, UNBOUND, Frame, Interruption
from lampwork.capture.steps import StopHere, TorchMachine, begun
from lampwork.errors import Diagnostic
from lampwork.ir import operations
from lampwork.ir.continuation import BreakReason, FrameLayout, Place, Resumption
from lampwork.ir.record import record
from lampwork.ir.reference import code_digest
from lampwork.ir.region import Continue
from lampwork.ir.template import ConstantValue, Template

#: Breaks raised before the step that meets them has done anything.
_AT_ONCE = frozenset({
    "native-call", "unknown-native", "disabled", "opaque-value", "native-attribute", "autograd-function",
    "backward-effect",
})  # fmt: skip
#: Breaks after which nothing goes on: the call runs eagerly, where objects die as soon as frames let them go, and where
#: frames are those that debuggers and profilers watch.
_NOWHERE = frozenset({"finalizer", "watched"})
#: Names by which code starts to watch its own frame: if it may do so after a break, that must be the interpreter's.
_WATCHES = frozenset({"breakpoint", "set_trace", "settrace", "setprofile"})


class Retry(Exception):
    """Capture again, up to right before `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


@record(frozen=False)
class Suspended:
    """Frames that stand right before `operation`, outermost first; `handled` is being handled by their clauses."""

    frames: list[Frame]
    operation: Operation
    handled: BaseException | None

    def retry_outside(self) -> Retry | None:
        """What to try when these frames hold something that cannot be described: the call of the innermost one."""
        step = begun(self.frames[-2])[1] if len(self.frames) > 1 else -1
        return Retry(step) if step > 0 else None  # the call may have been made in an earlier region

    def outcome(self, templates: Templates, reason: Diagnostic) -> Continue:
        """The region's end. Raises `Break` for a value that no template describes."""
        operation = self.operation
        describe = templates.template
        called = describe(operation.callable)
        args = templates.items(operation.args)
        kwargs = tuple((name, describe(value)) for name, value in operation.kwargs.items())
        inner = self.frames[-1]
        del inner.stack[len(inner.stack) - operation.pops :]
        inner.stack.extend(operation.keeps)
        index = inner.index if operation.again else inner.index + 1
        live: list[Template] = []
        layouts = []
        for frame in self.frames:
            innermost = frame is inner
            going_on = [index, inner.index] if innermost else [frame.index]
            if innermost and operation.target >= 0:
                going_on.append(operation.target)
            going_on += _handler_of(frame, frame.index if innermost else frame.index - 1)
            layouts.append(_describe_frame(frame, index if innermost else frame.index, going_on, templates, live))
        if self.handled is not None:
            live.append(describe(self.handled))
        delivered = {"push": 1, "drop": 0, "spread": 2, "iterate": 1, "jump": 0}[operation.delivery]
        handled = self.handled is not None
        frames = tuple(layouts)
        otherwise = None
        if operation.target >= 0:
            last = layouts[-1]
            jumped = FrameLayout(last.code, operation.target, last.slots, last.stack, last.constructed)
            dropped = 1 if operation.delivery == "iterate" else 0
            otherwise = Resumption((*frames[:-1], jumped), 0, dropped=dropped, handled=handled)
        raised = self._raised(layouts, handled)
        dropped = 1 if operation.delivery == "jump" else 0
        return Continue(
            callable=called,
            args=args,
            kwargs=kwargs,
            live=tuple(live),
            delivery=operation.delivery,
            after=Resumption(frames, delivered, dropped=dropped, handled=handled),
            otherwise=otherwise,
            raised=raised,
            places=tuple(place_of(frame, innermost=frame is inner) for frame in self.frames if not frame.code.hidden),
            reason=BreakReason(reason.id, reason.reason, reason.location, reason.remedy),
        )

    def _raised(self, layouts: list[FrameLayout], handled: bool) -> Resumption | None:
        """Where frames go on if the operation raises: those from the innermost that handles it outwards."""
        for position in range(len(self.frames) - 1, -1, -1):
            frame, layout = self.frames[position], layouts[position]
            innermost = position == len(self.frames) - 1
            index = frame.index if innermost else frame.index - 1
            if _handler_of(frame, index):
                # The machine finds handlers by the instruction before the one it would go on with.
                stands = FrameLayout(layout.code, index + 1, layout.slots, layout.stack, layout.constructed)
                return Resumption((*layouts[:position], stands), 1, raised=True, handled=handled)
        return None


def watches(stop: Interruption) -> str:
    """The name by which one of the frames may start to watch itself after the break; empty if none may."""
    return next((name for frame in stop.frames or () for name in frame.code.raw.co_names if name in _WATCHES), "")


def suspend(machine: TorchMachine, stop: Interruption) -> Suspended | None:
    """The frames of an interrupted capture right before an operation; None if there are none to suspend.

    Raises `Retry` where capture has to be run again, up to that operation.
    """
    if getattr(stop, "id", "") in _NOWHERE:
        return None
    frames = stop.frames or []
    bases = [base for base in stop.depths if base > 0] if stop.frames else []
    level = min(bases) if bases else len(frames)
    for position, frame in enumerate(frames[:level]):
        if not _suspendable(frame):
            level = position
            break
    while level > 0:
        inner = frames[level - 1]
        stack, step, node = begun(inner)
        if step < 0:
            level -= 1
            continue
        clean = level == len(frames) and (
            isinstance(stop, StopHere)
            or getattr(stop, "id", "") in _AT_ONCE
            and step == machine.steps
            and node is machine.last_node
        )
        inner.index -= 1
        inner.stack, rest = list(stack), inner.stack
        operation = operation_of(inner)
        if operation is not None and clean:
            handled = stop.handled.value if stop.handled is not None else None
            return Suspended(frames[:level], operation, handled)
        inner.index += 1
        inner.stack = rest
        if operation is not None:
            raise Retry(step)
        level -= 1
    return None


def _suspendable(frame: Frame) -> bool:
    if frame.generator is not None or frame.names is not None or frame.function is None:
        return False
    return not frame.code.hidden and not holds_frame(frame.code)


def _handler_of(frame: Frame, index: int) -> list[int]:
    handler = frame.code.handlers[index]
    return [] if handler is None else [handler[0]]


def _describe_frame(
    frame: Frame, index: int, going_on: list[int], templates: Templates, live: list[Template]
) -> FrameLayout:
    describe = templates.template
    live.append(describe(frame.function))
    constructed = frame.constructed is not UNBOUND
    if constructed:
        live.append(describe(frame.constructed))
    wanted = live_slots(frame.code, *going_on)
    slots = tuple(slot for slot, value in enumerate(frame.locals) if value is not UNBOUND and slot in wanted)
    live.extend(describe(frame.locals[slot]) for slot in slots)
    kinds = []
    for value in frame.stack:
        if value is NULL or value is UNBOUND:
            kinds.append("null" if value is NULL else "unbound")
        else:
            kinds.append("value")
            live.append(describe(value))
    live.append(_kept(frame, wanted, templates))
    return FrameLayout(frame.code.raw, index, slots, tuple(kinds), constructed)


def _kept(frame: Frame, wanted: frozenset[int], templates: Templates) -> Template:
    """What a frame keeps alive without reading it again: as far as that costs the graph nothing."""
    pairs: list[Template] = []
    for slot, value in enumerate(frame.locals):
        if value is not UNBOUND and slot not in wanted and templates.is_described(value):
            pairs += (ConstantValue(slot), templates.template(value))
    if not pairs and frame.kept is None:
        return ConstantValue(())
    bound = tuple(slot for slot, value in enumerate(frame.locals) if value is not UNBOUND)
    before = ConstantValue(()) if frame.kept is None else templates.template(frame.kept)
    return templates.call(operations.kept, before, ConstantValue(bound), *pairs)


def place_of(frame: Frame, innermost: bool) -> Place:
    """Where a frame stands: at the instruction that it executes, or that it is about to, if it is `innermost`."""
    raw = frame.code.raw
    line = frame.code.line(frame.index if innermost else frame.index - 1)
    module = frame.globals.get("__name__")
    return Place(raw.co_filename, raw.co_name, raw.co_qualname, line, module if isinstance(module, str) else "")


def rebuild(
    resumption: Resumption,
    values: Sequence[Any],
    raw_values: Sequence[Any],
    cell: Callable[[Any, int], Any] | None = None,
) -> tuple[list[Frame], Any]:
    """The frames, ready to run, and the exception they are handling.

    `values` are what the frames hold, `raw_values` the same as they are outside of capture. What was delivered is on
    the innermost stack (but for an exception, `values[0]`, which is to be raised there). `cell(value, position)`: what
    to put for a cell.
    """
    position = resumption.delivered
    frames = []
    for layout in resumption.frames:
        raw = raw_values[position]
        code = raw.__code__ if code_digest(raw.__code__) == code_digest(layout.code) else layout.code
        decoded = decode(code)
        frame = Frame(decoded, [UNBOUND] * decoded.empty_locals, raw.__globals__, raw.__builtins__)
        frame.function = values[position]
        frame.closure = raw.__closure__
        position += 1
        if layout.constructed:
            frame.constructed = values[position]
            position += 1
        for slot in layout.slots:
            frame.locals[slot] = values[position] if cell is None else cell(values[position], position)
            position += 1
        for kind in layout.stack:
            if kind == "value":
                frame.stack.append(values[position])
                position += 1
            else:
                frame.stack.append(NULL if kind == "null" else UNBOUND)
        frame.kept = values[position]
        position += 1
        frame.index = layout.index
        frames.append(frame)
    inner = frames[-1]
    if resumption.dropped:
        del inner.stack[-resumption.dropped :]
    if not resumption.raised:
        inner.stack.extend(values[: resumption.delivered])
    handled = values[position] if resumption.handled else None
    return frames, handled


def function_positions(resumption: Resumption) -> list[int]:
    """Where the frames' functions stand among the values."""
    position = resumption.delivered
    found = []
    for layout in resumption.frames:
        found.append(position)
        position += 2 + layout.constructed + len(layout.slots) + layout.stack.count("value")
    return found


__all__ = ["Retry", "Suspended", "function_positions", "place_of", "rebuild", "suspend"]
