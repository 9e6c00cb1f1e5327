"""`keys()` of a dict from outside: asked for one key, it guards that key; looked at otherwise, all of them.

name in self.adapters.keys()       guards that the dict has `name`, or not
list(self.adapters.keys())         guards all keys and their order

And `values()` and `items()`, which compare values: those of objects are compared by the machine.
"""

from __future__ import annotations

import collections
import gc
import operator
import types
from typing import Any

from lampwork.capture.machine import World
from lampwork.capture.outside.overlay import Break, KeysOverlay
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.hashed_keys import keys_of
from lampwork.capture.values.objects import ObjectFamily

KEY_VIEWS: frozenset[type] = frozenset({type({}.keys()), type(collections.OrderedDict().keys())})
_ITEM_VIEWS: tuple[type, ...] = (type({}.items()), type(collections.OrderedDict().items()))
_VALUE_VIEWS: frozenset[type] = frozenset({
    *_ITEM_VIEWS, type({}.values()), type(collections.OrderedDict().values()),
})  # fmt: skip


def _held(proxy: types.MappingProxyType) -> Any:
    """What it is a view of, which only C code tells."""
    return next(iter(gc.get_referents(proxy)))


class KeyViewFamily(ObjectFamily):
    """Views of the keys of dicts."""

    def has(self, cls: type) -> bool:
        return cls in KEY_VIEWS

    def contains(self, item: Any, container: Any) -> Any:
        overlay = self.world.loader.unsettled.get(id(container))
        if type(overlay) is KeysOverlay:
            return self.world.contains(item, overlay.of.copy)
        self.world.touch(container)
        self.world.families.container.keys.check(container, item)
        return HANDS_ON

    # -- anything else looks at all keys

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        self.world.touch(left)
        self.world.touch(right)
        self.world.families.container.keys.check_all(keys_of(left), keys_of(right))
        return HANDS_ON

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        return self.binary(op, left, right)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        return self.binary(op, left, right)

    def text(self, value: Any, function: Any) -> Any:
        self.world.touch(value)
        return HANDS_ON

    def format(self, value: Any, spec: Any) -> Any:
        return self.text(value, format)

    def truth(self, value: Any) -> bool:
        return World.truth(self.world, self.world.touch(value))

    def length(self, value: Any) -> int:
        return World.length(self.world, self.world.touch(value))

    def iterate(self, value: Any) -> Any:
        return World.get_iter(self.world, self.world.touch(value))

    def iterable(self, value: Any) -> Any:
        return World.native_iterable(self.world, self.world.touch(value))

    def unpacked(self, value: Any) -> Any:
        return self.world.touch(value)

    def load_attr(self, value: Any, name: str) -> Any:
        # Methods that are called on it come to the natives, which touch what they are given.
        return super().load_attr(value if name == "__contains__" else self.world.touch(value), name)


class ValueViewFamily(ObjectFamily):
    """Views of the values of dicts, and of their items; and views of whole mappings."""

    def has(self, cls: type) -> bool:
        return cls in _VALUE_VIEWS or cls is types.MappingProxyType

    def get_item(self, container: Any, key: Any) -> Any:
        self._check_lookup(container, key)
        return super().get_item(container, key)

    def _check_lookup(self, container: Any, key: Any) -> None:
        if type(container) is types.MappingProxyType:
            self.world.families.container.keys.check(keys_of(_held(container)), key)

    def contains(self, item: Any, container: Any) -> Any:
        world = self.world
        if type(container) not in _VALUE_VIEWS:
            self._check_lookup(container, item)
            return HANDS_ON
        if world.data.is_plain_data(item) and all(map(world.data.is_plain_data, container)):
            return HANDS_ON
        found = list(container)
        if type(container) in _ITEM_VIEWS:
            if not isinstance(item, tuple) or tuple.__len__(item) != 2:
                return False
            key, item = tuple.__iter__(item)
            world.families.container.keys.check([each for each, _ in found], key)
            code = hash(key)
            found = [value for each, value in found if each is key or (hash(each) == code and each == key)]
        for value in found:
            if world.families.container.same(value, item):
                return True
        return False

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        world = self.world
        for each in (left, right):
            if type(each) is types.MappingProxyType and not world.data.is_plain_data(_held(each)):
                raise Break("comparison", "a view of a mapping that holds objects is compared")
        if type(left) not in _ITEM_VIEWS or world.data.is_plain_data(list(left)) and world.data.is_plain_data(right):
            return HANDS_ON
        if type(right) not in _ITEM_VIEWS or op not in (operator.eq, operator.ne):
            raise Break("comparison", "the items of a dict, which are objects, are compared")
        equal = len(left) == len(right) and all(world.contains(each, right) for each in left)
        return equal if op is operator.eq else not equal

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        for each in (left, right):
            if type(each) in _ITEM_VIEWS and not self.world.data.is_plain_data(list(each)):
                raise Break("comparison", "the items of a dict, which are objects, are combined")
        return HANDS_ON
