"""`threading.local`: each thread's own attributes, in a dict that every call reads again, from the caller's thread.

    STATE.depth = getattr(STATE, "depth", 0) + 1        an item of the thread's dict is read, guarded, and stored

One that the program makes is used as it is, and does not leave the region.
"""

from __future__ import annotations

import threading
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.ir.operations import thread_names

_LEFT_TO_NATIVE = frozenset({"__class__", "__doc__", "__module__"})


def _make(world: Any, *args: Any, **kwargs: Any) -> Any:
    made = threading.local(*args, **kwargs)
    world.made_locals[id(made)] = made
    return made


def _names(world: Any, local: Any) -> Any:
    """What the program holds of the dict of the caller's thread; None for an object of the program's own."""
    if id(local) in world.made_locals:
        return None
    origin = world.loader.origin(local)
    if origin is None:
        raise Break("native-attribute", "a threading.local of unknown origin is used")
    for cls in type(local).__mro__[:-1]:
        # Whatever thread comes first runs `__init__`, natively.
        if cls is not threading.local and (not cls.__flags__ & HEAP_TYPE or not vars(cls).keys().isdisjoint(_OWN)):
            raise Break("native-attribute", f"a {cls.__qualname__}, a threading.local that is set up, is used")
    return world.loader.load(thread_names(local), world.sources.thread_names(origin.source))


_OWN = frozenset({"__init__", "__slots__", "__setattr__", "__delattr__", "__getattribute__"})


def _class_entry(world: Any, local: Any, name: str) -> tuple[bool, Any]:
    """Whether its class has the attribute, and what. Raises `Break` for descriptors, which come before the dict."""
    if name == "__dict__":
        raise Break("native-attribute", "the __dict__ of a threading.local is read")
    found, entry = world.class_lookup(type(local), name)
    if found and (hasattr(type(entry), "__set__") or hasattr(type(entry), "__delete__")):
        raise Break("native-attribute", f"{name} of a threading.local is a descriptor")
    return found, entry


def _get(world: Any, local: Any, name: str) -> Any:
    names = None if name in _LEFT_TO_NATIVE else _names(world, local)
    if names is None:
        return threading.local.__getattribute__(local, name)
    found, entry = _class_entry(world, local, name)
    if world.contains(name, names):
        return world.get_item(names, name)
    if found:
        return world.descriptor_get(entry, local, type(local)) if hasattr(type(entry), "__get__") else entry
    raise _missing(local, name)


def _set(world: Any, local: Any, name: str, value: Any) -> None:
    names = _names(world, local)
    if names is None:
        threading.local.__setattr__(local, name, value)
        return
    _class_entry(world, local, name)
    world.set_item(names, name, value)


def _delete(world: Any, local: Any, name: str) -> None:
    names = _names(world, local)
    if names is None:
        threading.local.__delattr__(local, name)
        return
    _class_entry(world, local, name)
    if not world.contains(name, names):
        raise _missing(local, name)
    world.del_item(names, name)


def _missing(local: Any, name: str) -> AttributeError:
    text = f"{type(local).__module__ + '.' if type(local) is threading.local else ''}{type(local).__name__}"
    return AttributeError(f"'{text}' object has no attribute '{name}'", name=name, obj=local)


NATIVES: dict[Any, Answer] = {
    threading.local: _make,
    threading.local.__getattribute__: _get,
    threading.local.__setattr__: _set,
    threading.local.__delattr__: _delete,
}
