"""Methods of containers from outside that need not look at everything in them.

Each is called as `method(world, shadow, *args)` and answers UNBOUND where the container must be loaded whole after all.
"""

from __future__ import annotations

import collections
from typing import Any

from lampwork.capture.machine import UNBOUND
from lampwork.capture.shadow import MISSING, DictShadow, ListShadow


def _shadow_getitem(world: Any, shadow: Any, key: Any) -> Any:
    if type(shadow) is DictShadow:
        value = world.loader.dict_read(shadow, key)
        if value is MISSING:
            if isinstance(shadow.copy, collections.defaultdict):
                return UNBOUND
            raise KeyError(key)
        return value
    if type(shadow) is ListShadow and type(key) is int:
        return world.loader.list_read(shadow, key)
    return UNBOUND


def _shadow_setitem(world: Any, shadow: Any, key: Any, value: Any) -> Any:
    if type(shadow) is DictShadow:
        world.loader.dict_write(shadow, key, value)
        return None
    return UNBOUND


def _shadow_delitem(world: Any, shadow: Any, key: Any) -> Any:
    if type(shadow) is DictShadow:
        if not world.loader.dict_delete(shadow, key):
            raise KeyError(key)
        return None
    return UNBOUND


def _shadow_contains(world: Any, shadow: Any, key: Any) -> Any:
    return world.loader.dict_has(shadow, key) if type(shadow) is DictShadow else UNBOUND


def _shadow_pop(world: Any, shadow: Any, *args: Any) -> Any:
    if type(shadow) is not DictShadow or not 1 <= len(args) <= 2:
        return UNBOUND
    value = world.loader.dict_read(shadow, args[0])
    if value is MISSING:
        if len(args) == 2:
            return args[1]
        raise KeyError(args[0])
    world.loader.dict_delete(shadow, args[0])
    return value


def _shadow_setdefault(world: Any, shadow: Any, key: Any, default: Any = None) -> Any:
    value = world.loader.dict_read(shadow, key)
    if value is MISSING:
        world.loader.dict_write(shadow, key, default)
        return default
    return value


def _shadow_update(world: Any, shadow: Any, *args: Any, **kwargs: Any) -> Any:
    if type(shadow) is not DictShadow or len(args) > 1 or (args and not isinstance(args[0], dict)):
        return UNBOUND
    for source in (*args, kwargs):
        world.touch(source)
        for key, value in source.items():
            world.loader.dict_write(shadow, key, value)
    return None


def _shadow_keys(world: Any, shadow: Any) -> Any:
    world.loader.dict_keys(shadow)
    return dict.keys(shadow.copy) if type(shadow.copy) is dict else shadow.copy.keys()


def _shadow_append(world: Any, shadow: Any, value: Any) -> Any:
    if type(shadow) is ListShadow and type(shadow.copy) is list:
        world.loader.list_append(shadow, [value])
        return None
    return UNBOUND


def _shadow_extend(world: Any, shadow: Any, values: Any) -> Any:
    if type(shadow) is ListShadow and type(shadow.copy) is list and values is not shadow.copy:
        world.loader.list_append(shadow, world.collect(values))
        return None
    return UNBOUND


def _shadow_len(world: Any, shadow: Any) -> Any:
    return world._shadow_length(shadow)


SHADOW_METHODS: dict[Any, Any] = {
    dict.__getitem__: _shadow_getitem, dict.__setitem__: _shadow_setitem, dict.__delitem__: _shadow_delitem,
    collections.OrderedDict.__setitem__: _shadow_setitem, collections.OrderedDict.__delitem__: _shadow_delitem,
    dict.__contains__: _shadow_contains, dict.pop: _shadow_pop, dict.setdefault: _shadow_setdefault,
    collections.OrderedDict.pop: _shadow_pop, collections.OrderedDict.setdefault: _shadow_setdefault,
    dict.update: _shadow_update, collections.OrderedDict.update: _shadow_update, dict.keys: _shadow_keys,
    list.append: _shadow_append, list.extend: _shadow_extend, list.__getitem__: _shadow_getitem,
    list.__len__: _shadow_len, dict.__len__: _shadow_len,
}  # fmt: skip
