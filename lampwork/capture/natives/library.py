"""The standard library: functions of it that capture answers as a whole, and pure ones that it runs on plain data.

What is written in Python there is interpreted like the user's own code. Answers are needed for what is written in C, or
looks at frames, locks and caches which are nobody's business but the library's.
"""

from __future__ import annotations

import _abc
import _collections
import bisect
import functools
import itertools
import json
import operator
import os
import re
import struct
import textwrap
import types
import weakref
from typing import Any

from lampwork.capture.machine import UNBOUND, Answer, InPython
from lampwork.capture.machine.natives import Callback
from lampwork.capture.natives.effect_classes import declare, declare_methods
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.text import UNKNOWN
from lampwork.capture.values.walk import holds

#: Python functions that depend on their arguments alone: run natively where these are plain data.
PURE_FUNCTIONS: frozenset[Any] = frozenset({
    json.loads, textwrap.dedent, textwrap.indent, textwrap.shorten, textwrap.wrap, textwrap.fill,
    re.compile, re.match, re.search, re.fullmatch, re.sub, re.subn, re.split, re.findall, re.finditer, re.escape,
    getattr(re, "_compile", re.compile),
})  # fmt: skip

declare("data", struct.pack, struct.unpack, struct.calcsize, struct.iter_unpack, struct.unpack_from)
declare("holds", operator.attrgetter, operator.itemgetter, operator.methodcaller)
declare("data", memoryview, os.fspath)
declare("holds", type.__init__)
declare_methods("method", types.MappingProxyType, "keys values items __len__ __iter__ copy __reversed__")
declare_methods("keyed", types.MappingProxyType, "get __getitem__ __contains__")
declare_methods("data", bytearray, " ".join(
    name for name, value in vars(bytearray).items() if callable(value) and name not in ("__new__", "__getattribute__")
))  # fmt: skip


# As the library's own versions in Python have it: numbers that vary are compared, and not looked at otherwise. Each is
# written out by itself: what is interpreted in place of a native function calls no function of this package.


def _bisect_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def _bisect_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def _insort_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect.bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def _insort_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect.bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def _cached_property(self: Any, instance: Any, owner: Any = None) -> Any:
    """`functools.cached_property.__get__` without the lock that 3.11 takes."""
    if instance is None:
        return self
    if self.attrname is None:
        raise TypeError("Cannot use cached_property instance without calling __set_name__ on it.")
    try:
        cache = instance.__dict__
    except AttributeError:
        raise TypeError(
            f"No '__dict__' attribute on {type(instance).__name__!r} instance to cache {self.attrname!r} property."
        ) from None
    if self.attrname in cache:
        return cache[self.attrname]
    value = self.func(instance)
    cache[self.attrname] = value
    return value


def _count_elements(mapping: Any, iterable: Any) -> None:
    get = mapping.get
    for element in iterable:
        mapping[element] = get(element, 0) + 1


def _abc_init(world: Any, cls: Any) -> None:
    """Finds the abstract methods of a class that the program is making."""
    if world.loader.class_source(cls) is not None:
        raise Break("class-write", f"the abstract class {cls.__qualname__} from outside is made again")
    _abc._abc_init(cls)


def _abc_register(world: Any, cls: Any, subclass: Any) -> Any:
    if world.loader.class_source(cls) is not None:
        raise Break("class-write", f"a class is registered with {cls.__qualname__}, which is from outside")
    return _abc._abc_register(cls, subclass)


class _Replacement(Callback):
    """A callback whose result native code reads as text: none that is known only when the graph has run."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = super().__call__(*args, **kwargs)
        if holds(result, UNKNOWN):
            raise Break("data-dependent", "a text that is not known yet replaces what a regular expression found")
        return result


def _substitution(native: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple([_Replacement(world, each) if _is_python_callable(world, each) else each for each in args])
        kwargs = {
            name: _Replacement(world, each) if _is_python_callable(world, each) else each
            for name, each in kwargs.items()
        }
        others = [each for each in (*args, *kwargs.values()) if type(each) is not _Replacement]
        if not all(map(world.data.is_data, others)):
            raise Break("native-argument", f"re.{native.__name__} is called with objects")
        return native(*args, **kwargs)

    return answer


def _is_python_callable(world: Any, value: Any) -> bool:
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return True
    return callable(value) and not isinstance(value, str) and world.python_special(value, "__call__") is not UNBOUND


def _groupby(world: Any, *args: Any, **kwargs: Any) -> Any:
    """`itertools.groupby`: its key function is interpreted; keys must compare natively."""
    if not 1 <= len(args) + len(kwargs) <= 2 or kwargs.keys() - {"iterable", "key"}:
        return itertools.groupby(*args, **kwargs)
    iterable = args[0] if args else kwargs["iterable"]
    key = args[1] if len(args) > 1 else kwargs.get("key")

    def checked(value: Any) -> Any:
        found = value if key is None else world.machine.call(key, (value,))
        if not world.data.is_plain_data(found):
            raise Break("comparison", "itertools.groupby compares objects or tensors")
        return found

    return itertools.groupby(world.native_iterable(iterable), checked)


def _bind(world: Any, attribute: Any, obj: Any = None, cls: Any = None) -> Any:
    """`function.__get__(obj, cls)`."""
    return world.descriptor_get(attribute, UNBOUND if obj is None else obj, type(obj) if cls is None else cls)


def _weak_reference(world: Any, *args: Any) -> Any:
    if args and type(args[0]) is Fake and world.loader.origin(args[0]) is None:
        # The graph holds what stands for it longer than the program does.
        raise Break("opaque-value", "a weak reference to a tensor that the program has made")
    return weakref.ReferenceType(args[0], *[death_callback(world, each) for each in args[1:]])


def _dereferenced(world: Any, reference: weakref.ReferenceType) -> Any:
    """What `ref.__call__` gives, also by `super()` in a class derived from it, such as `weakref.WeakMethod`."""
    if id(reference) in world.loader.opaque:
        world.families.opaque.refuse(reference)
    return weakref.ReferenceType.__call__(reference)


def death_callback(world: Any, function: Any) -> Any:
    """The callback of a weak reference: called while the program runs, and never after it."""
    if function is None:
        return None

    def callback(reference: Any) -> None:
        if not world.machine.finished:
            world.machine.call(function, (reference,))

    return callback


def _cache_made(world: Any, *args: Any, **kwargs: Any) -> Any:
    """A function is put behind `functools.lru_cache` inside: the cache is native, the function is not."""
    function, *rest = args
    make: Any = functools._lru_cache_wrapper
    made = make(Callback(world, function), *rest, **kwargs)
    world.made_caches[id(made)] = made
    return made


NATIVES: dict[Any, Answer] = {
    functools.cached_property.__get__: InPython(_cached_property),
    _collections._count_elements: InPython(_count_elements),  # type: ignore[attr-defined]
    bisect.bisect_right: InPython(_bisect_right),
    bisect.bisect_left: InPython(_bisect_left),
    bisect.insort_right: InPython(_insort_right),
    bisect.insort_left: InPython(_insort_left),
    _abc._abc_init: _abc_init,
    _abc._abc_register: _abc_register,
    re.Pattern.sub: _substitution(re.Pattern.sub),
    re.Pattern.subn: _substitution(re.Pattern.subn),
    itertools.groupby: _groupby,
    **{kind.__get__: _bind for kind in (types.FunctionType, classmethod, staticmethod)},
    weakref.ReferenceType: _weak_reference,
    weakref.ReferenceType.__call__: _dereferenced,
    functools._lru_cache_wrapper: _cache_made,  # type: ignore[attr-defined]
}
