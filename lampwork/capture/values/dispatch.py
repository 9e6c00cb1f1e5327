"""`Dispatcher`: which family says what an operation means.

    a + b        the families of both classes, best rank first, until one does not hand on; then Python (`World`)
    a[k], -a     the family of `a`

    texts that are keys     open_texts.py
    unknown texts           text.py
    numbers                 scalars.py
    arrays                  arrays.py
    symbols                 sizes.py
    tensor subclasses       subclasses.py
    tensors                 tensors.py
    containers              containers.py
    views of keys           key_views.py
    anything else           objects.py

An object from outside of which only the class is known is told by its identity and refuses before all others
(`opaque.py`).
"""

from __future__ import annotations

import array
import collections
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import numpy
import torch

from lampwork.capture.machine import UNBOUND, Frame, MachineGenerator, World
from lampwork.capture.machine.iteration import InterpretedIterator, ReversedIterator, SequenceIterator
from lampwork.capture.natives.effect_classes import ITERATORS
from lampwork.capture.outside.identity import MANY_EQUAL, same_data
from lampwork.capture.outside.open_text import OpenText
from lampwork.capture.outside.open_text import fixed as closed
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.values.arrays import ArrayFamily
from lampwork.capture.values.classes import Classes
from lampwork.capture.values.containers import ContainerFamily
from lampwork.capture.values.family import HANDS_ON, Family
from lampwork.capture.values.hashed_keys import keys_of
from lampwork.capture.values.key_views import KeyViewFamily, ValueViewFamily
from lampwork.capture.values.modules import ModuleFamily
from lampwork.capture.values.objects import NamespaceFamily, ObjectFamily
from lampwork.capture.values.opaque import OpaqueFamily
from lampwork.capture.values.open_texts import OpenTextFamily
from lampwork.capture.values.scalar import Scalar, is_backed, taken, taken_in
from lampwork.capture.values.scalars import ScalarFamily
from lampwork.capture.values.sizes import SizeFamily, number
from lampwork.capture.values.special_methods import asks_itself, index_of, indices_of
from lampwork.capture.values.subclasses import SubclassFamily
from lampwork.capture.values.tensors import TensorFamily
from lampwork.capture.values.text import TextFamily
from lampwork.capture.values.unknown_array import UnknownArray, unsupported
from lampwork.capture.values.walk import classes_in, holds

if TYPE_CHECKING:
    from lampwork.capture.machine import Natives
    from lampwork.capture.outside.guards import GuardList
    from lampwork.capture.outside.load import Loader
    from lampwork.capture.record.recorder import Recorder
    from lampwork.capture.world import TorchWorld

#: What is indexed with numbers, natively.
_INDEXED = (list, tuple, str, bytes, bytearray, range, collections.deque, memoryview, array.array)
_SAFE_ITERATORS = frozenset({
    *ITERATORS, map, filter, MachineGenerator, InterpretedIterator, ReversedIterator, SequenceIterator,
})  # fmt: skip


