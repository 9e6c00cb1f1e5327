"""What was changed of what was there before the call: by the program, in overlays, or by native code, underneath."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lampwork.capture.outside.overlay import MISSING, DictOverlay, ListOverlay, SetOverlay, entries
from lampwork.capture.outside.plain import is_plain

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader


def dict_written(overlay: DictOverlay, loader: Loader) -> bool:
    """Whether the program has changed the dict."""
    if overlay.changed:
        return True
    if not overlay.whole:
        return False
    base, copy = overlay.base, overlay.copy
    return list(base) != [key for key, _ in entries(copy)] or not all(
        key in overlay.pending or same(dict.__getitem__(copy, key), overlay.before(key), loader) for key in base
    )


def list_written(overlay: ListOverlay, loader: Loader) -> bool:
    """Whether the program has changed the list, which was loaded whole."""
    copy = list(overlay.base_class.__iter__(overlay.copy))
    return len(copy) != len(overlay.base) or not all(
        same(each, overlay.before(index), loader) for index, each in enumerate(copy)
    )


def set_written(overlay: SetOverlay) -> bool:
    """Whether the program has changed the set: True in place of 1 counts."""
    if overlay.copy != overlay.base:
        return True
    before = {each: each for each in overlay.base}
    return any(each is not before[each] and repr(each) != repr(before[each]) for each in overlay.copy)


def same(now: Any, before: Any, loader: Loader) -> bool:
    """Whether what is stored now is what was stored before, of which `before` is the object or what the program held
    for it."""
    if now is before:
        return True
    origin = loader.by_raw.get(id(before))
    if origin is not None:
        return now is origin.value
    # Equal plain data of the same type: identity of constants is nobody's business.
    return type(now) is type(before) and is_plain(now) and is_plain(before) and repr(now) == repr(before)


def has_changed_anything(world: Any) -> bool:
    """Whether the program has changed state that native code could see."""
    loader = world.loader
    return (
        any(dict_written(overlay, loader) for overlay in loader.dicts.values())
        or any(each.changed or each.state == "settled" and list_written(each, loader) for each in loader.lists.values())
        or any(overlay.settled and overlay.copy != overlay.base for overlay in loader.sets.values())
        or any(overlay.written for overlay in loader.slots.values())
        or any(overlay.written for overlay in loader.cells.values())
        or any(namespace.written for namespace in world.names.namespaces.values())
        or bool(world.recorder.written)
    )


def was_changed(world: Any) -> bool:
    """Whether native code has changed an object that the program looked at."""
    for overlay in world.loader.dicts.values():
        if type(overlay) is DictOverlay and not _same_items(dict(entries(overlay.raw)), overlay.base):
            return True
    for overlay in world.loader.lists.values():
        if type(overlay) is ListOverlay:
            now = list(overlay.base_class.__iter__(overlay.raw))
            if len(now) != len(overlay.base) or any(a is not b for a, b in zip(now, overlay.base)):
                return True
    for namespace in world.names.namespaces.values():
        for name, value in namespace.initial.items():
            raw = namespace.raw.get(name, MISSING)
            if world.loader.current(raw) is not value and not (is_plain(raw) and raw == value):
                return True
    return False


def _same_items(now: dict, before: dict) -> bool:
    return len(now) == len(before) and all(key in now and now[key] is value for key, value in before.items())
