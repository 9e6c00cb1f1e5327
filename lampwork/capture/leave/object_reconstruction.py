"""Descriptions of objects that take more than their parts: iterators, generators, exceptions, instances."""

from __future__ import annotations

import collections
import gc
import types
import warnings
from typing import Any

from lampwork.capture.leave.made_classes import holds_stand_ins
from lampwork.capture.machine import MachineGenerator
from lampwork.capture.outside.container_overlays import getattr_dict
from lampwork.capture.outside.load import Loader
from lampwork.capture.outside.overlay import MISSING, Break, IdentityNumber
from lampwork.capture.outside.plain import DATES, HEAP_TYPE
from lampwork.ir import operations
from lampwork.ir.continuation import Place
from lampwork.ir.number import NumberExpr
from lampwork.ir.reference import ObjectRef
from lampwork.ir.template import Call, ConstantValue, NewCall, NewObject, NewThing, NewValue, Template

#: Builtin classes whose instances are made empty and filled.
_FILLED = frozenset({collections.OrderedDict, collections.defaultdict, object, types.SimpleNamespace})
#: Iterators over dicts: what they give, and whether from the end.
DICT_ITERATORS: dict[type, tuple[str, bool]] = {
    type(turn(getattr({}, view)())): (view, turn is reversed)
    for view in ("keys", "values", "items")
    for turn in (iter, reversed)
}


