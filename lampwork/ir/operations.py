"""What single instructions do, as functions, for those that no function of the standard library stands for.

Operations of a break are calls of these or of `operator` functions. They have importable names, so that a stored entry
finds them again. No torch.
"""

from __future__ import annotations

import collections
import io
import itertools
import json
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

#: Delivered in place of a value by an iterator that is exhausted.
EXHAUSTED = object()

# The types of builtin iterators have no importable names of their own.
list_iterator: type = type(iter([]))
list_reverseiterator: type = type(reversed([]))
tuple_iterator: type = type(iter(()))
range_iterator: type = type(iter(range(0)))
longrange_iterator: type = type(iter(range(1 << 70)))
str_iterator: type = type(iter("é"))
str_ascii_iterator: type = type(iter("a"))
bytes_iterator: type = type(iter(b""))
set_iterator: type = type(iter(set()))
dict_keyiterator: type = type(iter({}))
dict_valueiterator: type = type(iter({}.values()))
dict_itemiterator: type = type(iter({}.items()))
dict_reversekeyiterator: type = type(reversed({}))
odict_iterator: type = type(iter(collections.OrderedDict()))
callable_iterator: type = type(iter(int, 1))


def advance(iterator: Any) -> Any:
    """`next(iterator)`, or `EXHAUSTED`."""
    return next(iterator, EXHAUSTED)


def exhausted_if_true(value: object) -> Any:
    return EXHAUSTED if value else None


def exhausted_if_false(value: object) -> Any:
    return None if value else EXHAUSTED


def not_contains(container: Any, item: Any) -> bool:
    return item not in container


def call(function: Callable, *args: object, **kwargs: object) -> Any:
    """`function(*args, **kwargs)`, for callables that are values. PyTorch tells no keywords from an empty dict."""
    return function(*args, **kwargs) if kwargs else function(*args)


def bound(descriptor: Any, instance: Any) -> Any:
    """A method of a builtin class, bound past any override of it."""
    return descriptor.__get__(instance, type(instance))


def dressed(instance: object, names: tuple[str, ...], *values: object) -> Any:
    """`instance` with these attributes."""
    for name, value in zip(names, values):
        setattr(instance, name, value)
    return instance


def restore(made: Any, state: Any) -> Any:
    """`made` after `__setstate__(state)`: iterators part of the way."""
    made.__setstate__(state)
    return made


def rest_of_dict(entries: Any, place: int, size: int, backwards: bool) -> Iterator[object]:
    """An iterator over a dict, or a view of one, that began at `size` entries and has given `place` of them."""
    if len(entries) != size:
        return _changed_dict()
    iterator = reversed(entries) if backwards else iter(entries)
    for _ in range(place):
        next(iterator)
    return iterator


def _changed_dict() -> Iterator[object]:
    raise RuntimeError("dictionary changed size during iteration")
    yield


class NoValue:
    """Stands for what a context variable without a value holds."""


def context_value(variable: object, has_default: bool) -> Any:
    """What the context variable holds in the current context, or, if `has_default`, its own default; `NoValue` where
    that is nothing. Raises LookupError where `variable` is no context variable."""
    if type(variable) is not ContextVar:
        raise LookupError("not a context variable")
    try:
        return variable.get() if has_default else variable.get(NoValue)
    except LookupError:
        return NoValue


def thread_names(local: object) -> dict[str, object]:
    """The attributes that a `threading.local` has in this thread. Raises LookupError for any other object."""
    if not isinstance(local, threading.local):
        raise LookupError("not a threading.local")
    return threading.local.__getattribute__(local, "__dict__")


def call_method(owner: object, name: str, *args: object, **kwargs: object) -> Any:
    """`owner.name(*args, **kwargs)`."""
    return getattr(owner, name)(*args, **kwargs)


def shuffled(generator: Any, *values: object) -> list[object]:
    """A list of the values in the order that `generator.shuffle` brings them to."""
    order = list(values)
    generator.shuffle(order)
    return order


#: Classes of plain data that never changes, and how each gives what an object of a derived class holds.
_PLAIN_OF: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__), (bytes, bytes.__bytes__), (int, int.__int__), (float, float.__float__),
    (complex, complex.__complex__),
)  # fmt: skip
HOLD_PLAIN_DATA = tuple(kind for kind, _ in _PLAIN_OF)


def plain_contents(value: Any) -> object:
    """What an object of a class that derives from one of `HOLD_PLAIN_DATA` holds, as native code sees it: nothing that
    its class says is asked. Raises TypeError for other objects."""
    for kind, plain in _PLAIN_OF:
        if issubclass(type(value), kind):
            return plain(value)
    raise TypeError(f"{type(value).__name__} holds no plain data")


