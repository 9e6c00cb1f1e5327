"""Built-in functions that look at the frame that calls them: its variables, its globals, its place."""

from __future__ import annotations
import __future__

import _thread
import inspect
import sys
import types
import warnings
from typing import Any

from .errors import Unsupported
from .natives import INTRINSICS, answers, in_user_globals
from .private import keep_builtins
from .values import UNBOUND, is_a

keep_builtins(globals())


@answers(locals)
def _locals(world: Any) -> Any:
    frame = world.machine.user_frame()
    if frame.names is None:
        return frame.variables()
    # From 3.12 on, the variables of a comprehension inlined in a class body or module are in slots.
    inlined = {name: value for name, value in frame.variables().items() if name in frame.code.raw.co_varnames}
    return {**frame.names, **inlined} if inlined else frame.names


@answers(globals)
def _globals(world: Any) -> Any:
    return world.machine.user_frame().globals


@answers(vars)
def _vars(world: Any, *args: Any) -> Any:
    if not args:
        return _locals(world)
    if len(args) > 1:
        return vars(*args)
    value = world.attribute_or(args[0], "__dict__", UNBOUND)
    return vars(*args) if value is UNBOUND else value


@answers(dir)
def _dir(world: Any, *args: Any) -> Any:
    if args:
        return world.call_native(dir, args, {})
    names = _locals(world)
    return sorted(world.collect(world.machine.call(world.attribute(names, "keys"))))


def _namespaces(world: Any, function: str, args: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """(source, globals, locals) of an `eval` or `exec` call, completed from the calling frame."""
    source, *rest = args
    global_names = rest[0] if rest else None
    local_names = rest[1] if len(rest) > 1 else None
    frame = world.machine.user_frame()
    if global_names is None:
        global_names = frame.globals
        if local_names is None:
            local_names = _locals(world)
    elif local_names is None:
        local_names = global_names
    return source, global_names, local_names


def _usual_builtins(global_names: dict[str, Any]) -> bool:
    return type(global_names.get("__builtins__", {})) in (dict, types.ModuleType)


def _evaluator(native: Any) -> None:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if not 1 <= len(args) <= 3 or set(kwargs) - {"globals", "locals", "closure"}:
            return native(*args, **kwargs)
        if "globals" in kwargs or "locals" in kwargs:
            extra = (kwargs.pop("globals", args[1] if len(args) > 1 else None), kwargs.pop("locals", None))
            args = (args[0], *extra)
        frame = world.machine.user_frame()
        if frame is None:
            return native(*args, **kwargs)
        source, global_names, local_names = _namespaces(world, native.__name__, args)
        mapping = hasattr(type(local_names), "__getitem__")
        if type(global_names) is not dict or kwargs or not mapping or not _usual_builtins(global_names):
            return in_user_globals(world, native, (source, global_names, local_names), kwargs)
        if not is_a(source, types.CodeType):
            if not is_a(source, (str, bytes, bytearray, memoryview)):
                return native(source, global_names, local_names)
            if native is eval and is_a(source, str):
                source = source.lstrip(" \t")
            flags = frame.code.raw.co_flags & _FUTURE_FLAGS
            mode = "eval" if native is eval else "exec"
            source = compile(source, "<string>", mode, flags, dont_inherit=True)
        if source.co_freevars or source.co_flags & 0x3A0:
            return native(source, global_names, local_names)
        if "__builtins__" not in global_names:
            global_names["__builtins__"] = frame.builtins
        value = world.machine.run_code(source, global_names, local_names)
        return value if native is eval else None

    INTRINSICS[native] = answer


_FUTURE_FLAGS = 0
for _feature in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _feature).compiler_flag
_FUTURE_FLAGS &= ~0x10  # nested_scopes shares its bit with CO_NESTED

_evaluator(eval)
_evaluator(exec)


@answers(compile)
def _compile(world: Any, *args: Any, **kwargs: Any) -> Any:
    frame = world.machine.user_frame()
    if frame is not None and not kwargs.get("dont_inherit", args[4] if len(args) > 4 else False):
        inherited = frame.code.raw.co_flags & _FUTURE_FLAGS
        if len(args) > 3 and type(args[3]) is not int:
            return compile(*args, **kwargs)
        if len(args) > 3:
            args = (*args[:3], args[3] | inherited, True, *args[5:])
        else:
            kwargs = {**kwargs, "flags": kwargs.get("flags", 0) | inherited, "dont_inherit": True}
    return compile(*args, **kwargs)


@answers(sys._getframe)
def _getframe(world: Any, *args: Any) -> Any:
    depth = args[0] if args else 0
    frame = world.machine.user_frame(max(depth, 0)) if is_a(depth, int) and len(args) < 2 else None
    if frame is None:
        # Beyond the machine's frames lie CPython's own, behind an unknown number of the machine's.
        raise Unsupported(f"sys._getframe({depth})", world.machine.location())
    return world.machine.frame_view(frame)


if hasattr(sys, "_getframemodulename"):

    @answers(sys._getframemodulename)
    def _getframemodulename(world: Any, depth: int = 0) -> Any:
        frame = world.machine.user_frame(depth)
        return None if frame is None else frame.globals.get("__name__")


@answers(warnings.warn)
def _warn(
    world: Any, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **kwargs: Any
) -> None:
    frame = world.machine.user_frame(max(stacklevel, 1) - 1)
    if kwargs or frame is None or not (category is None or is_a(category, type)):
        kwargs = {**kwargs, "stacklevel": stacklevel, "source": source}
        world.call_native(warnings.warn, (message, category), kwargs)
        return
    if is_a(message, Warning):
        category = type(message)
    namespace = frame.globals
    registry = namespace.setdefault("__warningregistry__", {})
    module = namespace.get("__name__") or "<string>"
    category = UserWarning if category is None else category
    if not issubclass(category, Warning):
        warnings.warn(message, category, stacklevel=2)
    warnings.warn_explicit(message, category, frame.filename, frame.line, module, registry, source=source)


@answers(_thread.start_new_thread)
def _start_new_thread(world: Any, *args: Any, **kwargs: Any) -> Any:
    # The machine belongs to its thread: a new thread's code runs in CPython.
    return world.call_native(_thread.start_new_thread, args, kwargs)


@answers(inspect.currentframe)
def _currentframe(world: Any) -> Any:
    return _getframe(world)