class ObjectTemplates:
    """What all descriptions are made with, and those of iterators, generators, exceptions and instances.

    Collects `objects` (what the region made) and `outputs` (tensors that the graph must return).
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.objects: list[NewThing | None] = []
        self.outputs: list[Any] = []
        #: Indices of outputs whose history a `backward()` freed.
        self.spent: set[int] = set()
        #: What puts iterators into their place, after all other effects.
        self.placed: list[Call] = []
        self._output_index: dict[int, int] = {}
        self._made: dict[int, int | None] = {}
        self._keep: list[Any] = []
        #: Numbers that Python computes when the graph has run.
        self._numbers: dict[NumberExpr, NewValue] = {}

    def template(self, value: Any) -> Template:
        """How to get `value` again."""
        raise NotImplementedError

    def call(self, function: Any, *args: Template) -> Template:
        """The result of a function of `ir.operations`."""
        self.objects.append(NewCall(self.loader.guards.reference(function), args))
        return NewValue(len(self.objects) - 1)

    def items(self, values: Any) -> tuple[Template, ...]:
        return tuple([self.template(value) for value in values])

    def pairs(self, mapping: Any) -> tuple[tuple[Template, Template], ...]:
        return tuple([(self.template(key), self.template(value)) for key, value in mapping])

    def held(self) -> list[list[Any]]:
        """What each described object holds now; `same_objects` says of two answers whether anything changed."""
        return [_contents(value) for value in self._keep]

    def _reserve(self, value: Any) -> int:
        """The index of a thing that is allocated before its parts are known."""
        self._keep.append(value)
        index = self._made[id(value)] = len(self.objects)
        self.objects.append(None)
        return index

    def _after_parts(self, value: Any, make: Any) -> NewValue:
        self._keep.append(value)
        self._made[id(value)] = None
        thing = make()
        index = self._made[id(value)] = len(self.objects)
        self.objects.append(thing)
        return NewValue(index)

    def cell_contents(self, cell: Any) -> Any:
        """The contents of a cell as the program left them; MISSING if empty."""
        try:
            return cell.cell_contents
        except ValueError:
            return MISSING

    def _iterator(self, value: Any) -> NewCall:
        """An iterator that goes on where `value` stands."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of itertools' pickling, which 3.14 has no more
            try:
                function, args, *state = value.__reduce__()
            except TypeError:
                raise Break("result", f"an itertools.{type(value).__qualname__} leaves the region") from None
        self._keep.append(args)
        made = NewCall(self.loader.guards.reference(function), self.items(args))
        if not state or state[0] is None:
            return made
        index = len(self.objects)
        self.objects.append(made)
        rest = self.template(state[0])
        return NewCall(self.loader.guards.reference(operations.restore), (NewValue(index), rest))

    def _list_iterator(self, value: Any) -> Template:
        """One over a list from outside takes its place once the list has what the program put into it: set earlier, it
        would be cut off at the list's end."""
        function, args, *state = value.__reduce__()
        made = self._after_parts(value, lambda: NewCall(self.loader.guards.reference(function), self.items(args)))
        if state:
            restore = self.loader.guards.reference(operations.restore)
            self.placed.append(Call(restore, (made, ConstantValue(state[0]))))
        return made

    def _dict_iterator(self, value: Any) -> NewCall:
        """One that reads the dict itself, as it will be then, and notices if it grew or shrank."""
        owner = next((each for each in gc.get_referents(value) if isinstance(each, dict)), None)
        if owner is None:  # exhausted
            return NewCall(self.loader.guards.reference(iter), (ConstantValue(()),))
        try:
            value.__reduce__()
            size, place = len(owner), len(owner) - value.__length_hint__()
        except RuntimeError:  # it has grown or shrunk already
            size, place = -1, 0
        view, backwards = DICT_ITERATORS[type(value)]
        entries = self.template(owner)
        if view != "keys":
            entries = self.call(getattr(dict, view), entries)
        numbers = ConstantValue(place), ConstantValue(size), ConstantValue(backwards)
        return NewCall(self.loader.guards.reference(operations.rest_of_dict), (entries, *numbers))

    def _generator(self, value: MachineGenerator) -> NewCall:
        """A generator that has not begun: the call that makes it."""
        frame = value.frame
        if frame is None or value.started or frame.function is None or not frame.code.simple:
            raise Break("result", f"the generator {value.__qualname__}, which has begun, leaves the region")
        args = []
        for argument in frame.locals[: frame.code.positional]:
            args.append(self.cell_contents(argument) if type(argument) is types.CellType else argument)
        reference = self.loader.guards.reference(operations.call)
        return NewCall(reference, (self.template(frame.function), *self.items(args)))

    def _exception(self, value: BaseException) -> Template:
        """An exception that the program made or met."""
        cls = type(value)
        reference = self._class_of(cls)
        base = next(each for each in cls.__mro__ if not each.__flags__ & HEAP_TYPE)
        if base.__basicsize__ != BaseException.__basicsize__:  # it keeps more than its arguments
            names = [name for name in ("name", "obj", "path") if getattr(value, name, None) is not None]
            filename = getattr(value, "filename", None)  # which is none of its arguments
            if cls not in _KEPT_BY_ARGUMENTS or (names and value.__dict__) or filename is not None:
                raise Break("result", f"an exception of class {cls.__qualname__}, made in the region, leaves it")
            named = tuple((name, self.template(getattr(value, name))) for name in names)
            made: Template = self._after_parts(value, lambda: NewCall(reference, self.items(value.args), named))
            chain = self._raised(value)
            if chain:
                names_of = ConstantValue(tuple(name for name, _ in chain))
                made = self.call(operations.dressed, made, names_of, *(each for _, each in chain))
                self._made[id(value)] = len(self.objects) - 1
            return made
        index = self._reserve(value)
        self.objects[index] = NewObject(
            cls=reference,
            attributes=tuple((name, self.template(item)) for name, item in value.__dict__.items()),
            slots=self._raised(value),
            items=self.items(value.args),
        )
        return NewValue(index)

    def _raised(self, value: BaseException) -> tuple[tuple[str, Template], ...]:
        """What raising and chaining left in an exception."""
        chain: list[tuple[str, Template]] = []
        if value.__context__ is not None:
            chain.append(("__context__", self.template(value.__context__)))
        if value.__cause__ is not None:
            chain.append(("__cause__", self.template(value.__cause__)))
        if value.__suppress_context__:
            chain.append(("__suppress_context__", ConstantValue(True)))
        places = raised_at(value)
        if places:
            chain.append(("__traceback__", self.traceback(ConstantValue(None), places)))
        return tuple(chain)

    def traceback(self, rest: Template, places: tuple[Place, ...]) -> Template:
        """A traceback of `places`, then of what `rest` is."""
        rows = tuple([(each.file, each.name, each.qualname, each.line, each.module) for each in places])
        self.objects.append(NewCall(_TRACEBACK, (rest, ConstantValue(rows))))
        return NewValue(len(self.objects) - 1)

    def _class_of(self, cls: type) -> ObjectRef:
        """The class of something that leaves the region. Raises `Break` for one that the program has made of what it
        computes, which is another one in each call."""
        reference = self.loader.guards.reference
        if not reference(cls).portable and holds_stand_ins(cls, lambda each: not reference(each).portable):
            raise Break("result", f"an instance of {cls.__qualname__}, a class made in the region, leaves it")
        return reference(cls)

    def _instance(self, value: Any) -> Template:
        """An instance of a class written in Python, made by its builtin base's `__new__`."""
        cls = type(value)
        if cls in DATES:
            make, args = value.__reduce__()
            return self._after_parts(value, lambda: NewCall(self.loader.guards.reference(make), self.items(args)))
        if not cls.__flags__ & HEAP_TYPE and cls not in _FILLED:
            raise Break("result", f"a value of type {cls.__module__}.{cls.__qualname__} leaves the region")
        reference = self._class_of(cls)
        index = self._reserve(value)
        items = pairs = number = None
        if isinstance(value, dict):
            contents: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
            pairs = self.pairs(contents.items(value))
        elif isinstance(value, list):
            items = self.items(list.__iter__(value))
        elif isinstance(value, set):
            items = self.items(set.__iter__(value))
        elif isinstance(value, (int, float, str, bytes, complex)) and not isinstance(value, IdentityNumber):
            base: Any = next(each for each in cls.__mro__ if not each.__flags__ & HEAP_TYPE)
            number = self.template(base.__add__(value, base()))
        elif isinstance(value, (int, BaseException, collections.deque)):
            raise Break("result", f"an instance of {cls.__qualname__}, made in the region, leaves it")
        elif not _made_by_object(cls):
            raise Break("result", f"an instance of {cls.__module__}.{cls.__qualname__} leaves the region")
        attributes = getattr_dict(value) or {}
        slots = []
        if isinstance(value, collections.defaultdict):
            slots.append(("default_factory", self.template(value.default_factory)))
        for owner in cls.__mro__:
            for name, member in owner.__dict__.items():
                if type(member) is types.MemberDescriptorType and owner.__flags__ & HEAP_TYPE:
                    try:
                        slots.append((name, self.template(member.__get__(value))))
                    except AttributeError:
                        pass
        self.objects[index] = NewObject(
            cls=reference,
            attributes=tuple((name, self.template(item)) for name, item in attributes.items()),
            slots=tuple(slots),
            items=items,
            pairs=pairs,
            value=number,
        )
        return NewValue(index)


