"""Operations on containers: what a program looks at in a list or dict from outside is loaded first.

Containers of the program's own making, and those from outside that were loaded whole, are ordinary Python objects and
take the machine's own road.
"""

from __future__ import annotations

import collections
import math
import operator
from types import FunctionType
from typing import Any, NoReturn

import torch

from lampwork.capture.base import CaptureWorld
from lampwork.capture.machine import MachineGenerator
from lampwork.capture.machine.iteration import InterpretedIterator, ReversedIterator, SequenceIterator
from lampwork.capture.machine.operators import BUILTIN
from lampwork.capture.natives.conversions import index_of
from lampwork.capture.natives.effect_classes import ITERATORS
from lampwork.capture.outside.keys import only_reads
from lampwork.capture.outside.overlay import MISSING, Break, DictOverlay, ListOverlay, SetOverlay
from lampwork.capture.outside.plain import HEAP_TYPE, has_identity_hash
from lampwork.capture.record.fake import TENSOR_KINDS, Fake
from lampwork.fakes.symbolic import by_contents


def places_written(tensor: Any, key: Any, value: Any) -> tuple[Any, ...] | None:
    """The indices with which `tensor[key] = value` is `index_put_`, for a value whose size contents decide."""
    parts = key if type(key) is tuple else (key,)
    if type(tensor) is not Fake or type(value) is not Fake or not any(map(by_contents, value.size())):
        return None
    if value.dtype != tensor.dtype or value.device != tensor.device:
        return None
    for each in parts:
        whole = type(each) is slice and each.start is each.stop is each.step is None
        if not whole and (type(each) is not Fake or not each.dim() or each.dtype not in _PLACES):
            return None
    masks = [each for each in parts if type(each) is Fake and each.dtype is torch.bool]
    dims = [1 if each.dtype is torch.bool else each.dim() for each in parts if type(each) is Fake]
    indexed = len(dims) + sum(each.dim() - 1 for each in masks)
    if not dims or value.dim() > tensor.dim() - indexed + max(dims):
        return None
    return tuple([None if type(each) is slice else each for each in parts])


def is_condition(tensor: Any, key: Any, value: Any) -> bool:
    """Whether `tensor[key] = value` fills the whole tensor where `key`, a tensor of one boolean, is true; for values
    that `masked_fill_` takes as indexing does."""
    if type(tensor) is not Fake or type(key) is not Fake or key.dim() or key.dtype is not torch.bool:
        return False
    if type(value) is Fake:
        return not value.dim() and value.dtype == tensor.dtype and value.device == tensor.device
    if tensor.dtype in (torch.float32, torch.float64):
        return type(value) in (int, float) and not 3e38 < abs(value) < math.inf
    return tensor.dtype is torch.bool and type(value) is bool


_PLACES = (torch.int64, torch.bool)
_CONTAINERS = (list, dict, set, frozenset, tuple, collections.deque)
#: What is indexed with numbers, natively.
_INDEXED = (list, tuple, str, bytes, bytearray, range, collections.deque, *TENSOR_KINDS)
_SAFE_ITERATORS = frozenset({
    *ITERATORS, map, filter, MachineGenerator, InterpretedIterator, ReversedIterator, SequenceIterator,
})  # fmt: skip


