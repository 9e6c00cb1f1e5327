"""Values in C that programs make of plain data with the standard library: dates, digests, pickles, modules by name.

    datetime.date(2024, 1, 2) + datetime.timedelta(days=n)
    uuid.uuid5(namespace, "run")                hashlib.sha256(text.encode()).hexdigest()
    pickle.loads(pickle.dumps({"n": 1}))        __import__("math").pi

They are made and asked natively. One from outside is known by its class alone.
"""

from __future__ import annotations

import _hashlib
import hashlib
import io
import pickle
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.natives.effect_classes import declare
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import DATES, DIGESTS

#: What follows from the time, or from where this machine is.
_OF_HERE = frozenset({
    "now", "today", "utcnow", "fromtimestamp", "utcfromtimestamp", "astimezone", "timestamp", "tzname", "utcoffset",
    "dst",
})  # fmt: skip
_OF_OBJECTS = frozenset({"__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__init_subclass__"})


def _declare(cls: type) -> None:
    declare("data", cls)
    for base in cls.__mro__[:-1]:
        for name, method in vars(base).items():
            if name in _OF_HERE or name in _OF_OBJECTS:
                continue
            if isinstance(method, classmethod) or type(method).__name__ == "classmethod_descriptor":
                declare("data", getattr(cls, name))
            elif callable(method):
                declare("data", method)


for _cls in (*DATES, *DIGESTS):
    _declare(_cls)
for _make in (getattr(hashlib, _name) for _name in hashlib.algorithms_guaranteed):
    if not isinstance(_make, type):
        declare("data", _make)
if hasattr(_hashlib, "new"):
    declare("data", _hashlib.new)


def _import(world: Any, name: Any, globals: Any = None, locals: Any = None, fromlist: Any = (), level: Any = 0) -> Any:
    if type(level) is not int or level or not world.data.is_plain_data(name):
        raise Break("import", "a module is imported by a relative name")
    if fromlist is not None:
        world.touch(fromlist)
    return world.names.import_name(world.machine.frames[-1], name, fromlist, 0)


def _dumps(world: Any, obj: Any, *args: Any, **kwargs: Any) -> bytes:
    """The bytes of plain data."""
    if not _is_plain(world, obj) or not all(map(world.data.is_plain_data, (*args, *kwargs.values()))):
        raise Break("native-argument", "objects are pickled")
    return pickle.dumps(obj, *args, **kwargs)


def _is_plain(world: Any, value: Any) -> bool:
    """Whether `value` consists of plain data that pickling asks nothing, and that has an order."""
    kind = type(value)
    if kind not in (list, tuple, dict):
        return kind in (type(None), bool, int, float, str, bytes)
    world.touch(value)
    parts = [each for pair in value.items() for each in pair] if kind is dict else value
    return all(_is_plain(world, each) for each in parts)


class _PlainUnpickler(pickle.Unpickler):
    """Makes plain data alone."""

    def find_class(self, module: str, name: str) -> Any:
        raise Break("unknown-native", f"{module}.{name} is unpickled")


def _loads(world: Any, data: Any, **kwargs: Any) -> Any:
    if type(data) is not bytes or not all(map(world.data.is_plain_data, kwargs.values())):
        raise Break("native-argument", "pickle.loads is called with an object")
    return _PlainUnpickler(io.BytesIO(data), **kwargs).load()


NATIVES: dict[Any, Answer] = {__import__: _import, pickle.dumps: _dumps, pickle.loads: _loads}