class Families(dict[type, Family]):
    """The families of a world, and to which of them the values of a class belong."""

    def __init__(self, world: TorchWorld) -> None:
        self.open_text = OpenTextFamily(world)
        self.text = TextFamily(world)
        self.scalar = ScalarFamily(world)
        self.array = ArrayFamily(world)
        self.size = SizeFamily(world)
        self.subclass = SubclassFamily(world)
        self.tensor = TensorFamily(world)
        self.container = ContainerFamily(world)
        self.key_view = KeyViewFamily(world)
        self.value_view = ValueViewFamily(world)
        self.module = ModuleFamily(world)
        self.namespace = NamespaceFamily(world)
        self.plain = ObjectFamily(world)
        self.opaque = OpaqueFamily(world)
        #: Classes of what stands for numbers and texts.
        self.stand_ins = self.open_text.stand_ins | self.text.stand_ins | self.scalar.stand_ins | self.size.stand_ins
        #: Whom an operation on two values asks first. A number from outside beside an array is taken as it is now, so
        #: the array sees a float.
        self.ranked = (
            self.open_text, self.text, self.scalar, self.array, self.size, self.subclass, self.tensor, self.container,
            self.key_view, self.value_view, self.module, self.namespace,
        )  # fmt: skip
        #: Those that native functions are asked of, by class of values: numbers first, for arrays take known ones only.
        self.of_natives = {
            cls: each for each in (self.open_text, self.scalar, self.size, self.array) for cls in each.stand_ins
        }

    def __missing__(self, cls: type) -> Family:
        found = self[cls] = next((each for each in self.ranked if each.has(cls)), self.plain)
        return found

    def given(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> list[Family]:
        """Those that are asked about a native call, in order: of the values that it is given, one walk tells."""
        values = [*args, *kwargs.values()]
        if type(function) is BuiltinFunctionType and type(function.__self__) is torch.Size:
            values.append(function.__self__)
        found = classes_in(values, self.of_natives)
        if not found:
            return []
        return list(dict.fromkeys(family for cls, family in self.of_natives.items() if cls in found))


class Answers(dict[tuple[type, type], tuple[Any, ...]]):
    """Who is asked about one operation on values of two classes: methods of families, best rank first."""

    def __init__(self, families: Families, operation: str) -> None:
        self.families, self.operation = families, operation
        self.opaque = getattr(families.opaque, operation)

    def __missing__(self, classes: tuple[type, type]) -> tuple[Any, ...]:
        asked = {self.families[cls] for cls in classes}
        says = [each for each in self.families.ranked if each in asked and self._says(each)]
        found = self[classes] = tuple([getattr(each, self.operation) for each in says])
        return found

    def _says(self, family: Family) -> bool:
        return getattr(type(family), self.operation) is not getattr(Family, self.operation)


class Dispatcher(World):
    """A world that asks families what operations mean."""

    recorder: Recorder
    guards: GuardList
    loader: Loader

    def __init__(self, natives: Natives, families: Families, classes: Classes) -> None:
        super().__init__(natives)
        self.families, self.classes = families, classes
        self._binary = Answers(self.families, "binary")
        self._inplace = Answers(self.families, "inplace")
        self._compare = Answers(self.families, "compare")
        self._contains = Answers(self.families, "contains")

    def family(self, value: Any) -> Family:
        """The family that an operation on one value is asked of."""
        return self.families.opaque if id(value) in self.loader.opaque else self.families[type(value)]

    def type_of(self, value: Any) -> type:
        """`type(value)` as the program sees it."""
        return self.families[type(value)].kind(value)

    @property
    def has_symbols(self) -> bool:
        return bool(self.recorder.sizes)

    # -- two values

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        for answer in self._asked(self._binary, left, right):
            found = answer(op, left, right)
            if found is not HANDS_ON:
                return found
        return World.binary_op(self, op, left, right)

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        for answer in self._asked(self._inplace, left, right):
            found = answer(op, left, right)
            if found is not HANDS_ON:
                return found
        return World.inplace_op(self, op, left, right)

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        for answer in self._asked(self._compare, left, right):
            found = answer(op, left, right)
            if found is not HANDS_ON:
                return found
        return World.compare_op(self, op, left, right)

    def contains(self, item: Any, container: Any) -> bool:
        for answer in self._asked(self._contains, item, container):
            found = answer(item, container)
            if found is not HANDS_ON:
                return found
        return World.contains(self, item, container)

    def _asked(self, answers: Answers, left: Any, right: Any) -> tuple[Any, ...]:
        opaque = self.loader.opaque
        if opaque and (id(left) in opaque or id(right) in opaque):
            return (answers.opaque, *answers[type(left), type(right)])
        return answers[type(left), type(right)]

    def is_(self, left: Any, right: Any) -> bool:
        kind = type(left)
        if kind is OpenText or type(right) is OpenText:
            return left is not None and right is not None and self.is_(closed(left), closed(right))
        if kind in MANY_EQUAL and kind is type(right):
            frames = self.machine.frames
            return same_data(self.loader, left, right, frames[-1].code.raw.co_consts if frames else ())
        if left is right:
            return True
        if kind in self.families.stand_ins or type(right) in self.families.stand_ins:
            return self._same_number(left, right)
        first, second = self.loader.origin(left), self.loader.origin(right)
        if first is not None and second is not None and type(left) is type(right):
            self.guards.distinct((first.source, second.source))
        return False

    def _same_number(self, left: Any, right: Any) -> bool:
        """`left is right`, one of which is a number or a text that may vary."""
        if left is None or right is None:
            return False
        kinds = {self.type_of(left), self.type_of(right)}
        if kinds == {bool}:
            return self.truth(left) is self.truth(right)
        if len(kinds) > 1:
            return False
        raise Break("data-identity", "whether a number that may vary is the same object as another is asked")

    # -- one value

    def unary_op(self, op: Any, value: Any) -> Any:
        return self.family(value).unary(op, value)

    def truth(self, value: Any) -> bool:
        return self.family(value).truth(value)

    def branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> bool:
        return self.family(value).branch(frame, value, if_true, if_false)

    def length(self, value: Any) -> int:
        return self.family(value).length(value)

    def get_item(self, container: Any, key: Any) -> Any:
        if type(key) is OpenText:
            return self.families.open_text.found(container, key)
        return self.family(container).get_item(container, key)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        self.family(container).set_item(container, closed(key), value)

    def del_item(self, container: Any, key: Any) -> None:
        self.family(container).del_item(container, closed(key))

    def native_key(self, container: Any, key: Any, value: Any = None) -> Any:
        """A key or an index, at which `value` may be stored, as native code takes it: numbers are what they are now."""
        if isinstance(container, _INDEXED):
            key = index_of(self, key)
        kind = type(key)
        if kind is UnknownArray or (kind is tuple and holds(key, self.families.array.stand_ins)):
            raise unsupported("an index made")
        if type(container) is numpy.ndarray:
            key = indices_of(self, key)
            if holds((key, value), self.families.array.stand_ins):
                raise unsupported("an item")
            if any(map(asks_itself, key if kind is tuple else (key,))):
                raise unsupported("an index made of an object")
        if is_backed(key) and isinstance(container, (*_INDEXED, dict)):
            return key.take()
        if kind is slice and isinstance(container, _INDEXED):
            key = slice(*map(taken, (key.start, key.stop, key.step)))
        return number(taken_in(key) if kind is tuple else key)

    # -- iteration

    def get_iter(self, value: Any) -> Any:
        return self.family(value).iterate(value)

    def iter_next(self, iterator: Any) -> tuple[bool, Any]:
        kind = type(iterator)
        if kind in _SAFE_ITERATORS:
            if id(iterator) in self.loader.opaque:
                return self.families.opaque.advance(iterator)
            try:
                return True, next(iterator)
            except StopIteration:
                return False, None
        if kind.__flags__ & HEAP_TYPE:
            return World.iter_next(self, iterator)
        raise Break("opaque-value", f"an iterator of type {kind.__module__}.{kind.__qualname__} is advanced")

    def native_iterable(self, value: Any) -> Any:
        return self.family(value).iterable(value)

    def collect(self, values: Any, asks: bool = False) -> list[Any]:
        if type(values) in _SAFE_ITERATORS:
            self.machine.steps += 1  # it stands elsewhere afterwards: the step is no longer at its beginning
        return World.collect(self, values, asks)

    def unpack_sequence(self, value: Any, count: int) -> list[Any]:
        return World.unpack_sequence(self, self.family(value).unpacked(value), count)

    def unpack_ex(self, value: Any, before: int, after: int) -> list[Any]:
        return World.unpack_ex(self, self.family(value).unpacked(value), before, after)

    # -- what containers are built of, which is looked at

    def touch(self, value: Any) -> Any:
        """`value`, loaded whole if it is a container from outside."""
        if id(value) in self.loader.unsettled:
            self.loader.settle(value)
        elif id(value) in self.loader.opaque:
            self.families.opaque.refuse(value)
        return value

    def list_append(self, target: list, value: Any) -> None:
        self.families.container.append(target, value)

    def map_add(self, target: dict, key: Any, value: Any) -> None:
        self.families.container.add_pair(target, closed(key), value)

    def set_add(self, target: set, value: Any) -> None:
        self.families.container.add(target, closed(value))

    def list_extend(self, target: list, values: Any) -> None:
        World.list_extend(self, self.loader.settle(target), self.family(values).unpacked(values))

    def list_to_tuple(self, values: list) -> tuple:
        return World.list_to_tuple(self, self.touch(values))

    def set_update(self, target: set, values: Any) -> None:
        values = self.family(values).unpacked(values)
        if type(values) in _SAFE_ITERATORS:
            for each in self.native_iterable(values):
                self.set_add(target, each)
            return
        self.families.container.keys.check_all(self.loader.settle(target), keys_of(values))
        World.set_update(self, target, values)

    def dict_update(self, target: dict, mapping: Any) -> None:
        self.families.container.keys.check_all(self.loader.settle(target), keys_of(self.touch(mapping)))
        World.dict_update(self, target, mapping)

    def dict_merge(self, target: dict, mapping: Any, function: Any) -> None:
        World.dict_merge(self, self.loader.settle(target), self.touch(mapping), function)

    def positional_arguments(self, function: Any, values: Any) -> tuple:
        return World.positional_arguments(self, function, self.family(values).unpacked(values))

    def mapping_lookup(self, mapping: Any, key: Any) -> Any:
        return World.mapping_lookup(self, self.touch(mapping), key)

    # -- attributes

    def load_attr(self, obj: Any, name: str) -> Any:
        return self.families[type(obj)].load_attr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> None:
        self.families[type(obj)].store_attr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        self.families[type(obj)].delete_attr(obj, name)

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        return self.families[type(obj)].instance_lookup(obj, name)

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        self.families[type(obj)].instance_store(obj, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        self.families[type(obj)].instance_delete(obj, name)

    def class_lookup(self, cls: type, name: str) -> tuple[bool, Any]:
        found = self.loader.classes.found.get((id(cls), name))
        return self.loader.classes.lookup(cls, name) if found is None else found

    def raise_missing(self, obj: Any, name: str) -> None:
        self.loader.classes.note_names(obj if isinstance(obj, type) else self.type_of(obj), "__name__")
        World.raise_missing(self, obj, name)

    def note_bases(self, cls: Any, asked: Any = None) -> None:
        self.loader.classes.note_bases(cls, asked)

    def super_lookup(self, start: type, after: type, name: str) -> tuple[bool, Any]:
        return self.loader.classes.super_lookup(start, after, name)

    def type_store(self, cls: type, name: str, value: Any) -> None:
        self.classes.store(cls, name, value)

    def type_delete(self, cls: type, name: str) -> None:
        self.classes.delete(cls, name)

    def descriptor_get(self, attribute: Any, obj: Any, cls: type) -> Any:
        return self.classes.get_through(attribute, obj, cls)

    def store_through_descriptor(self, obj: Any, name: str, value: Any) -> bool:
        return self.classes.store_through(obj, name, value)

    def delete_through_descriptor(self, obj: Any, name: str) -> bool:
        return self.classes.delete_through(obj, name)

    def python_special(self, obj: Any, name: str) -> Any:
        """The methods that `Scalar` has are for native code: those of a number are C's."""
        return UNBOUND if type(obj) is Scalar else World.python_special(self, obj, name)


__all__ = ["Dispatcher"]