class Containers(CaptureWorld):
    def touch(self, value: Any) -> Any:
        """`value`, loaded whole if it is a container from outside."""
        if id(value) in self.loader.unsettled:
            self.loader.settle(value)
        elif id(value) in self.loader.opaque:
            self.refuse(value)
        return value

    def refuse(self, value: Any) -> NoReturn:
        kind = type(value)
        raise Break("opaque-value", f"a {kind.__module__}.{kind.__qualname__} from outside the program is used",
                    "Pass plain data, tensors or objects of Python classes.")  # fmt: skip

    # -- items

    def get_item(self, container: Any, key: Any) -> Any:
        if isinstance(container, _INDEXED):
            key = index_of(self, key)
        overlay = self.loader.unsettled.get(id(container))
        if overlay is not None and _own_method(container, "__getitem__"):
            if type(overlay) is ListOverlay:
                if type(key) is int:
                    return self.loader.list_read(overlay, key)
                self.loader.list_settle(overlay)
            elif type(overlay) is DictOverlay:
                value = self.loader.dict_read(overlay, key)
                if value is not MISSING:
                    return value
                if isinstance(container, collections.defaultdict):
                    self.loader.dict_settle(overlay)
                elif type(container) in (dict, collections.OrderedDict) or not hasattr(type(container), "__missing__"):
                    raise KeyError(key)
        elif id(container) in self.loader.opaque:
            self.refuse(container)
        elif type(container) in TENSOR_KINDS:
            return container[self.tensor_key(key)]
        return super().get_item(container, key)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        if isinstance(container, _INDEXED):
            key = index_of(self, key)
        overlay = self.loader.unsettled.get(id(container))
        if overlay is not None and _own_method(container, "__setitem__"):
            if type(overlay) is DictOverlay:
                self.loader.dict_write(overlay, key, value)
                return
            self.touch(container)
        elif id(container) in self.loader.opaque:
            self.refuse(container)
        elif type(container) in TENSOR_KINDS:
            key = self.tensor_key(key)
            places = places_written(container, key, value)
            if places is not None:
                container.index_put_(places, value)  # torch would ask whether there is just one
            elif is_condition(container, key, value):
                container.masked_fill_(key, value)  # torch would look at the condition
            else:
                container[key] = value
            return
        self.check_key(container, key)
        super().set_item(container, key, value)

    def del_item(self, container: Any, key: Any) -> None:
        if isinstance(container, _INDEXED):
            key = index_of(self, key)
        overlay = self.loader.unsettled.get(id(container))
        if overlay is not None and _own_method(container, "__delitem__"):
            if type(overlay) is DictOverlay:
                if not self.loader.dict_delete(overlay, key):
                    raise KeyError(key)
                return
            self.touch(container)
        super().del_item(container, key)

    def tensor_key(self, key: Any) -> Any:
        """An index of a tensor: everything in it loaded, nothing but plain data and tensors."""
        if type(key) is slice or type(key) is tuple:
            if not self.is_data(key):
                parts = key if type(key) is tuple else (key,)
                sized = [self.with_sizes(each) if type(each) is slice else each for each in parts]
                key = tuple(sized) if type(key) is tuple else sized[0]
        if not self.is_data(key):
            raise Break("tensor-argument", f"a tensor is indexed with a {type(key).__name__}")
        return key

    def check_key(self, container: Any, key: Any) -> None:
        """Hashing `key` natively must run none of the program's Python code."""
        if isinstance(container, (dict, set, frozenset)) and not has_identity_hash(key):
            self._check_python_hash(key)
            self.check_key_equality(container, key)

    def _check_python_hash(self, key: Any) -> None:
        """Breaks unless hashing and comparing `key` natively runs no Python code, or code that only reads: then it has
        been interpreted once, so that what it reads is guarded, and gave what it gives natively."""
        kind = type(key)
        if kind.__flags__ & HEAP_TYPE and not isinstance(key, (tuple, frozenset)):
            for name in ("__hash__", "__eq__"):
                method = getattr(kind, name)
                if type(method) is FunctionType and not only_reads(method):
                    raise Break("python-hash", f"a {kind.__qualname__} with a {name} of its own is used as a key")
            if type(kind.__hash__) is FunctionType:
                found = self.machine.call(hash, (key,))
                if int.__ne__(found, hash(key)):
                    raise _changed_key(key)
        if isinstance(key, (tuple, frozenset)):
            for part in key:
                if not has_identity_hash(part):
                    self._check_python_hash(part)

    def check_key_equality(self, container: Any, key: Any) -> None:
        """After `check_key`: what a look-up of `key` compares it with natively is interpreted, and must agree."""
        if type(type(key).__eq__) is not FunctionType:
            return
        for other in list(container):
            if other is not key and int.__eq__(hash(other), hash(key)):
                if self._same(other, key) is not (other == key):
                    raise _changed_key(key)

    # A container that is being built may come from outside as well: its comprehension was divided by a break.

    def list_append(self, target: list, value: Any) -> None:
        overlay = self.loader.unsettled.get(id(target))
        if type(overlay) is ListOverlay:
            self.loader.list_append(overlay, (value,))
        else:
            target.append(value)

    def map_add(self, target: dict, key: Any, value: Any) -> None:
        overlay = self.loader.unsettled.get(id(target))
        if type(overlay) is DictOverlay:
            self.loader.dict_write(overlay, key, value)
            return
        self.check_key(target, key)
        super().map_add(target, key, value)

    def set_add(self, target: set, value: Any) -> None:
        self.loader.settle(target)
        self.check_key(target, value)
        super().set_add(target, value)

    # -- questions

    def contains(self, item: Any, container: Any) -> bool:
        overlay = self.loader.unsettled.get(id(container))
        if overlay is not None and type(overlay) is DictOverlay and _own_method(container, "__contains__"):
            return self.loader.dict_has(overlay, item)
        self.touch(container)
        if isinstance(container, (list, tuple, collections.deque)) and _own_method(container, "__contains__"):
            return self._sequence_contains(item, container)
        self.check_key(container, item)
        return super().contains(item, container)

    def _sequence_contains(self, item: Any, container: Any) -> bool:
        if self.is_plain_data(item) and self.is_plain_data(container):
            return item in container
        for element in list(container):
            if element is item:
                return True
            if self.truth(self.machine.complete(self.compare_op(operator.eq, element, item))):
                return True
        return False

    def compare_elements(self, function: Any, args: tuple) -> Any:
        """A method of a sequence that compares its elements (`list.index`), which are objects or tensors."""
        name = getattr(function, "__name__", "")
        op = _COMPARISONS.get(name)
        if op is not None and len(args) == 2:
            return self._compare_containers(op, *args)
        if name == "__contains__" and len(args) == 2:
            return self._sequence_contains(args[1], args[0])
        if name in ("index", "count", "remove") and len(args) >= 2:
            sequence, item, *bounds = args
            elements = list(sequence)
            if name == "count":
                return sum([self._same(element, item) for element in elements])
            start, stop = (*bounds, None, None)[:2]
            for position in range(*slice(start, stop).indices(len(elements))):
                if self._same(elements[position], item):
                    if name == "index":
                        return position
                    del sequence[position]
                    return None
            kind = next(base for base in (list, tuple, collections.deque) if isinstance(sequence, base))
            if kind is tuple or (kind is list and name == "remove"):
                raise ValueError(f"{kind.__name__}.{name}(x): x not in {kind.__name__}")
            raise ValueError(f"{self.machine.call(repr, (item,))} is not in {kind.__name__}")
        raise Break("comparison", f"{name} of a {type(args[0]).__name__} compares objects or tensors")

    def length(self, value: Any) -> int:
        overlay = self.loader.unsettled.get(id(value))
        if overlay is not None and _own_method(value, "__len__"):
            return self._overlay_length(overlay)
        if id(value) in self.loader.opaque:
            self.refuse(value)
        return super().length(value)

    def _overlay_length(self, overlay: Any) -> int:
        if type(overlay) is SetOverlay:
            return len(self.loader.set_settle(overlay))
        if type(overlay) is ListOverlay and overlay.state == "appended":
            return len(self.loader.list_settle(overlay))
        if not (type(overlay) is DictOverlay and overlay.whole):
            self.guards.length_is(overlay.source, len(overlay.base))
        return len(overlay.copy) if type(overlay) is ListOverlay else dict.__len__(overlay.copy)

    def truth(self, value: Any) -> bool:
        if id(value) in self.loader.unsettled and _own_method(value, "__len__"):
            if not hasattr(type(value), "__bool__"):
                return self.length(value) != 0
        return super().truth(value)

    def is_(self, left: Any, right: Any) -> bool:
        if left is right:
            return True
        first, second = self.loader.origin(left), self.loader.origin(right)
        if first is not None and second is not None and type(left) is type(right):
            self.guards.distinct((first.source, second.source))
        return False

    # -- operators

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        unsettled = self.loader.unsettled
        if id(left) in unsettled or id(right) in unsettled or self.loader.opaque:
            self.touch(left)
            self.touch(right)
        return super().binary_op(op, left, right)

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        unsettled = self.loader.unsettled
        if id(left) in unsettled or id(right) in unsettled or self.loader.opaque:
            self.touch(left)
            self.touch(right)
        return super().inplace_op(op, left, right)

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        if isinstance(left, _CONTAINERS) or isinstance(right, _CONTAINERS):
            self.touch(left)
            self.touch(right)
            if not (self.is_plain_data(left) and self.is_plain_data(right)):
                return self._compare_containers(op, left, right)
        elif self.loader.opaque and (id(left) in self.loader.opaque or id(right) in self.loader.opaque):
            if op in (operator.eq, operator.ne) and has_identity_hash(left) and has_identity_hash(right):
                same = self.is_(left, right)
                return same if op is operator.eq else not same
            self.touch(left)
            self.touch(right)
        return super().compare_op(op, left, right)

    def _compare_containers(self, op: Any, left: Any, right: Any) -> Any:
        """Containers with tensors or objects in them: element by element through the machine, as their C code does."""
        base = _sequence_base(left)
        if base is not None and base is _sequence_base(right):
            return self._compare_elements(op, list(base.__iter__(left)), list(base.__iter__(right)))
        if type(left) is not type(right) or op not in (operator.eq, operator.ne):
            if type(left).__eq__ in _NATIVE_EQUALITY and type(right).__eq__ in _NATIVE_EQUALITY:
                if op is operator.eq and not isinstance(left, type(right)) and not isinstance(right, type(left)):
                    return False
                if op is operator.ne and not isinstance(left, type(right)) and not isinstance(right, type(left)):
                    return True
            if not isinstance(left, _CONTAINERS) or not isinstance(right, _CONTAINERS):
                return super().compare_op(op, left, right)
            raise Break("comparison", "containers of objects are compared")
        if isinstance(left, dict) and _own_method(left, "__eq__"):
            if not all(has_identity_hash(key) for key in [*left, *right]):
                raise Break("comparison", "dicts with objects as keys are compared")
            if isinstance(left, collections.OrderedDict) and list(left) != list(right):
                equal = False
            else:
                equal = dict.keys(left) == dict.keys(right) and all(
                    self._same(dict.__getitem__(left, key), dict.__getitem__(right, key)) for key in list(left)
                )
        elif isinstance(left, (set, frozenset)) and all(has_identity_hash(each) for each in [*left, *right]):
            equal = left == right
        else:
            return super().compare_op(op, left, right)
        return equal if op is operator.eq else not equal

    def _compare_elements(self, op: Any, left: list, right: list) -> Any:
        equality = op in (operator.eq, operator.ne)
        if equality and len(left) != len(right):
            return op is operator.ne
        for mine, other in zip(left, right):
            if not self._same(mine, other):
                return op is operator.ne if equality else self.compare_op(op, mine, other)
        return op(len(left), len(right))

    def _same(self, left: Any, right: Any) -> bool:
        return left is right or self.truth(self.machine.complete(self.compare_op(operator.eq, left, right)))

    # -- iteration

    def get_iter(self, value: Any) -> Any:
        overlay = self.loader.unsettled.get(id(value))
        if overlay is not None:
            if type(overlay) is DictOverlay and _own_method(value, "__iter__"):
                self.loader.dict_keys(overlay)
                return dict.__iter__(value) if type(value) is dict else super().get_iter(value)
            self.loader.settle(value)
        elif id(value) in self.loader.opaque:
            return value if type(value) in ITERATORS and self.walks.follows(value) else self.refuse(value)
        elif type(value) in TENSOR_KINDS:
            return iter(value)
        return super().get_iter(value)

    def iter_next(self, iterator: Any) -> tuple[bool, Any]:
        kind = type(iterator)
        if kind in _SAFE_ITERATORS:
            if id(iterator) in self.loader.opaque:
                return self.walks.advance(iterator) if self.walks.follows(iterator) else self.refuse(iterator)
            try:
                return True, next(iterator)
            except StopIteration:
                return False, None
        if kind.__flags__ & (1 << 9):
            return super().iter_next(iterator)
        raise Break("opaque-value", f"an iterator of type {kind.__module__}.{kind.__qualname__} is advanced")

    def native_iterable(self, value: Any) -> Any:
        if type(self.loader.unsettled.get(id(value))) is DictOverlay:
            return self.get_iter(value)  # keys alone
        if id(value) in self.loader.opaque and type(value) in ITERATORS and self.walks.follows(value):
            return InterpretedIterator(self, value)
        self.touch(value)
        if type(value) in TENSOR_KINDS:
            return list(value)
        return super().native_iterable(value)

    def unpack_sequence(self, value: Any, count: int) -> list[Any]:
        if type(value) in TENSOR_KINDS:
            return super().unpack_sequence(list(value), count)
        return super().unpack_sequence(self.touch(value), count)

    def unpack_ex(self, value: Any, before: int, after: int) -> list[Any]:
        return super().unpack_ex(self.touch(value), before, after)

    def list_extend(self, target: list, values: Any) -> None:
        super().list_extend(self.loader.settle(target), self.touch(values))

    def list_to_tuple(self, values: list) -> tuple:
        return super().list_to_tuple(self.touch(values))

    def set_update(self, target: set, values: Any) -> None:
        super().set_update(self.loader.settle(target), self.touch(values))

    def dict_update(self, target: dict, mapping: Any) -> None:
        super().dict_update(self.loader.settle(target), self.touch(mapping))

    def dict_merge(self, target: dict, mapping: Any, function: Any) -> None:
        super().dict_merge(self.loader.settle(target), self.touch(mapping), function)

    def positional_arguments(self, function: Any, values: Any) -> tuple:
        return super().positional_arguments(function, self.touch(values))

    def mapping_lookup(self, mapping: Any, key: Any) -> Any:
        self.touch(mapping)
        return super().mapping_lookup(mapping, key)


