"""`warnings.warn`: the filters in force let nothing out, make it an exception, or have it shown (`output.py`).

The filters are what the program sees: those from outside are guarded, those it sets under `warnings.catch_warnings` are
its own. That filters were changed, and changed back, is an effect: Python then forgets which warnings it has shown.
"""

from __future__ import annotations

import warnings
from typing import Any

from lampwork.capture.leave.output import show_warning, shown
from lampwork.capture.machine import Answer
from lampwork.capture.natives.process_state import WARNING_FILTERS
from lampwork.capture.outside.overlay import MISSING
from lampwork.capture.values.unknown_text import UnknownText


def _filters_changed(world: Any) -> None:
    world.process.touched[WARNING_FILTERS] = None


def _warn(
    world: Any, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **options: Any
) -> None:
    """Raises what an "error" filter makes of the warning; returns where a filter ignores it. Else raises `Break`."""
    call = world.machine.call
    if isinstance(message, Warning):
        category, text = type(message), call(str, (message,))
    else:
        category, text = UserWarning if category is None else category, message
    if options or not isinstance(text, str) or not (isinstance(category, type) and issubclass(category, Warning)):
        raise shown()
    frame = world.machine.user_frame(max(stacklevel, 1) - 1)
    action = _action(world, text, category, frame)
    if action == "ignore":
        return
    if action != "error":
        show_warning(world, message, category, stacklevel, action)
        return
    raise message if isinstance(message, Warning) else call(category, (text,))


def _action(world: Any, text: str, category: type, frame: Any) -> str:
    """What the first filter that matches says."""
    namespace = world.names.module_namespace(warnings)
    filters = world.names.read(namespace, "filters")
    world.touch(filters)
    for action, about, kind, module, line in list(filters):
        if about is not None and type(text) is UnknownText:
            raise shown()
        if (about is not None and not about.match(text)) or not issubclass(category, kind):
            continue
        if module is not None or line != 0:
            if frame is None:  # whoever calls the compiled function
                raise shown()
            name = frame.globals.get("__name__") or "<unknown>"
            if (module is not None and not module.match(name)) or line not in (0, frame.line):
                continue
        return action
    default = world.names.read(namespace, "defaultaction")
    return "default" if default is MISSING else default


NATIVES: dict[Any, Answer] = {
    warnings.warn: _warn,
    **{
        getattr(warnings, name): _filters_changed
        for name in ("_filters_mutated", "_filters_mutated_lock_held")
        if hasattr(warnings, name)
    },
}
