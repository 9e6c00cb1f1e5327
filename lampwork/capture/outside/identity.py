"""Which objects from outside are one object, and which are different ones, where the program could tell.

What a guard compares by contents (`Equals`) may be the same object on one call and an equal one on the next. Where the
program asks (`is`, `id`), or Python does for it (a NaN in a list is found by its identity), the places where
such data was found are guarded to hold one object, or different ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy
import torch

from lampwork.capture.machine.attributes import find_in_class
from lampwork.capture.outside.guards import GuardList, Sources
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import is_plain
from lampwork.ir.guard import Equals, KeysAre
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader

#: Classes of plain data of which there may be several equal objects.
MANY_EQUAL: frozenset[type] = frozenset({
    int, float, complex, str, bytes, tuple, frozenset, range, slice, torch.device, torch.Size,
    *numpy.sctypeDict.values(),
})  # fmt: skip

_Places = dict[int, tuple[Any, list[Source]]]


def same_data(loader: Loader, left: Any, right: Any, constants: tuple) -> bool:
    """`left is right` for two values of one class of `MANY_EQUAL`, guarded. `constants`: those of the code that asks.

    Raises `Break` for data from outside that equals a constant of the program, or what the program computed: nothing
    says whether they will be the same object on the next call.
    """
    if _is_only_one(left) or not is_plain(left) or not is_plain(right) or not _alike(left, right):
        return left is right
    places = _places_of_data(loader)
    met = [each for each in (left, right) if id(each) in places]
    if not met:
        return left is right  # both of the program's own making, as in eager
    if len(met) == 1 or any(each is left for each in _all_constants(constants)):
        raise Break("data-identity", f"whether {left!r} from outside is the same object as an equal one is asked")
    different_data_stays(loader, (left, right), places)
    return left is right


def different_data_stays(loader: Loader, values: Iterable[Any], places: _Places) -> None:
    """Guards that each of `values` stays one object wherever it was found, and those that differ stay
    different ones."""
    first = {}
    for value in values:
        _, (source, *others) = places[id(value)]
        first[id(value)] = source
        for other in others:
            loader.guards.same_object(other, source)
    if len(first) > 1:
        loader.guards.distinct(tuple(first.values()))


def _places_of_data(loader: Loader) -> _Places:
    """Where data that guards compare was found, by id: also what tuples and dicts' keys have in them."""
    places: _Places = {}
    for guard in list(loader.guards):
        if type(guard.test) is Equals:
            found = _parts(loader.sources, guard.test.value, guard.source)
        elif type(guard.test) is KeysAre and guard.test.ordered:
            keys = guard.test.keys
            found = (
                each
                for index, key in enumerate(keys)
                for each in _parts(loader.sources, key, loader.sources.key_at(guard.source, index))
            )
        else:
            continue
        for value, source in found:
            sources = places.setdefault(id(value), (value, []))[1]
            if source not in sources:
                sources.append(source)
    return places


def _parts(sources: Sources, value: Any, source: Source) -> Iterator[tuple[Any, Source]]:
    if type(value) in MANY_EQUAL:
        yield value, source
    if type(value) is tuple:
        for index, each in enumerate(value):
            yield from _parts(sources, each, sources.item(source, index))


def _is_only_one(value: Any) -> bool:
    """Whether there is no second object that equals this one: CPython keeps small numbers and the shortest texts."""
    kind = type(value)
    if kind is int:
        return -5 <= value <= 256
    if kind is str:
        return not value or (len(value) == 1 and value < "\u0100")
    return not value and kind in (bytes, tuple, frozenset)


def _alike(left: Any, right: Any) -> bool:
    if type(left) is tuple and type(right) is tuple:
        return len(left) == len(right) and all(map(_alike, left, right))
    return left == right or (_is_no_number(left) and _is_no_number(right))


def _is_no_number(value: Any) -> bool:
    return type(value) is not tuple and value != value


def _holds_no_number(value: Any) -> bool:
    return any(map(_holds_no_number, value)) if type(value) is tuple else value != value


def _all_constants(constants: tuple) -> Iterator[Any]:
    for each in constants:
        yield each
        if type(each) is tuple:
            yield from _all_constants(each)


def changed_stay_different(loader: Loader, changed: set[int]) -> None:
    """Of the objects that the program holds, those in `changed` (ids) stay other objects than all of their types."""
    by_type: dict[type, list[tuple[int, Source]]] = {}
    for key, origin in loader.by_value.items():
        if not isinstance(origin.value, torch.Tensor):
            by_type.setdefault(type(origin.raw), []).append((key, origin.source))
    for group in by_type.values():
        first = next((source for key, source in group if key in changed), None)
        if first is not None and len(group) > 1:
            loader.guards.distinct((first, *(source for _, source in group if source is not first)))


def identities_stay(loader: Loader, identified: dict[int, Any]) -> None:
    """Objects whose `id()` the program took stay different objects. So do all of one kind that it met: `p == q`,
    `p in things`, `table.get(p)` and `{p, q}` compare them by identity, most of them in native code."""
    taken = [loader.by_value[key].source for key in identified if key in loader.by_value]
    if identified or any(type(each.test) is Equals and _holds_no_number(each.test.value) for each in loader.guards):
        places = _places_of_data(loader)
        data = [value for key, value in identified.items() if key in places and not _is_only_one(value)]
        different_data_stays(loader, data, places)
        different_data_stays(loader, [value for value, _ in places.values() if _is_no_number(value)], places)
    kinds: dict[Any, list[Source]] = {}
    met = {id(origin.raw): origin for origin in loader.by_value.values()}
    for origin in met.values():
        kind = _kind_known_by_identity(origin.raw, loader.guards)
        if kind is not None and not loader.guards.covers(origin.source, "object"):
            kinds.setdefault(kind, []).append(origin.source)
    for sources in (taken, *kinds.values()):
        if len(sources) > 1:
            loader.guards.distinct(sources)


def _kind_known_by_identity(raw: Any, guards: GuardList) -> Any:
    """What an object from outside has in common with those that it could be the same as under its guards; None where
    equality is a matter of contents, and for classes, modules and builtins, which are guarded one by one."""
    kind = type(raw)
    if kind is FunctionType:
        return guards.reference(raw).digest
    if isinstance(raw, (torch.Tensor, type, ModuleType, BuiltinFunctionType)) or is_plain(raw):
        return None
    equality = find_in_class(kind, "__eq__")
    return kind if equality is object.__eq__ or type(equality) is FunctionType else None


def may_be_identities(guards: GuardList) -> bool:
    """Whether numbers were read from outside that may be what `id()` gave earlier: among keys and elements of sets all
    that may be addresses, alone those that are little else."""
    for guard in guards:
        test = guard.test
        if type(test) is KeysAre:
            if any(_at_least(each, _LEAST_ADDRESS) for each in test.keys):
                return True
        elif type(test) is Equals and _at_least(test.value, _LARGE_ADDRESS):
            return True
    return False


def _at_least(value: Any, least: int) -> bool:
    if type(value) is tuple or type(value) is frozenset:
        return any(_at_least(each, least) for each in value)
    return type(value) is int and value >= least


#: Where objects may lie, and where almost all of them do, in processes of 64 bits.
_LEAST_ADDRESS, _LARGE_ADDRESS = 1 << 20, 1 << 32
