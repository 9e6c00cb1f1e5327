"""What a program tells the outside: text written to streams, log records, warnings.

All of it happens after the graph, in the program's order (`Call` effects): nobody can tell that a line was printed
later than the objects around it were changed, as long as whoever gets it looks at nothing but what it is handed.
Streams in C and the standard library's log handlers are such; streams written in Python are interpreted. Where other
code is called (a log handler, or `warnings.showwarning`, of somebody's own), all else that the program does must come
either after it or before it, or the graph breaks there.
"""

from __future__ import annotations

import io
import logging
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from lampwork.capture.machine import UNBOUND, Answer, InPython
from lampwork.capture.natives.effect_classes import declare_methods
from lampwork.capture.natives.process_state import WARNING_FILTERS
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE, PLAIN_TYPES, is_plain
from lampwork.capture.values.scalar import Late, Scalar, element
from lampwork.capture.values.sizes import SYMBOLIC
from lampwork.capture.values.text import UNKNOWN
from lampwork.capture.values.unknown_text import UnknownText, joined, snapshot, unknown_text
from lampwork.capture.values.walk import DEPTH, holds
from lampwork.ir.record import record
from lampwork.ir.reference import ObjectRef
from lampwork.ir.template import Call, Effect

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "log": None}
_STREAMS = (io.StringIO, io.TextIOWrapper)
#: Handlers that see of a program what they are handed.
_HANDLERS = frozenset({logging.NullHandler, logging.StreamHandler, logging.FileHandler, type(logging.lastResort)})
_ROTATING = frozenset({"RotatingFileHandler", "TimedRotatingFileHandler"})
_CUSTOM_LOGGER = ("makeRecord", "handle", "callHandlers", "_log", "findCaller", "isEnabledFor", "filter")

declare_methods("method", io.StringIO, "getvalue read readline seek tell truncate close readable writable seekable")


@record(frozen=False)
class Told:
    """One call that waits for the end of the region. `sees`: it may look at more than it is handed.

    `step`: where the graph can break instead. `before`: the effects that came before it, and how often tensors had been
    written, where that matters. `settings`: of a warning, what the program had changed of how warnings are shown.
    """

    function: str
    args: tuple
    sees: bool
    step: int
    before: Any = None
    settings: Any = None


class Output:
    """The calls that wait, in the program's order. `effects()`: all that the program has changed so far."""

    def __init__(self, recorder: Any, machine: Callable[[], Any]) -> None:
        self.recorder = recorder
        self.machine = machine
        self.calls: list[Told] = []
        self.effects: Callable[[], Any] = list

    def tell(self, function: str, *args: Any, sees: bool = False, settings: Any = None) -> None:
        before = (self.effects(), self.recorder.writes) if sees else None
        self.calls.append(Told(function, args, sees, self.machine().steps, before, settings))

    def write(self, stream: Any, text: str) -> None:
        last = self.calls[-1] if self.calls else None
        if last is not None and last.function == "write" and last.args[0] is stream:
            last.args = (stream, joined([last.args[1], text]))
        else:
            self.tell("write", stream, text)

    def come_first(self, changed: Any, wrote: bool, settings: Any) -> bool | int:
        """Whether the calls come before all effects, or else after them; the step to break at, if neither is right.

        `changed`: all that the program changed. `wrote`: whether tensors of the caller are among what it wrote.
        `settings`: what it changed of how warnings are shown.
        """
        for each in self.calls:
            if each.sees and wrote and each.before[1] != self.recorder.writes:
                return each.step
        not_after = [
            each
            for each in self.calls
            if (each.sees and each.before[0] != changed) or (each.settings is not None and each.settings != settings)
        ]
        not_before = [each for each in self.calls if (each.sees and each.before[0][0]) or each.settings]
        if not_after and not_before:
            return min(not_after[0].step, not_before[0].step)
        return bool(not_after)

    def described(self, templates: Any) -> list[Effect]:
        return [
            Call(ObjectRef("function", "lampwork.runtime.leave.post_graph", each.function), templates.items(each.args))
            for each in self.calls
        ]


# Streams --------------------------------------------------------------------------------------------------------------


