"""Methods of containers from outside that need not look at everything in them.

Each is called as `method(world, overlay, *args)` and answers UNBOUND where the container must be loaded whole after
all.
"""

from __future__ import annotations

import collections
from typing import Any

from lampwork.capture.machine import UNBOUND
from lampwork.capture.outside.overlay import MISSING, DictOverlay, KeysOverlay, ListOverlay

#: Of views of keys, those of ordered dicts too.
_IN_KEYS: Any = type({}.keys()).__contains__
_OWN_KEYS = frozenset({dict.keys, collections.OrderedDict.keys})


def _overlay_getitem(world: Any, overlay: Any, key: Any) -> Any:
    if type(overlay) is DictOverlay:
        value = world.loader.dict_read(overlay, key)
        if value is MISSING:
            if isinstance(overlay.copy, collections.defaultdict):
                return UNBOUND
            raise KeyError(key)
        return value
    if type(overlay) is ListOverlay and type(key) is int:
        return world.loader.list_read(overlay, key)
    return UNBOUND


def _overlay_setitem(world: Any, overlay: Any, key: Any, value: Any) -> Any:
    if type(overlay) is DictOverlay:
        world.loader.dict_write(overlay, key, value)
        return None
    return UNBOUND


def _overlay_delitem(world: Any, overlay: Any, key: Any) -> Any:
    if type(overlay) is DictOverlay:
        if not world.loader.dict_delete(overlay, key):
            raise KeyError(key)
        return None
    return UNBOUND


def _overlay_contains(world: Any, overlay: Any, key: Any) -> Any:
    if type(overlay) is KeysOverlay:
        overlay = overlay.of
    return world.loader.dict_has(overlay, key) if type(overlay) is DictOverlay else UNBOUND


def _overlay_pop(world: Any, overlay: Any, *args: Any) -> Any:
    if type(overlay) is not DictOverlay or not 1 <= len(args) <= 2:
        return UNBOUND
    value = world.loader.dict_read(overlay, args[0])
    if value is MISSING:
        if len(args) == 2:
            return args[1]
        raise KeyError(args[0])
    world.loader.dict_delete(overlay, args[0])
    return value


def _overlay_setdefault(world: Any, overlay: Any, key: Any, default: Any = None) -> Any:
    value = world.loader.dict_read(overlay, key)
    if value is MISSING:
        world.loader.dict_write(overlay, key, default)
        return default
    return value


def _overlay_update(world: Any, overlay: Any, *args: Any, **kwargs: Any) -> Any:
    if type(overlay) is not DictOverlay or len(args) > 1 or (args and not isinstance(args[0], dict)):
        return UNBOUND
    for source in (*args, kwargs):
        world.touch(source)
        for key, value in source.items():
            world.loader.dict_write(overlay, key, value)
    return None


def _overlay_keys(world: Any, overlay: Any) -> Any:
    if type(overlay.copy).keys not in _OWN_KEYS:  # a class of the program's has a view of its own
        world.loader.dict_keys(overlay)
        return overlay.copy.keys()
    return world.loader.keys_view(overlay)


def _overlay_append(world: Any, overlay: Any, value: Any) -> Any:
    if type(overlay) is ListOverlay and type(overlay.copy) is list:
        world.loader.list_append(overlay, [value])
        return None
    return UNBOUND


def _overlay_extend(world: Any, overlay: Any, values: Any) -> Any:
    if type(overlay) is ListOverlay and type(overlay.copy) is list and values is not overlay.copy:
        world.loader.list_append(overlay, world.collect(values, asks=True))
        return None
    return UNBOUND


def _overlay_len(world: Any, overlay: Any) -> Any:
    return world.families.container.overlay_length(overlay)


SHADOW_METHODS: dict[Any, Any] = {
    dict.__getitem__: _overlay_getitem, dict.__setitem__: _overlay_setitem, dict.__delitem__: _overlay_delitem,
    collections.OrderedDict.__setitem__: _overlay_setitem, collections.OrderedDict.__delitem__: _overlay_delitem,
    dict.__contains__: _overlay_contains, dict.pop: _overlay_pop, dict.setdefault: _overlay_setdefault,
    _IN_KEYS: _overlay_contains,
    collections.OrderedDict.pop: _overlay_pop, collections.OrderedDict.setdefault: _overlay_setdefault,
    dict.update: _overlay_update, collections.OrderedDict.update: _overlay_update, dict.keys: _overlay_keys,
    list.append: _overlay_append, list.extend: _overlay_extend, list.__getitem__: _overlay_getitem,
    list.__len__: _overlay_len, dict.__len__: _overlay_len,
}  # fmt: skip
