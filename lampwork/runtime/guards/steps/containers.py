"""Steps into builtin containers: items, and keys by their position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lampwork.ir.source import InstanceDict, Item, KeyAt, is_source
from lampwork.runtime.guards.interpreter import item, key_at, read
from lampwork.runtime.guards.memory_words import LIST_ITEMS, LIST_SIZE, Unstable, word
from lampwork.runtime.guards.rules import StepRule, step_rule
from lampwork.runtime.guards.version_snapshots import KEEP_ORDER

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots

#: Types whose `x[k]`, `len(x)` and `k in x` are the builtin container's own.
EXACT = (dict, list, tuple, set, frozenset, str, bytes, range)


@step_rule(Item)
class ItemRule(StepRule[Item]):
    def read(self, source: Item, scope: Scope) -> Any:
        return item(read(source.base, scope), read(source.key, scope) if is_source(source.key) else source.key)

    def text(self, writer: CheckWriter, source: Item) -> str:
        base, key = source.base, source.key
        value = writer.load(base)
        position = writer.load(key) if is_source(key) else writer.literal(key)
        if isinstance(base, InstanceDict) or writer.type_of(base) in EXACT or _inherits_item(writer.type_of(base)):
            return f"{value}[{position}]"
        return f"reading.item({value}, {position})"

    def snapshot(self, snapshots: VersionSnapshots, source: Item) -> Any:
        container = snapshots.value(source.base)
        key = snapshots.value(source.key) if is_source(source.key) else source.key
        if isinstance(container, dict):
            found = item(container, key)
            snapshots.entry(container, key)
            return found
        if type(container) is tuple or snapshots.is_class_dict(container):
            return container[key]
        if type(container) is list and type(key) is int:
            found = container[key]
            snapshots.words(id(container) + LIST_ITEMS, 8)
            snapshots.words(id(container) + LIST_SIZE, 8)
            index = key if key >= 0 else len(container) + key
            snapshots.slot(word(id(container) + LIST_ITEMS) + 8 * index, found)
            return found
        raise Unstable(f"items of a {type(container).__name__}")


def _inherits_item(cls: type | None) -> bool:
    """`x[k]` on instances of `cls` is the builtin container's own method."""
    if cls is None:
        return False
    own = getattr(cls, "__getitem__", None)
    if issubclass(cls, dict):
        return own is dict.__getitem__ and not hasattr(cls, "__missing__")
    return (issubclass(cls, list) and own is list.__getitem__) or (issubclass(cls, tuple) and own is tuple.__getitem__)


@step_rule(KeyAt)
class KeyAtRule(StepRule[KeyAt]):
    def read(self, source: KeyAt, scope: Scope) -> Any:
        return key_at(read(source.base, scope), source.index)

    def text(self, writer: CheckWriter, source: KeyAt) -> str:
        return f"{writer.keys(source.base)}[{source.index}]"

    def snapshot(self, snapshots: VersionSnapshots, source: KeyAt) -> Any:
        container = snapshots.value(source.base)
        if type(container) not in KEEP_ORDER:
            raise Unstable("keys in an order that no version covers")
        snapshots.keys(container)
        return key_at(container, source.index)
