"""Iteration, unpacking and the growing of containers, with iterators written in Python interpreted."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from ..bytecode.decode import VERSION
from .attributes import NATIVE_KINDS
from .calls import function_text
from .generators import MachineGenerator
from .operators import BUILTIN
from .private import keep_builtins
from .values import UNBOUND, Part, is_a

keep_builtins(globals())


class InterpretedIterator:
    """Lets native code iterate an object whose `__next__` is written in Python."""

    __slots__ = ("world", "iterator")

    def __init__(self, world: Any, iterator: Any) -> None:
        self.world = world
        self.iterator = iterator

    def __iter__(self) -> InterpretedIterator:
        return self

    def __next__(self) -> Any:
        found, value = self.world.iter_next(self.iterator)
        if not found:
            raise StopIteration
        return value


class SequenceIterator:
    """`iter` of an object that has only a `__getitem__`, written in Python."""

    __slots__ = ("world", "sequence", "index")

    def __init__(self, world: Any, sequence: Any) -> None:
        self.world = world
        self.sequence = sequence
        self.index = 0

    def __iter__(self) -> SequenceIterator:
        return self

    def __next__(self) -> Any:
        if self.sequence is None:
            raise StopIteration
        try:
            value = self.world.machine.complete(self.world.get_item(self.sequence, self.index))
        except (IndexError, StopIteration):
            self.sequence = None
            raise StopIteration from None
        self.index += 1
        return value

    def __reduce__(self) -> Any:
        """Copies and pickles as the native iterator that it stands for."""
        return (iter, ((),)) if self.sequence is None else (iter, (self.sequence,), self.index)

    def __setstate__(self, index: int) -> None:
        self.index = max(index, 0)


class ReversedIterator:
    """`reversed` of an object that has a `__len__` and a `__getitem__` written in Python."""

    __slots__ = ("world", "sequence", "index")

    def __init__(self, world: Any, sequence: Any) -> None:
        self.world = world
        self.sequence = sequence
        self.index = world.machine.complete(world.length(sequence)) - 1

    def __iter__(self) -> ReversedIterator:
        return self

    def __next__(self) -> Any:
        if self.index >= 0:
            try:
                value = self.world.machine.complete(self.world.get_item(self.sequence, self.index))
            except (IndexError, StopIteration):
                pass
            else:
                self.index -= 1
                return value
        self.index, self.sequence = -1, None
        raise StopIteration

    def __length_hint__(self) -> int:
        """How many are left; none, if the sequence has become shorter than that."""
        if self.sequence is None:
            return 0
        length = self.world.machine.complete(self.world.length(self.sequence))
        return self.index + 1 if length >= self.index + 1 else 0

    def __reduce__(self) -> Any:
        """Copies and pickles as the native iterator that it stands for."""
        return (reversed, ((),)) if self.sequence is None else (reversed, (self.sequence,), self.index)

    def __setstate__(self, index: int) -> None:
        if self.sequence is not None:
            length = self.world.machine.complete(self.world.length(self.sequence))
            self.index = min(max(index, -1), length - 1)


def is_own_iterator(value: Any) -> bool:
    """Whether `value` stands for a native iterator: its methods are the machine's, not code to interpret."""
    return type(value) in (InterpretedIterator, SequenceIterator, ReversedIterator)


_NATIVE_ITERABLE = frozenset((list, tuple, dict, str, range, set, frozenset, bytes, map, filter, zip, enumerate))