def _print(*values: Any, sep: Any = None, end: Any = None, file: Any = None, flush: Any = False) -> None:
    """`print`, interpreted."""
    if file is None:
        file = sys.stdout
        if file is None:
            return
    if sep is None:
        sep = " "
    elif not isinstance(sep, str):
        raise TypeError(f"sep must be None or a string, not {type(sep).__name__}")
    if end is None:
        end = "\n"
    elif not isinstance(end, str):
        raise TypeError(f"end must be None or a string, not {type(end).__name__}")
    first = True
    for value in values:
        if not first:
            file.write(sep)
        first = False
        file.write(_text_of_sizes(value) if _mentions_sizes(value) else str(value))
    file.write(end)
    if flush:
        file.flush()


def _mentions_sizes(value: Any) -> bool:
    """Whether sizes that are symbols are printed, in lists and tuples with other numbers and plain data alone. Their
    text is made after the graph, so that they stay symbols; of anything else it might be another one by then."""
    return holds(value, SYMBOLIC) and _has_same_text_later(value)


#: What never changes; lists that are printed are copied.
_NEVER_CHANGE = SYMBOLIC | PLAIN_TYPES | {Scalar, UnknownText}


def _has_same_text_later(value: Any, depth: int = DEPTH) -> bool:
    kind = type(value)
    if kind is list or kind is tuple:
        return depth > 0 and all(_has_same_text_later(each, depth - 1) for each in value)
    return kind in _NEVER_CHANGE


def _text_of_sizes(value: Any) -> str:
    return unknown_text(str, _copied(value))


def _copied(value: Any) -> Any:
    kind = type(value)
    return kind(map(_copied, value)) if kind is list or kind is tuple else value


def _string_io(world: Any, *args: Any, **kwargs: Any) -> Any:
    """A stream of the program's own: it holds what is known while capturing."""
    if len(args) > 1 or kwargs or not all(each is None or type(each) is str for each in args):
        raise Break("native-class", "an io.StringIO with a policy of its own for line ends is made")
    return io.StringIO(*args)


def _write(world: Any, stream: Any, *args: Any) -> Any:
    origin = world.loader.origin(stream)
    if len(args) != 1 or not isinstance(args[0], str):
        return _natively(world, origin, stream.write, args)
    text = args[0]
    if origin is None:
        if type(text) is UnknownText:
            raise Break("data-dependent", "text made of a tensor's contents is kept in a stream")
        return stream.write(text)
    _require_open(world, stream, origin, text)
    world.output.write(stream, text)
    return element(Late(len, (text,)), int) if type(text) is UnknownText else len(text)


def _flush(world: Any, stream: Any, *args: Any) -> Any:
    origin = world.loader.origin(stream)
    if origin is None or args:
        return _natively(world, origin, stream.flush, args)
    _require_open(world, stream, origin, "")
    world.output.tell("flush", stream)
    return None


def _natively(world: Any, origin: Any, method: Any, args: tuple) -> Any:
    if origin is None and world.data.are_data(args, {}):
        return method(*args)
    raise Break("unknown-native", f"{method.__qualname__} is called with {world.data.describe_arguments(args, {})}")


def _require_open(world: Any, stream: Any, origin: Any, text: str) -> None:
    """What can be known of writing before it is done: the stream is open, and has a code for every character."""
    attribute = world.sources.attribute
    if stream.closed:
        raise Break("native-call", "a closed stream is written to")
    world.guards.equals(attribute(origin.source, "closed"), False)
    if isinstance(stream, io.TextIOWrapper) and not all(
        piece.isascii() for piece in (text.pieces if type(text) is UnknownText else (text,)) if type(piece) is str
    ):
        encoding = stream.encoding
        world.guards.equals(attribute(origin.source, "encoding"), encoding)
        if encoding.lower().replace("-", "") != "utf8":
            raise Break("native-call", f"text is written in {encoding}, which may have no code for it")


# Log records ----------------------------------------------------------------------------------------------------------


