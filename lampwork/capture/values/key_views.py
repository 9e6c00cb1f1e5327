"""`keys()` of a dict from outside: asked for one key, it guards that key; looked at otherwise, all of them.

name in self.adapters.keys()       guards that the dict has `name`, or not
list(self.adapters.keys())         guards all keys and their order
"""

from __future__ import annotations

import collections
from typing import Any

from lampwork.capture.machine import World
from lampwork.capture.outside.overlay import KeysOverlay
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.objects import ObjectFamily

KEY_VIEWS: frozenset[type] = frozenset({type({}.keys()), type(collections.OrderedDict().keys())})


class KeyViewFamily(ObjectFamily):
    """Views of the keys of dicts."""

    def has(self, cls: type) -> bool:
        return cls in KEY_VIEWS

    def contains(self, item: Any, container: Any) -> Any:
        overlay = self.world.loader.unsettled.get(id(container))
        if type(overlay) is KeysOverlay:
            return self.world.contains(item, overlay.of.copy)
        self.world.touch(container)
        return HANDS_ON

    # -- anything else looks at all keys

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        self.world.touch(left)
        self.world.touch(right)
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