def _changed_key(key: Any) -> Break:
    kind = type(key).__qualname__
    return Break("python-hash", f"a {kind} that the program has changed, or whose hash is never the same, is a key")


#: Methods of sequences that are comparisons.
_COMPARISONS = {
    "__eq__": operator.eq, "__ne__": operator.ne, "__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt,
    "__ge__": operator.ge,
}  # fmt: skip


def _sequence_base(value: Any) -> Any:
    """list, tuple or deque where the value's class compares as that does; else None."""
    for base in (list, tuple, collections.deque):
        if isinstance(value, base):
            cls = type(value)
            same = all(getattr(cls, name) is getattr(base, name) for name in _COMPARISONS)
            return base if same else None
    return None


_NATIVE_EQUALITY = (
    object.__eq__, list.__eq__, tuple.__eq__, dict.__eq__, set.__eq__, str.__eq__, int.__eq__, float.__eq__,
    frozenset.__eq__, type(None).__eq__, bool.__eq__, bytes.__eq__,
)  # fmt: skip


def _own_method(container: Any, name: str) -> bool:
    """Whether the container's class keeps the builtin method `name`."""
    cls = type(container)
    return (
        cls in BUILTIN
        or cls in (collections.OrderedDict, collections.defaultdict, collections.deque)
        or (type(getattr(cls, name, None)).__name__ != "function")
    )