def _log_at(level: int | None) -> Any:
    def answer(world: Any, logger: Any, *args: Any, **kwargs: Any) -> None:
        if level is None:
            if not args or type(args[0]) is not int:
                raise _logged()
            wanted, args = args[0], args[1:]
        else:
            wanted = level
        if _is_off(world, logger, wanted):
            return
        _log(world, logger, wanted, *args, **kwargs)

    return answer


def _get_logger(world: Any, manager: Any, name: Any) -> Any:
    """A logger that there is already, without the lock under which it would be made."""
    loggers = world.attribute(manager, "loggerDict")
    found = world.machine.call(dict.get, (loggers, name)) if type(name) is str else None
    if not isinstance(found, logging.Logger):
        raise Break("logging", "a logger is made", "Call logging.getLogger outside the compiled function.")
    return found


def _exception(world: Any, logger: Any, *args: Any, **kwargs: Any) -> None:
    if not _is_off(world, logger, logging.ERROR):
        raise _logged()


def _logged() -> Break:
    return Break("logging", "a message is logged", "Log outside the compiled function.")


def _is_off(world: Any, logger: Any, wanted: int) -> bool:
    """Whether messages of a level are off; what decides that is guarded."""
    manager = world.attribute(logger, "manager")
    if world.attribute(logger, "disabled") or world.attribute(manager, "disable") >= wanted:
        return True
    current = logger
    while current is not None:
        threshold = world.attribute(current, "level")
        if threshold:
            return wanted < threshold
        current = world.attribute(current, "parent")
    return False


def _log(world: Any, logger: Any, level: int, message: Any = UNBOUND, *args: Any, **kwargs: Any) -> None:
    """Raises `Break` for records that hold more than plain data, or depend on more than the line they come from."""
    extra = kwargs.pop("extra", None)
    if any(kwargs.pop(name, None) for name in ("exc_info", "stack_info")) or kwargs.pop("stacklevel", 1) != 1 or kwargs:
        raise _logged()
    for name in _CUSTOM_LOGGER:
        if world.class_lookup(type(logger), name)[1] is not getattr(logging.Logger, name):
            raise _logged()
    frame = None
    depth = 0
    while frame is None or frame.code.raw.co_filename == logging.__file__:
        frame = world.machine.user_frame(depth)
        if frame is None:
            raise _logged()
        depth += 1
    place = (frame.code.raw.co_filename, frame.line, frame.code.raw.co_name)
    told = (_kept(world, message), tuple([_kept(world, each) for each in args]), place,
            None if extra is None else _kept(world, extra))  # fmt: skip
    world.output.tell("log", logger, level, *told, sees=_handlers_see(world, logger))


def _kept(world: Any, value: Any) -> Any:
    """The value as it is now: what the program does to it later is not for the record."""
    kind = type(value)
    if kind is torch.Tensor or isinstance(value, torch.Tensor):
        return snapshot(world, value)
    if is_plain(value) or kind in (UnknownText, Scalar, torch.SymInt):
        return value
    if kind in (list, tuple) or isinstance(value, torch.Size):
        return (list if kind is list else tuple)([_kept(world, each) for each in value])
    if kind is dict:
        return {_kept(world, key): _kept(world, each) for key, each in value.items()}
    if isinstance(value, BaseException) and not vars(value) and all(map(is_plain, value.args)):
        base = next(each for each in kind.__mro__ if not each.__flags__ & HEAP_TYPE)
        if base.__basicsize__ == BaseException.__basicsize__:
            return value
    raise _logged()


def _is_plain_handler(kind: type) -> bool:
    """Whether a handler of this class sees of a program what it is handed, and no more. A program with one of
    `logging.handlers` has loaded that module; others need not."""
    rotating = sys.modules.get("logging.handlers")
    return kind in _HANDLERS or (kind.__name__ in _ROTATING and kind is getattr(rotating, kind.__name__, None))


def _handlers_see(world: Any, logger: Any) -> bool:
    """Whether a handler that the record comes to may look at more than it. Which handlers there are is guarded."""
    current = logger
    sees = bool(_contents(world, world.attribute(logger, "filters")))
    while current is not None:
        for handler in _contents(world, world.attribute(current, "handlers")):
            sees = sees or not _is_plain_handler(type(handler)) or _is_dressed(world, handler)
        if not world.attribute(current, "propagate"):
            break
        current = world.attribute(current, "parent")
    return sees


