"""Natives that ask their arguments for a number or for elements: of objects, the machine asks.

    [1, 2].pop(position)                   `position.__index__()` is interpreted
    itertools.chain(one, other)            `one.__iter__()`, and what it gives, is interpreted
    list * count, list += things           as operators, too

Native code that called a special method written in Python would run it beside the machine: what it reads would have no
guards, and what it writes would be done to the world of the user.
"""

from __future__ import annotations

import collections
import itertools
import operator
import types
import weakref
from typing import TYPE_CHECKING, Any

import numpy
import torch

from lampwork.capture.machine import Answer, InPython
from lampwork.capture.machine.natives import CLASS_INTRINSICS
from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.natives.perform import as_pairs, perform
from lampwork.capture.outside.overlay import Break
from lampwork.capture.values.overloads import overloaded
from lampwork.capture.values.percent import percent
from lampwork.capture.values.special_methods import index_of, is_object

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_SEQUENCES = (str, bytes, bytearray, list, tuple, collections.deque)
_EXTENDED = (list, bytearray, collections.deque)


def native_operator(world: TorchWorld, op: Any, left: Any, right: Any) -> Any:
    """`op(left, right)` of operands that leave it to methods in C."""
    plain = IN_PLACE.get(op, op)
    if (is_object(left) or is_object(right)) and (isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor)):
        answer = overloaded(world, op, (left, right), {})
        if answer is not NotImplemented:
            return answer
        if any(world.class_lookup(type(each), "__torch_function__")[0] for each in (left, right) if is_object(each)):
            raise Break(
                "tensor-argument",
                f"a __torch_function__ that is no class method in Python is asked for {plain.__name__}",
            )
    if any(isinstance(each, numpy.generic) for each in (left, right)) and any(map(is_object, (left, right))):
        raise Break("native-argument", f"numpy makes an array of an object for {plain.__name__}")
    if plain is operator.mul:
        if isinstance(left, _SEQUENCES):
            right = index_of(world, right)
        elif isinstance(right, _SEQUENCES):
            left = index_of(world, left)
    elif plain is operator.mod and isinstance(left, (str, bytes)) and not world.data.is_data(right):
        return percent(world, left, right)
    elif op is operator.iadd and isinstance(left, _EXTENDED):
        right = world.native_elements(right) if isinstance(left, list) else world.native_iterable(right)
    elif op is operator.ior and isinstance(left, dict):
        right = as_pairs(world, right)
    elif op is operator.or_ and isinstance(left, dict) and isinstance(right, dict):
        left, right = _copied(world, left), as_pairs(world, right)
    elif op in (operator.eq, operator.ne):
        return _compare(world, op, left, right)
    return op(left, right)


def _copied(world: Any, mapping: Any) -> Any:
    """What native code that copies a dict before it adds to it may be given: one whose methods are in C."""
    if type(mapping) in (dict, collections.OrderedDict) or not dict.__len__(mapping):
        return mapping
    return as_pairs(world, mapping)


def _copy(world: Any, mapping: Any) -> Any:
    made = _copied(world, world.touch(mapping))
    return made if made is not mapping else perform(world, dict.copy, "method", (mapping,), {})


def _compare(world: Any, op: Any, left: Any, right: Any) -> Any:
    """`==` and `!=` of what leaves it to the values that it holds."""
    if isinstance(left, types.SimpleNamespace) and isinstance(right, types.SimpleNamespace):
        return world.compare_op(op, world.attribute(left, "__dict__"), world.attribute(right, "__dict__"))
    if isinstance(left, weakref.ReferenceType) and isinstance(right, weakref.ReferenceType):
        one, other = left(), right()
        if one is None or other is None:
            return op(left, right)
        return world.compare_op(op, one, other)
    return op(left, right)


class _Each:
    """An iterator that hands out what native code may iterate, for each element of another one."""

    def __init__(self, world: Any, elements: Any) -> None:
        self.world, self.elements = world, iter(world.native_iterable(elements))

    def __iter__(self) -> _Each:
        return self

    def __next__(self) -> Any:
        return self.world.native_iterable(next(self.elements))


