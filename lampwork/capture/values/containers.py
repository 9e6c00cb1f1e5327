"""Operations on containers: what a program looks at in a list or dict from outside is loaded first.

Containers of the program's own making, and those from outside that were loaded whole, are ordinary Python objects and
take the machine's own road.
"""

from __future__ import annotations

import collections
import operator
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.machine import UNBOUND, World
from lampwork.capture.machine.attributes import find_in_class
from lampwork.capture.machine.operators import BUILTIN, COMPARISON_METHODS, IN_PLACE
from lampwork.capture.outside.overlay import MISSING, Break, DictOverlay, ListOverlay, SetOverlay
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.values.container_texts import text_of_container
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.hashed_keys import HashedKeys, keys_of
from lampwork.capture.values.key_views import KEY_VIEWS
from lampwork.capture.values.objects import ObjectFamily
from lampwork.capture.values.scalar import Scalar
from lampwork.capture.values.set_order import in_its_own_order, in_order
from lampwork.capture.values.sizes import SYMBOLIC, number
from lampwork.capture.values.special_methods import is_object, is_python
from lampwork.capture.values.unbacked_numbers import as_sizes
from lampwork.capture.values.walk import holds
from lampwork.fakes.symbolic import size_of

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_CONTAINERS = (list, dict, set, frozenset, tuple, collections.deque)
_HASHED = (dict, set, frozenset)
_SEQUENCES = frozenset({tuple, list, torch.Size})
_IN_C = frozenset({collections.OrderedDict, collections.defaultdict, collections.deque})
_NUMBERS = frozenset({Scalar})


def _sizes_of(world: TorchWorld, value: Any) -> Any:
    """An operand of what makes a `torch.Size`."""
    return as_sizes(world.recorder, value) if type(value) is tuple else value