def _is_dressed(world: Any, handler: Any) -> bool:
    if _contents(world, world.attribute(handler, "filters")):
        return True
    formatter = world.attribute(handler, "formatter")
    if formatter is not None and type(formatter) is not logging.Formatter:
        return True
    if isinstance(handler, logging.NullHandler):
        return False
    return not isinstance(world.attribute(handler, "stream"), (*_STREAMS, type(None)))


def _contents(world: Any, values: Any) -> list[Any]:
    world.touch(values)
    return list(values)


# Warnings -------------------------------------------------------------------------------------------------------------


def show_warning(world: Any, message: Any, category: type, stacklevel: int, action: str) -> None:
    """A warning that the filters let out, as far as they can tell before its line's registry is asked."""
    depth = max(stacklevel, 1) - 1
    frames = [world.machine.user_frame(each) for each in range(depth + 1)]
    for inner in frames[:depth]:
        if inner is not None and inner.locals and isinstance(inner.locals[0], torch.nn.Module):
            raise shown()  # frames between a module and its caller are not interpreted
    namespace = world.names.module_namespace(warnings)
    receive = world.names.read(namespace, "_showwarnmsg_impl")
    show = world.names.read(namespace, "showwarning")
    native = getattr(warnings, "_showwarning_orig", None)
    frame = frames[-1]
    if receive is not namespace.initial["_showwarnmsg_impl"]:
        if action != "always" or frame is None or show is not native:
            raise shown()
        made = message if isinstance(message, Warning) else world.machine.call(category, (message,))
        place = frame.code.raw.co_filename, frame.line
        world.machine.call(receive, (world.machine.call(warnings.WarningMessage, (made, category, *place)),))
        return
    sees, settings = show is not native or not _keeps_only(receive), warning_settings(world)
    text = _kept_warning(message)
    if frame is None:
        known = sum(not each.code.hidden for each in world.machine.frames)
        world.output.tell("warn_caller", text, category, depth - known, sees=sees, settings=settings)
        return
    name = frame.globals.get("__name__")
    if not isinstance(name, str) or getattr(sys.modules.get(name), "__dict__", None) is not frame.globals:
        raise shown()
    at = frame.code.raw.co_filename, frame.line, name
    world.output.tell("warn", text, category, at, sees=sees, settings=settings)


def warning_settings(world: Any) -> tuple[Any, ...]:
    """What the program has changed of how warnings are shown; empty where that is nothing."""
    namespace = world.names.module_namespace(warnings)
    changed: list[Any] = [
        (name, id(value)) for name, value in namespace.values.items() if value is not namespace.initial.get(name, world)
    ]
    if WARNING_FILTERS in world.process.touched:
        changed.append(("filters", *map(id, world.names.read(namespace, "filters"))))
    return tuple(changed)


def _keeps_only(receive: Any) -> bool:
    """Whether what gets warnings looks at them alone: Python's own function, or `append` of a list."""
    if isinstance(receive, types.FunctionType):
        return receive.__module__ == "warnings"
    return isinstance(getattr(receive, "__self__", None), list) and isinstance(receive, types.BuiltinFunctionType)


def _kept_warning(message: Any) -> Any:
    if isinstance(message, str):
        return message
    if not all(is_plain(each) for each in message.args) or holds(message.args, UNKNOWN):
        raise shown()
    return message


def shown() -> Break:
    remedy = "Warn outside the compiled function, or filter the warning out while it runs."
    return Break("native-call", "a warning is shown", remedy)


NATIVES: dict[Any, Answer] = {
    print: InPython(_print),
    **{kind.write: _write for kind in _STREAMS},
    **{kind.flush: _flush for kind in _STREAMS},
    _mentions_sizes: lambda world, value: _mentions_sizes(value),
    _text_of_sizes: lambda world, value: _text_of_sizes(value),
    io.StringIO: _string_io,
    **{getattr(logging.Logger, name): _log_at(level) for name, level in _LEVELS.items()},
    logging.Logger.exception: _exception,
    logging.Manager.getLogger: _get_logger,
}