def raised_at(error: BaseException, before: Any = None) -> tuple[Place, ...]:
    """The lines that the traceback of `error` shows, but for our own, and for the part `before` that it had already."""
    places = []
    traceback = error.__traceback__
    while traceback is not None and traceback is not before:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_OWN_DIRECTORY):
            module = traceback.tb_frame.f_globals.get("__name__")
            name = module if isinstance(module, str) else ""
            places.append(Place(code.co_filename, code.co_name, code.co_qualname, traceback.tb_lineno, name))
        traceback = traceback.tb_next
    return tuple(places)


_OWN_DIRECTORY = __file__.removesuffix("capture/leave/object_reconstruction.py")
_TRACEBACK = ObjectRef("function", "lampwork.runtime.leave.user_frames", "traceback_of")
#: Builtin exceptions with state of their own, all of which their constructor sets.
_KEPT_BY_ARGUMENTS = frozenset({
    StopIteration, SystemExit, AttributeError, NameError, UnboundLocalError, ImportError, ModuleNotFoundError, OSError,
    SyntaxError, ExceptionGroup, BaseExceptionGroup, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError,
})  # fmt: skip


def _made_by_object(cls: type) -> bool:
    """Whether `__new__` of its builtin base makes a complete instance: no C-level base holds state of its own."""
    base = next(each for each in cls.__mro__ if not each.__flags__ & HEAP_TYPE)
    if base not in (object, types.SimpleNamespace):
        return False
    try:
        base.__new__(cls)
    except TypeError:
        return False
    return True


def _contents(value: Any) -> list[Any]:
    found: list[Any] = []
    if isinstance(value, dict):
        found += [each for pair in dict.items(value) for each in pair]
    elif isinstance(value, (list, set, collections.deque)):
        found += list(value.__iter__())
    elif isinstance(value, types.CellType):
        found += gc.get_referents(value)
    attributes = getattr_dict(value)
    if attributes:
        found += [each for pair in attributes.items() for each in pair]
    return found


def same_objects(before: list[list[Any]], after: list[list[Any]]) -> bool:
    """Whether every object holds the very objects that it held before."""
    return all(
        len(one) == len(other) and all(left is right for left, right in zip(one, other))
        for one, other in zip(before, after)
    )