def subclasses(cls: Any) -> tuple[type, ...]:
    """What `cls.__subclasses__()` gives, whatever the metaclass calls by that name."""
    return tuple(type.__subclasses__(cls))


def remaining(iterator: Any) -> Sequence[object]:
    """What a builtin iterator has yet to give, without advancing it.

    Of a `map` or `filter`: its function, with what each call of it would be given. Raises LookupError for other
    iterators, where a dict has changed its size, and for those over iterators that somebody else holds, too.
    """
    kind = type(iterator)
    if kind in _OVER_SEQUENCES:
        _, (sequence, *_), *state = iterator.__reduce__()
        if not state or state[0] is None:
            return sequence
        part = slice(state[0], None)
        if kind is list_reverseiterator:
            part = slice(state[0], None, -1) if state[0] >= 0 else slice(0, 0)
        # Classes that derive from these may have a `__getitem__` of their own.
        if isinstance(sequence, list):
            return list.__getitem__(sequence, part)
        return tuple.__getitem__(sequence, part) if isinstance(sequence, tuple) else sequence[part]
    if kind in _OVER_TABLES:
        try:
            return iterator.__reduce__()[1][0]
        except RuntimeError as error:
            raise LookupError(str(error)) from None
    if kind is itertools.count:
        # As a range that nobody comes to the end of. (`__reduce__` warns in Python 3.12.)
        numbers = re.fullmatch(r"count\((-?\d+)(?:, (-?\d+))?\)", repr(iterator))
        start, step = (int(numbers[1]), int(numbers[2] or 1)) if numbers else (0, 0)
        if step:
            return range(start, start + step * _NEVER_ENDS, step)
    if kind is itertools.cycle:
        inner, saved = _parts_of_cycle(iterator)
        return Cycled(remaining(inner), saved)
    if kind is enumerate:
        _, (inner, count) = iterator.__reduce__()
        if sys.getrefcount(inner) == 2 + _OF_A_CALL:  # of `iterator` and `inner`: nobody else takes from it
            return SideBySide((range(count, count + _NEVER_ENDS), remaining(inner)))
    if kind is zip:
        _, parts, *strict = iterator.__reduce__()
        if not strict and parts and all(sys.getrefcount(each) == 2 + _OF_A_CALL for each in parts):
            return SideBySide(tuple(map(remaining, parts)))
    if kind is map or kind is filter:
        _, (function, *parts) = iterator.__reduce__()
        if all(sys.getrefcount(each) == 3 + _OF_A_CALL for each in parts):  # of `iterator`, `parts` and `each`
            return SideBySide((Always(function), *map(remaining, parts)))
    raise LookupError(f"nothing is known of what is left of a {kind.__name__}")


class Left(Sequence):
    """What an iterator has yet to give, where no builtin container holds it."""

    __slots__ = ()


class Cycled(Left):
    """What an `itertools.cycle` has yet to give: what is left of its first turn, then all again and again.

    `before`: what it has given of the first turn; in later turns, everything.
    """

    __slots__ = ("left", "turn")

    def __init__(self, left: Sequence[Any], before: list[Any]) -> None:
        self.left, self.turn = left, before

    def __len__(self) -> int:
        return _NEVER_ENDS if self.left or self.turn else 0

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index < len(self.left):
            return self.left[index]
        return self.turn[(index - len(self.left)) % len(self.turn)]


class SideBySide(Left):
    """Tuples of what stands at one place in each of some sequences, as long as they all have something there."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Sequence[Any], ...]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return min(map(len, self.parts))

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return tuple([each[index] for each in self.parts])


class Always(Left):
    """One value, at every place."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __len__(self) -> int:
        return _NEVER_ENDS

    def __getitem__(self, index: Any) -> Any:
        return self.value


def advanced(iterator: Any, steps: int, exhausted: bool) -> None:
    """Takes `steps` elements from `iterator`, and all if `exhausted`. The function of a `map` or `filter` has been
    called: what it would be given is taken from the iterators beneath."""
    if type(iterator) is map or type(iterator) is filter:
        made: Any = iterator.__reduce__()
        iterator = zip(*made[1][1:])
    for _ in range(steps):
        next(iterator, None)
    if exhausted:
        for _ in iterator:
            pass