class ContainerFamily(ObjectFamily):
    """Lists, dicts, sets, tuples, queues, and objects of classes that derive from these; slices, which hold values."""

    def __init__(self, world: TorchWorld) -> None:
        super().__init__(world)
        self.keys = HashedKeys(world)

    def has(self, cls: type) -> bool:
        return issubclass(cls, _CONTAINERS) or cls is slice

    # -- conversions

    def text(self, value: Any, function: Any) -> Any:
        found = text_of_container(self.world, value)
        return HANDS_ON if found is None else found

    def format(self, value: Any, spec: Any) -> Any:
        if type(spec) is str and not spec and isinstance(value, (list, tuple, set, dict)):
            if type(self.world.special(value, "__format__")) is not FunctionType:
                return self.world.machine.call(str, (value,))
        return HANDS_ON

    # -- operators: all elements are looked at

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        self.world.touch(left)
        self.world.touch(right)
        if isinstance(left, (set, frozenset)):
            in_its_own_order(self.world, left)
            if op is not operator.sub:
                in_its_own_order(self.world, right)
        if isinstance(left, _HASHED) and isinstance(right, (*_HASHED, *KEY_VIEWS)):
            self.keys.check_all(keys_of(left), keys_of(right))
        if op is operator.add and torch.Size in (type(left), type(right)) and holds((left, right), _NUMBERS):
            left, right = [_sizes_of(self.world, each) for each in (left, right)]
            return World.binary_op(self.world, op, left, right)
        return HANDS_ON

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        return self.binary(IN_PLACE[op], left, right)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        world = self.world
        if holds(left, SYMBOLIC) or holds(right, SYMBOLIC):
            if op in (operator.eq, operator.ne) and type(left) in _SEQUENCES and type(right) in _SEQUENCES:
                return self._compare_sequences(op, left, right)
            one, other = number(left), number(right)
            if one is not left or other is not right:
                return world.compare_op(op, one, other)
        if not isinstance(left, _CONTAINERS) and not isinstance(right, _CONTAINERS):
            return HANDS_ON
        for value, method in zip((left, right), COMPARISON_METHODS[op]):
            world.touch(value)
            if type(value).__flags__ & HEAP_TYPE:
                world.class_lookup(type(value), method)  # that it has none of its own
        if not (world.data.is_plain_data(left) and world.data.is_plain_data(right)):
            return self._compare_containers(op, left, right)
        return HANDS_ON

    def _compare_sequences(self, op: Any, left: Any, right: Any) -> bool:
        equal = isinstance(left, tuple) == isinstance(right, tuple) and len(left) == len(right)
        if equal:
            for one, other in zip(left, right):
                if one is not other and not self.world.truth(self.world.compare_op(operator.eq, one, other)):
                    equal = False
                    break
        return equal if op is operator.eq else not equal

    def _compare_containers(self, op: Any, left: Any, right: Any) -> Any:
        """Containers with tensors or objects in them: element by element through the machine, as their C code does."""
        base = _sequence_base(left)
        if base is not None and base is _sequence_base(right):
            return self._compare_elements(op, list(base.__iter__(left)), list(base.__iter__(right)))
        if isinstance(left, (set, frozenset)) and isinstance(right, (set, frozenset)):
            self.keys.check_all(keys_of(left), keys_of(right))
            return World.compare_op(self.world, op, left, right)
        if type(left) is not type(right) or op not in (operator.eq, operator.ne):
            if _has_native_equality(left) and _has_native_equality(right):
                if op is operator.eq and not isinstance(left, type(right)) and not isinstance(right, type(left)):
                    return False
                if op is operator.ne and not isinstance(left, type(right)) and not isinstance(right, type(left)):
                    return True
            if not isinstance(left, _CONTAINERS) or not isinstance(right, _CONTAINERS):
                return HANDS_ON
            raise Break("comparison", "containers of objects are compared")
        if isinstance(left, dict) and self.has_method(left, "__eq__"):
            keys, others = list(keys_of(left)), list(keys_of(right))  # what C reads, whatever `__iter__` says
            if not all(self.world.loader.has_identity_hash(key) for key in [*keys, *others]):
                raise Break("comparison", "dicts with objects as keys are compared")
            if isinstance(left, collections.OrderedDict) and keys != others:
                equal = False
            else:
                equal = dict.keys(left) == dict.keys(right) and all(
                    self.same(dict.__getitem__(left, key), dict.__getitem__(right, key)) for key in keys
                )
        else:
            return World.compare_op(self.world, op, left, right)
        return equal if op is operator.eq else not equal

    def _compare_elements(self, op: Any, left: list, right: list) -> Any:
        equality = op in (operator.eq, operator.ne)
        if equality and len(left) != len(right):
            return op is operator.ne
        for mine, other in zip(left, right):
            if not self.same(mine, other):
                return op is operator.ne if equality else self.world.compare_op(op, mine, other)
        return op(len(left), len(right))

    def same(self, left: Any, right: Any) -> bool:
        return left is right or self.world.truth(
            self.world.machine.complete(self.world.compare_op(operator.eq, left, right))
        )

    def has_method(self, container: Any, name: str) -> bool:
        """Whether the container's class keeps the builtin method `name`; guarded."""
        cls = type(container)
        if cls in BUILTIN or cls in _IN_C:
            return True
        return type(self.world.class_lookup(cls, name)[1]) is not FunctionType

    def truth(self, value: Any) -> bool:
        if id(value) in self.world.loader.unsettled and self.has_method(value, "__len__"):
            if not self.world.class_lookup(type(value), "__bool__")[0]:
                return not self._is_empty(value)
        return World.truth(self.world, value)

    def _is_empty(self, value: Any) -> bool:
        """Of a container from outside; how many items it has is another question."""
        overlay = self.world.loader.unsettled[id(value)]
        if not isinstance(overlay, (DictOverlay, ListOverlay)) or overlay.changed:
            return self.length(value) == 0
        if not (isinstance(overlay, DictOverlay) and overlay.whole):
            self.world.guards.is_empty(overlay.source, not overlay.base)
        return not overlay.base

    # -- items

    def get_item(self, container: Any, key: Any) -> Any:
        loader = self.world.loader
        if type(key) is torch.SymInt:
            found = self._chosen(container, key)
            if found is not MISSING:
                return found
        key = self.world.native_key(container, self.world.families.scalar.only_index(container, key))
        overlay = loader.unsettled.get(id(container))
        if overlay is not None and self.has_method(container, "__getitem__"):
            if type(overlay) is ListOverlay:
                if type(key) is int:
                    return loader.list_read(overlay, key)
                loader.list_settle(overlay)
            elif type(overlay) is DictOverlay:
                value = loader.dict_read(overlay, key)
                if value is not MISSING:
                    return value
                if isinstance(container, collections.defaultdict):
                    loader.dict_settle(overlay)
                elif (
                    type(container) in (dict, collections.OrderedDict)
                    or not (self.world.class_lookup(type(container), "__missing__")[0])
                ):
                    raise KeyError(key)
        if isinstance(container, collections.defaultdict) and is_python(container.default_factory):
            return self._defaulted(container, key)
        self.check_key(container, key)
        return World.get_item(self.world, container, key)

    def _chosen(self, container: Any, key: torch.SymInt) -> Any:
        """`container[key]` for an integer from outside: where that only chooses what is read, what lies there on each
        call; else `MISSING`."""
        overlay = self.world.loader.unsettled.get(id(container))
        if not isinstance(overlay, (DictOverlay, ListOverlay)) or not self.has_method(container, "__getitem__"):
            return MISSING
        sizes = self.world.recorder.sizes
        source = sizes.place_of(key)
        return MISSING if source is None else self.world.loader.read_chosen(overlay, source, sizes.hint(size_of(key)))

    def _defaulted(self, container: Any, key: Any) -> Any:
        """`container[key]` of a dict whose missing values a function of the program makes."""
        if any(self.world.python_special(container, name) is not UNBOUND for name in ("__getitem__", "__missing__")):
            return World.get_item(self.world, container, key)
        self.check_key(container, key)
        if not dict.__contains__(container, key):
            self.set_item(container, key, self.world.machine.call(container.default_factory, ()))
        return dict.__getitem__(container, key)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        key = self.world.native_key(container, key)
        if type(key) is slice and is_object(value):
            value = self.world.native_iterable(value)
        overlay = self.world.loader.unsettled.get(id(container))
        if overlay is not None and self.has_method(container, "__setitem__"):
            if type(overlay) is DictOverlay:
                self.world.loader.dict_write(overlay, key, value)
                return
            self.world.touch(container)
        self.check_key(container, key)
        World.set_item(self.world, container, key, value)

    def del_item(self, container: Any, key: Any) -> None:
        key = self.world.native_key(container, key)
        overlay = self.world.loader.unsettled.get(id(container))
        if overlay is not None and self.has_method(container, "__delitem__"):
            if type(overlay) is DictOverlay:
                if not self.world.loader.dict_delete(overlay, key):
                    raise KeyError(key)
                return
            self.world.touch(container)
        self.check_key(container, key)
        World.del_item(self.world, container, key)

    def check_key(self, container: Any, key: Any) -> None:
        """Hashing `key` natively must run none of the program's Python code."""
        if isinstance(container, (dict, set, frozenset)):
            self.keys.check(container, key)

    def check_keys(self, keys: Any, key: Any) -> None:
        """As `check_key`, for a container from outside: hashes of its own keys are guarded, too."""
        for each in list(keys):
            if not self.world.loader.has_identity_hash(each):
                self.keys.check_hash(each)
        self.check_key(keys, key)

    # -- containers that are being built. They may come from outside: their comprehension was divided by a break.

    def append(self, target: list, value: Any) -> None:
        overlay = self.world.loader.unsettled.get(id(target))
        if type(overlay) is ListOverlay:
            self.world.loader.list_append(overlay, (value,))
        else:
            target.append(value)

    def add_pair(self, target: dict, key: Any, value: Any) -> None:
        key = number(key)
        overlay = self.world.loader.unsettled.get(id(target))
        if type(overlay) is DictOverlay:
            self.world.loader.dict_write(overlay, key, value)
            return
        self.check_key(target, key)
        World.map_add(self.world, target, key, value)

    def add(self, target: set, value: Any) -> None:
        value = number(value)
        self.world.loader.settle(target)
        self.check_key(target, value)
        World.set_add(self.world, target, value)

    # -- questions

    def contains(self, item: Any, container: Any) -> Any:
        if not isinstance(container, (list, tuple)):
            known = number(item)
            if known is not item:
                return self.world.contains(known, container)
        if not isinstance(container, _CONTAINERS):
            return HANDS_ON
        overlay = self.world.loader.unsettled.get(id(container))
        if overlay is not None and type(overlay) is DictOverlay and self.has_method(container, "__contains__"):
            return self.world.loader.dict_has(overlay, item)
        self.world.touch(container)
        if isinstance(container, (list, tuple, collections.deque)) and self.has_method(container, "__contains__"):
            return self._sequence_contains(item, container)
        self.check_key(container, item)
        return HANDS_ON

    def _sequence_contains(self, item: Any, container: Any) -> bool:
        if self.world.data.is_plain_data(item) and self.world.data.is_plain_data(container):
            return item in container
        for element in list(_base_of(container).__iter__(container)):
            if element is item:
                return True
            if self.world.truth(self.world.machine.complete(self.world.compare_op(operator.eq, element, item))):
                return True
        return False

    def compare_elements(self, function: Any, args: tuple) -> Any:
        """A method of a sequence that compares its elements (`list.index`), which are objects or tensors."""
        name = getattr(function, "__name__", "")
        op = _COMPARISONS.get(name)
        if op is not None and len(args) == 2:
            found = self._compare_containers(op, *args)
            return function(*args) if found is HANDS_ON else found
        if name == "__contains__" and len(args) == 2:
            return self._sequence_contains(args[1], args[0])
        if name in ("index", "count", "remove") and len(args) >= 2:
            sequence, item, *bounds = args
            kind = _base_of(sequence)
            elements = list(kind.__iter__(sequence))
            if name == "count":
                return sum([self.same(element, item) for element in elements])
            start, stop = (*bounds, None, None)[:2]
            for position in range(*slice(start, stop).indices(len(elements))):
                if self.same(elements[position], item):
                    if name == "index":
                        return position
                    kind.__delitem__(sequence, position)
                    return None
            if kind is tuple or (kind is list and name == "remove"):
                raise ValueError(f"{kind.__name__}.{name}(x): x not in {kind.__name__}")
            raise ValueError(f"{self.world.machine.call(repr, (item,))} is not in {kind.__name__}")
        raise Break("comparison", f"{name} of a {type(args[0]).__name__} compares objects or tensors")

    def length(self, value: Any) -> int:
        overlay = self.world.loader.unsettled.get(id(value))
        if overlay is not None and self.has_method(value, "__len__"):
            return self.overlay_length(overlay)
        return World.length(self.world, value)

    def overlay_length(self, overlay: Any) -> int:
        if type(overlay) is SetOverlay:
            return len(self.world.loader.set_settle(overlay))
        if type(overlay) is ListOverlay and overlay.state == "appended":
            return overlay.base_class.__len__(self.world.loader.list_settle(overlay))
        if not (type(overlay) is DictOverlay and overlay.whole):
            self.world.guards.length_is(overlay.source, len(overlay.base))
        return (overlay.base_class if type(overlay) is ListOverlay else dict).__len__(overlay.copy)

    # -- iteration

    def iterate(self, value: Any) -> Any:
        loader = self.world.loader
        overlay = loader.unsettled.get(id(value))
        if type(overlay) is DictOverlay and self.has_method(value, "__iter__"):
            loader.dict_keys(overlay)
            if type(value) is dict:
                return dict.__iter__(value)
        elif overlay is not None:
            loader.settle(value)
        return World.get_iter(self.world, in_order(self.world, value))

    def iterable(self, value: Any) -> Any:
        if type(self.world.loader.unsettled.get(id(value))) is DictOverlay:
            return self.iterate(value)  # keys alone
        return World.native_iterable(self.world, in_order(self.world, self.world.touch(value)))

    def unpacked(self, value: Any) -> Any:
        return in_order(self.world, self.world.touch(value))


#: Methods of sequences that are comparisons.
_COMPARISONS = {
    "__eq__": operator.eq, "__ne__": operator.ne, "__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt,
    "__ge__": operator.ge,
}  # fmt: skip


def _base_of(sequence: Any) -> Any:
    """The class in C whose methods read what a sequence holds, whatever those of its own class say."""
    return next(base for base in (list, tuple, collections.deque) if isinstance(sequence, base))


def _sequence_base(value: Any) -> Any:
    """list, tuple or deque where the value's class compares as that does; else None."""
    for base in (list, tuple, collections.deque):
        if isinstance(value, base):
            cls = type(value)
            same = all(getattr(cls, name) is getattr(base, name) for name in _COMPARISONS)
            return base if same else None
    return None


def _has_native_equality(value: Any) -> bool:
    equality = find_in_class(type(value), "__eq__")
    return any(equality is each for each in _NATIVE_EQUALITY)


_NATIVE_EQUALITY = (
    object.__eq__, list.__eq__, tuple.__eq__, dict.__eq__, set.__eq__, str.__eq__, int.__eq__, float.__eq__,
    frozenset.__eq__, type(None).__eq__, bool.__eq__, bytes.__eq__,
)  # fmt: skip