class Iteration(Part):
    machine: Any

    def get_iter(self, value: Any) -> Any:
        """`iter(value)`."""
        cls = type(value)
        if cls in _NATIVE_ITERABLE or cls is MachineGenerator:
            return iter(value)
        method = self.special(value, "__iter__")
        if method is UNBOUND:
            getter = self.python_special(value, "__getitem__")
            return iter(value) if getter is UNBOUND else SequenceIterator(self, value)
        if method is None or type(method) in NATIVE_KINDS:
            return iter(value)
        iterator = self.call_special(value, method)
        if type(iterator) is not MachineGenerator and self.special(iterator, "__next__") is UNBOUND:
            raise TypeError(f"iter() returned non-iterator of type '{type(iterator).__name__}'")
        return iterator

    def iter_next(self, iterator: Any) -> tuple[bool, Any]:
        """(True, the next value) or (False, None) at the end."""
        method = UNBOUND
        if type(iterator) not in BUILTIN and type(iterator) is not MachineGenerator:
            method = self.python_special(iterator, "__next__")
        try:
            if method is not UNBOUND:
                return True, self.call_special(iterator, method)
            return True, next(iterator)
        except StopIteration:
            return False, None

    def send(self, receiver: Any, value: Any) -> tuple[bool, Any]:
        """One step of `yield from`: (True, what it yields) or (False, what it returns)."""
        try:
            if value is None:
                method = self.python_special(receiver, "__next__")
                if type(receiver) is MachineGenerator or method is UNBOUND:
                    return True, next(receiver)
                return True, self.call_special(receiver, method)
            return True, self.machine.call(self.attribute(receiver, "send"), (value,))
        except StopIteration as stop:
            return False, stop.value

    def native_iterable(self, value: Any) -> Any:
        """An object that native code may iterate without running the user's Python code outside the machine."""
        cls = type(value)
        if cls in _NATIVE_ITERABLE or cls is MachineGenerator:
            return value
        method = self.special(value, "__iter__")
        if method is UNBOUND:
            if self.python_special(value, "__getitem__") is not UNBOUND:
                return SequenceIterator(self, value)
            return value
        if method is None or (type(method) in NATIVE_KINDS and self.python_special(value, "__next__") is UNBOUND):
            return value
        iterator = self.get_iter(value)
        if type(iterator) is not MachineGenerator and self.python_special(iterator, "__next__") is not UNBOUND:
            return InterpretedIterator(self, iterator)
        return iterator

    def collect(self, values: Any, asks: bool = False) -> list[Any]:
        """`list(values)`. `asks`: see `native_elements`."""
        return list(self.native_elements(values) if asks else self.native_iterable(values))

    def native_elements(self, values: Any) -> Any:
        """`native_iterable` for what makes a list of it, and asks how long that will be when it has the iterator: a
        `__len__` or `__length_hint__` written in Python may raise."""
        iterable = self.native_iterable(values)
        if iterable is not values and any(
            self.python_special(values, name) is not UNBOUND for name in ("__len__", "__length_hint__")
        ):
            self.machine.call(operator.length_hint, (values, 8))
        return iterable

    # -- unpacking

    def unpack_sequence(self, value: Any, count: int) -> list[Any]:
        """`a, b = value` for `count` targets, first target first."""
        if type(value) in (tuple, list) and len(value) == count:
            return list(value)
        iterator = self._unpacking_iterator(value)
        values: list[Any] = []
        for position in range(count):
            found, item = self.iter_next(iterator)
            if not found:
                raise ValueError(f"not enough values to unpack (expected {count}, got {position})")
            values.append(item)
        found, _ = self.iter_next(iterator)
        if found:
            given = f", got {len(value)}" if VERSION >= (3, 14) and type(value) in (list, tuple, dict) else ""
            raise ValueError(f"too many values to unpack (expected {count}{given})")
        return values

    def unpack_ex(self, value: Any, before: int, after: int) -> list[Any]:
        """`a, *b, c = value`: first target first, the starred one a list."""
        iterator = self._unpacking_iterator(value)
        values: list[Any] = []
        for position in range(before):
            found, item = self.iter_next(iterator)
            if not found:
                raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {position})")
            values.append(item)
        rest = self.collect(iterator)
        if len(rest) < after:
            raise ValueError(
                f"not enough values to unpack (expected at least {before + after}, got {before + len(rest)})"
            )
        cut = len(rest) - after
        return [*values, rest[:cut], *rest[cut:]]

    def _unpacking_iterator(self, value: Any) -> Any:
        if (
            type(value) is not MachineGenerator
            and self.special(value, "__iter__") is UNBOUND
            and self.special(value, "__getitem__") is UNBOUND
        ):
            raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
        return self.get_iter(value)

    # -- building containers

    def build_list(self, values: list[Any]) -> list[Any]:
        """A new list; `values` is fresh."""
        return values

    def build_set(self, values: list[Any]) -> set[Any]:
        made: set[Any] = set()
        for value in values:
            self.set_add(made, value)
        return made

    def build_map(self, keys: Any, values: list[Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(keys, values):
            self.map_add(made, key, value)
        return made

    def build_slice(self, parts: list[Any]) -> slice:
        return slice(*parts)

    def list_append(self, target: list[Any], value: Any) -> None:
        target.append(value)

    def set_add(self, target: set[Any], value: Any) -> None:
        if type(target) is not set and not is_a(target, set):  # a program has rebound `__conditional_annotations__`
            raise TypeError(f"'{type(target).__name__}' object is not a set")
        set.add(target, value)

    def map_add(self, target: dict[Any, Any], key: Any, value: Any) -> None:
        target[key] = value

    def list_to_tuple(self, values: list[Any]) -> tuple[Any, ...]:
        """`(*a, b)`, of the list that was built."""
        return tuple(values)

    def list_extend(self, target: list[Any], values: Any) -> None:
        """`[*values]`."""
        if (
            type(values) is not MachineGenerator
            and self.special(values, "__iter__") is UNBOUND
            and self.special(values, "__getitem__") is UNBOUND
        ):
            raise TypeError(f"Value after * must be an iterable, not {type(values).__name__}")
        target.extend(self.native_elements(values))

    def set_update(self, target: set[Any], values: Any) -> None:
        target.update(self.native_iterable(values))

    def dict_update(self, target: dict[Any, Any], mapping: Any) -> None:
        """`{**mapping}`."""
        if self._reads_as_dict(mapping):
            target.update(mapping)
            return
        for key, value in self._mapping_pairs(mapping, f"'{type(mapping).__name__}' object is not a mapping"):
            self.map_add(target, key, value)

    def dict_merge(self, target: dict[Any, Any], mapping: Any, function: Any) -> None:
        """`function(**mapping)`: like dict_update, but a repeated key is an error."""
        if self._reads_as_dict(mapping):
            pairs: Any = dict.items(mapping)
        else:
            text = function_text(function)
            pairs = self._mapping_pairs(
                mapping, f"{text} argument after ** must be a mapping, not {type(mapping).__name__}"
            )
        for key, value in pairs:
            if key in target:
                raise TypeError(f"{function_text(function)} got multiple values for keyword argument '{key}'")
            target[key] = value

    def _reads_as_dict(self, mapping: Any) -> bool:
        """Whether native code that copies a mapping takes what a dict holds, asking none of its methods: so it does
        unless the class has an `__iter__` of its own."""
        return is_a(mapping, dict) and self.class_lookup(type(mapping), "__iter__")[1] is dict.__iter__

    def _mapping_pairs(self, mapping: Any, complaint: str) -> Iterator[tuple[Any, Any]]:
        machine = self.machine
        keys = self.attribute_or(mapping, "keys", UNBOUND)
        if keys is UNBOUND:
            raise TypeError(complaint)
        iterator = self.get_iter(machine.call(keys))
        while True:
            found, key = self.iter_next(iterator)
            if not found:
                return
            yield key, machine.complete(self.get_item(mapping, key))
