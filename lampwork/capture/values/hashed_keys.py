"""Keys whose class has a `__hash__` or `__eq__` written in Python, where native code puts them into dicts and sets.

    {point: 1}, seen.add(point), points | others, dict(pairs), frozenset(points)

Code that only reads is interpreted first, so that what it reads is guarded, and must agree with what it gives natively.
For any other, the graph breaks: the native call would run it beside the machine.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from lampwork.capture.machine.attributes import find_in_class
from lampwork.capture.outside.keys import only_reads
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_VIEWS: tuple[type, ...] = (
    type({}.keys()), type({}.items()), type(collections.OrderedDict().keys()), type(collections.OrderedDict().items()),
)  # fmt: skip
_HASHED: tuple[Any, ...] = (set, frozenset, dict)


class HashedKeys:
    """What one capture knows of such keys."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world
        #: Hashes of those that were seen: only keys with one of these may meet one.
        self.hashes: set[int] = set()

    def check(self, container: Iterable[Any], key: Any) -> None:
        """Looking `key` up in a container, natively, must run none of the program's Python code."""
        if not self.world.loader.has_identity_hash(key):
            self.check_hash(key)
            self.check_equality(container, key)
        elif self.hashes and find_in_class(type(key), "__hash__") is not None and hash(key) in self.hashes:
            self.check_equality(container, key)

    def check_all(self, *groups: Iterable[Any]) -> None:
        """As `check`, for keys that all go into one container."""
        keys = [key for group in groups for key in group]
        plain = list(map(self.world.loader.has_identity_hash, keys))
        if all(plain):
            return
        for key, is_plain in zip(keys, plain):
            if not is_plain:
                self.check_hash(key)
        met: dict[int, list[Any]] = {}  # keys of other hashes are never compared
        for key in keys:
            try:
                found = met.setdefault(hash(key), [])
            except TypeError:  # as the call itself will say
                continue
            self.check_equality(found, key)
            found.append(key)

    def check_hash(self, key: Any) -> None:
        """Breaks unless hashing and comparing `key` natively runs no Python code, or code that only reads: then it has
        been interpreted once, so that what it reads is guarded, and gave what it gives natively."""
        kind = type(key)
        if kind.__flags__ & HEAP_TYPE and not isinstance(key, (tuple, frozenset)):
            for name in ("__hash__", "__eq__"):
                method = self.world.class_lookup(kind, name)[1]
                if type(method) is FunctionType and not only_reads(method):
                    raise Break("python-hash", f"a {kind.__qualname__} with a {name} of its own is used as a key")
            if type(find_in_class(kind, "__hash__")) is FunctionType:
                found = self.world.machine.call(hash, (key,))
                if int.__ne__(found, hash(key)):
                    raise _changed_key(key)
                self.hashes.add(hash(key))
        if isinstance(key, (tuple, frozenset)):
            for part in key:
                if not self.world.loader.has_identity_hash(part):
                    self.check_hash(part)
                    if find_in_class(type(part), "__hash__") is not None:
                        self.hashes.add(hash(key))

    def check_equality(self, container: Iterable[Any], key: Any) -> None:
        """After `check_hash`: what a look-up of `key` compares it with natively is interpreted, and must agree."""
        try:
            found = hash(key)
        except TypeError:  # it cannot be a key, as the call itself will say
            return
        asked = compares_in_python(key)
        for other in list(container):
            if other is not key and (asked or compares_in_python(other)) and int.__eq__(hash(other), found):
                if self.world.families.container.same(other, key) is not (other == key):
                    raise _changed_key(key)


def compares_in_python(key: Any) -> bool:
    """Whether `==` of a key runs code that the program may have written."""
    if isinstance(key, (tuple, frozenset)) and any(map(compares_in_python, key)):
        return True
    return type(find_in_class(type(key), "__eq__")) is FunctionType and not isinstance(key, enum.Enum)


def _changed_key(key: Any) -> Break:
    kind = type(key).__qualname__
    return Break("python-hash", f"a {kind} that the program has changed, or whose hash is never the same, is a key")


def keys_of(value: Any) -> Iterator[Any]:
    """The elements, or keys, that native code takes from a container: none of anything else."""
    for base in _HASHED:
        if isinstance(value, base):
            return base.__iter__(value)
    return iter(value) if type(value) in (list, tuple, collections.deque, *_VIEWS) else iter(())


def first_of(pairs: Any) -> Iterator[Any]:
    """The keys of what a dict is filled from."""
    if isinstance(pairs, dict):
        return dict.__iter__(pairs)
    pairs = pairs if type(pairs) in (list, tuple) else ()
    return iter([pair[0] for pair in pairs if type(pair) in (list, tuple) and pair])