def _asked(native: Any, numbers: tuple[int, ...] = (), elements: Any = (), named: str = "") -> Answer:
    """The answer for a native that asks for a number at the positions `numbers`, and by the names `named`; and for
    elements at the positions `elements` (a range: from there on)."""

    def answer(world: TorchWorld, *args: Any, **kwargs: Any) -> Any:
        made = list(args)
        for position in numbers:
            if position < len(made):
                made[position] = index_of(world, made[position])
        for position in elements:
            if position >= len(made):
                break
            if is_object(made[position]):
                taken = world.native_elements if native is itertools.product else world.native_iterable
                made[position] = taken(made[position])
        for name in named.split():
            if name in kwargs:
                kwargs[name] = index_of(world, kwargs[name])
        return world.call_native(native, tuple(made), kwargs)

    return answer


def _chain_of(world: Any, *args: Any) -> Any:
    native = itertools.chain.from_iterable
    if len(args) != 1 or type(args[0]) in (list, tuple) and not any(map(is_object, args[0])):
        return world.call_native(native, args, {})
    return world.call_native(native, (_Each(world, args[0]),), {})


def _compress(data: Any, selectors: Any) -> Any:
    for element, chosen in zip(data, selectors):
        if chosen:
            yield element


def _set_list_item(world: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 3 and type(args[1]) is slice and is_object(args[2]):
        args = (*args[:2], world.native_iterable(args[2]))
    return _set_item(world, *args, **kwargs)


def _keys_from(world: Any, *args: Any) -> Any:
    """`dict.fromkeys(names, value)`."""
    if args:
        keys = world.collect(args[0])
        world.families.container.keys.check_all(keys)
        args = (keys, *args[1:])
    return dict.fromkeys(*args)


_set_item: Any = _asked(list.__setitem__, numbers=(1,))
_ALL = range(1 << 16)
NATIVES: dict[Any, Answer] = {
    **{getattr(cls, name): _asked(getattr(cls, name), numbers=(1,)) for cls, names in
       ((str, "__mul__ __rmul__"), (bytes, "__mul__ __rmul__"), (tuple, "__mul__ __rmul__ __getitem__"),
        (list, "__mul__ __rmul__ __imul__ __getitem__ __setitem__ __delitem__ pop insert"),
        (collections.deque, "__mul__ __rmul__ __imul__ __getitem__ __setitem__ __delitem__ insert rotate"))
       for name in names.split()},
    **{cls.index: _asked(cls.index, numbers=(2, 3)) for cls in (list, tuple, collections.deque)},
    **{cls.__iadd__: _asked(cls.__iadd__, elements=(1,)) for cls in (list, collections.deque)},
    collections.deque: _asked(collections.deque, elements=(0,)),
    itertools.chain: _asked(itertools.chain, elements=_ALL),
    itertools.zip_longest: _asked(itertools.zip_longest, elements=_ALL),
    itertools.product: _asked(itertools.product, elements=_ALL, named="repeat"),
    itertools.islice: _asked(itertools.islice, numbers=(1, 2, 3), elements=(0,)),
    itertools.repeat: _asked(itertools.repeat, numbers=(1,), named="times"),
    list.__setitem__: _set_list_item,
    dict.copy: _copy,
    itertools.compress: InPython(_compress),
    itertools.tee: _asked(itertools.tee, numbers=(1,), elements=(0,)),
    **{native: _asked(native, elements=(0,)) for native in
       (itertools.cycle, itertools.pairwise, itertools.permutations)},
    **{native: _asked(native, numbers=(1,), elements=(0,), named="r") for native in
       (itertools.combinations, itertools.combinations_with_replacement)},
}  # fmt: skip
CLASS_INTRINSICS[itertools.chain, "from_iterable"] = _chain_of  # another object each time that it is asked for
CLASS_INTRINSICS[dict, "fromkeys"] = _keys_from