def _parts_of_cycle(iterator: Any) -> tuple[Any, list[Any]]:
    """An iterator over what is left of the turn, and what the next turn gives. Raises LookupError where others take
    from that iterator, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, whose iterators still say it
        try:
            _, (inner,), (saved, all_given) = iterator.__reduce__()
        except TypeError as error:  # from Python 3.14 on
            raise LookupError(str(error)) from None
    if all_given:
        return inner, saved
    if sys.getrefcount(inner) != 2 + _OF_A_CALL:
        raise LookupError("the iterator of an itertools.cycle is shared")
    return inner, [*saved, *remaining(inner)]


def _references_of_a_call() -> int:
    """How many references to a local variable's value a call holds that is given it: none from Python 3.14 on."""
    value = object()
    return sys.getrefcount(value) - 1


_OF_A_CALL = _references_of_a_call()
_NEVER_ENDS = 1 << 40
_OVER_SEQUENCES = frozenset({
    list_iterator, tuple_iterator, range_iterator, longrange_iterator,
    str_iterator, str_ascii_iterator, bytes_iterator, list_reverseiterator,
})  # fmt: skip
_OVER_TABLES = frozenset({
    dict_keyiterator, dict_valueiterator, dict_itemiterator, odict_iterator,
})  # fmt: skip


def formatted(value: object, conversion: int, spec: str) -> str:
    """One replacement field of an f-string. `conversion`: 0 none, 1 `!s`, 2 `!r`, 3 `!a`."""
    return format(converted(value, conversion) if conversion else value, spec)


def converted(value: object, conversion: int) -> Any:
    return (str, repr, ascii)[conversion - 1](value)


def interpolated(value: object, text: str, conversion: int, spec: str) -> Any:
    """One replacement field of a template string, whose source is `text`; `conversion` as above."""
    from string.templatelib import Interpolation  # type: ignore[import-not-found, unused-ignore]

    return Interpolation(value, text, (None, "s", "r", "a")[conversion], spec)


def template_string(strings: tuple[str, ...], interpolations: tuple[Any, ...]) -> Any:
    """The template string of these fields and of the strings around them."""
    from string.templatelib import Template  # type: ignore[import-not-found, unused-ignore]

    return Template(*[part for pair in zip(strings, (*interpolations, "")) for part in pair])


def enter_with(manager: Any) -> tuple[object, object]:
    """(its bound `__exit__`, what `__enter__` returned): what a `with` statement begins by pushing."""
    cls = type(manager)
    if not (hasattr(cls, "__enter__") and hasattr(cls, "__exit__")):
        with manager:  # refuses it, in the words of this version of Python
            raise AssertionError(f"a {cls.__name__} has methods that its class has not")
    enter, leave = cls.__enter__, cls.__exit__
    bound = leave.__get__(manager, cls) if hasattr(leave, "__get__") else leave
    entered = (enter.__get__(manager, cls) if hasattr(enter, "__get__") else enter)()
    return bound, entered


def leave_with(leave: Any, error: BaseException) -> Any:
    """Calls a bound `__exit__` because of `error`."""
    return leave(type(error), error, error.__traceback__)


def import_from_frame(function: Any, name: str, names: Any, level: int) -> Any:
    """`import` in a frame of `function`."""
    importer = function.__builtins__["__import__"]
    return importer(name, function.__globals__, None, names, level)


def kept(before: tuple, bound: tuple[int, ...], *pairs: Any) -> tuple:
    """What a frame keeps (slot, value, ...): what it kept before, but for slots bound since, and `pairs`."""
    found: list[Any] = []
    for slot, value in zip(before[::2], before[1::2]):
        if slot not in bound:
            found += (slot, value)
    return (*found, *pairs)


def unpacked(values: Any, count: int) -> tuple:
    """At most one more than `count` items of `values`, for an unpacking that checks their number."""
    try:
        iterator = iter(values)
    except TypeError:
        if hasattr(type(values), "__iter__"):
            raise
        raise TypeError(f"cannot unpack non-iterable {type(values).__name__} object") from None
    return tuple(itertools.islice(iterator, count + 1))


# What is computed after a graph, of numbers and texts that were not known while capturing -----------------------------


def chosen(condition: bool, one: object, other: object) -> Any:
    """`one` or `other`."""
    return one if condition else other


def joined(*parts: str) -> str:
    """The parts as one text."""
    return "".join(parts)


def json_text(record: object, *options: tuple[str, Any]) -> str:
    """`json.dumps(record, **options)`."""
    return json.dumps(record, **dict(options))


class ArrayMethod:
    """A method of a numpy array whose contents are not known while capturing."""

    def __init__(self, array: object, name: str) -> None:
        self.array, self.name = array, name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return getattr(self.array, self.name)(*args, **kwargs)


def string_io(text: str, position: int) -> Any:
    """An `io.StringIO` that holds `text`, at `position`."""
    made = io.StringIO(text)
    made.seek(position)
    return made
