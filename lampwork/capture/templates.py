"""`Templates`: describes the values that leave a region so that the runtime can build them again on every call.

Identity is kept: one object gets one description, however often it is mentioned, and cycles close. Things whose parts
must exist first (tuples, bound methods, partials, frozen sets) are described after their parts.
"""

from __future__ import annotations

import collections
import functools
import gc
import io
import itertools
import operator
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from lampwork.capture.backward import is_spent
from lampwork.capture.fake import Fake
from lampwork.capture.load import Loader
from lampwork.capture.machine import MachineGenerator
from lampwork.capture.machine.natives import Callback
from lampwork.capture.numbers import HostNumber
from lampwork.capture.plain import HEAP_TYPE, is_plain
from lampwork.capture.shadow import MISSING, Break, Deferred, HookNumber, IdentityNumber, Pending
from lampwork.capture.shadows import getattr_dict
from lampwork.capture.sizes import SYMBOLIC, number
from lampwork.capture.text import UnknownText
from lampwork.capture.unknown import UnknownNumber
from lampwork.capture.unknown_arrays import UnknownArray
from lampwork.ir import operations
from lampwork.ir.continuation import Place
from lampwork.ir.guard import ObjectRef
from lampwork.ir.template import (
    Call,
    ConstantValue,
    NewCall,
    NewCell,
    NewDeque,
    NewDict,
    NewFunction,
    NewList,
    NewMethod,
    NewObject,
    NewSet,
    NewSlice,
    NewThing,
    NewTuple,
    NewValue,
    ObjectValue,
    ScalarValue,
    SizeValue,
    SourceValue,
    Template,
    TensorValue,
)

#: Builtin classes whose instances are made empty and filled.
_FILLED = frozenset({collections.OrderedDict, collections.defaultdict, object, types.SimpleNamespace})
_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)  # fmt: skip
#: Iterators whose `__reduce__` says how to make another one that goes on at the same place.
_ITERATORS = frozenset({
    *[value for name, value in vars(operations).items() if isinstance(value, type) and "iterator" in name],
    enumerate, zip, reversed, map, filter, *[
        value for value in vars(itertools).values() if isinstance(value, type) and value is not itertools.groupby
    ],
}) - {operations.callable_iterator}  # fmt: skip


#: Iterators over dicts: what they give, and whether from the end.
_DICT_ITERATORS: dict[type, tuple[str, bool]] = {
    type(turn(getattr({}, view)())): (view, turn is reversed)
    for view in ("keys", "values", "items")
    for turn in (iter, reversed)
}

_RELATIONS = {"==": torch.eq, "!=": torch.ne, "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge}


def _truth(node: Any) -> torch.Tensor:
    """The answer to a question about sizes, as a tensor."""
    if node.value is not None:
        return torch.scalar_tensor(node.value, dtype=torch.bool)
    if node.parts[0] in ("and", "or"):
        word, left, right = node.parts
        return (torch.logical_and if word == "and" else torch.logical_or)(_truth(left), _truth(right))
    left, relation, right = node.parts
    operands = [torch.scalar_tensor(node.sizes.wrap(each), dtype=torch.int64) for each in (left, right)]
    return _RELATIONS[relation](*operands)


_LIST_ITERATORS: frozenset[type] = frozenset({type(iter([])), type(reversed([]))})


class Templates:
    """Collects `objects` (what the region made) and `outputs` (tensors that the graph must return)."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.objects: list[NewThing | None] = []
        self.outputs: list[Any] = []
        #: Indices of outputs whose history a `backward()` freed.
        self.spent: set[int] = set()
        #: What puts iterators into their place, behind all other effects.
        self.placed: list[Call] = []
        self._output_index: dict[int, int] = {}
        self._made: dict[int, int | None] = {}
        self._keep: list[Any] = []

    def template(self, value: Any) -> Template:
        """How to get `value` again. Raises `Break` for values that no template describes (open files, generators)."""
        kind = type(value)
        if kind in (type(None), bool, int, float, str):
            return ConstantValue(value)
        if kind in SYMBOLIC:
            return self._symbol(value)
        origin = self.loader.by_value.get(id(value))
        if origin is not None and origin.value is value:
            if isinstance(value, (type, types.FunctionType, types.ModuleType)):
                reference = self.loader.guards.reference(value)
                if reference.portable:
                    return ObjectValue(reference)
            return SourceValue(origin.source)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind is HostNumber:
            if value.reads_tensors:  # whose contents the program may have changed by the time that templates are read
                return ScalarValue(self._tensor(value.numbers.tensor(value)).index, "float")
            return SizeValue(value.text, tuple(value.sources.values()))
        if kind is UnknownNumber:
            if value.made is None:
                return ScalarValue(self._tensor(value.tensor).index, value.kind.__name__)
            return self._once(value, lambda: self._computed(*value.made))
        if kind is UnknownArray:
            parts = (self._tensor(value.tensor), ConstantValue(value.scalar))
            return self._once(value, lambda: NewCall(_ARRAY_OF, parts))
        if kind is operations.ArrayMethod:
            method = (self.template(value.array), ConstantValue(value.name))
            return self._once(value, lambda: NewCall(self.loader.guards.reference(getattr), method))
        if kind is UnknownText:
            return self._once(value, lambda: self._joined(value.pieces))
        if kind is IdentityNumber and value.subject:
            subject = self.template(value.subject[0])
            return self._after_parts(value, lambda: NewCall(self.loader.guards.reference(id), (subject,)))
        if kind is HookNumber:
            return self.hook_number(value.position)
        if is_plain(value):
            return ConstantValue(value)
        if kind is Deferred:
            return SourceValue(value.source)
        if kind is Pending:
            raise AssertionError("a pending element is described by its container")
        if id(value) in self._made:
            index = self._made[id(value)]
            if index is None:
                raise Break("result", "a tuple that contains itself leaves the region")
            return NewValue(index)
        return self._new(value)

    def _once(self, value: Any, make: Any) -> Template:
        index = self._made.get(id(value))
        return self._after_parts(value, make) if index is None else NewValue(index)

    def _computed(self, function: Any, args: tuple, may_fail: bool) -> NewCall:
        """What `function` makes of numbers when the graph has run."""
        reference = self.loader.guards.reference
        if not may_fail:
            return NewCall(reference(function), self.items(args))
        return NewCall(_ATTEMPT, (ObjectValue(reference(function)), *self.items(args)))

    def _joined(self, pieces: tuple) -> NewCall:
        parts = [
            ConstantValue(each) if type(each) is str else self.call(each.function, *self.items(each.args))
            for each in pieces
        ]
        return NewCall(self.loader.guards.reference(operations.joined), tuple(parts))

    def _symbol(self, value: Any) -> Template:
        """A number computed from sizes: from those that the call has."""
        if type(value) is torch.SymBool and value.node.by_contents() and value.node.known() is None:
            return self._found(lambda: _truth(value.node), "bool")
        if type(value) is not torch.SymInt:
            return ConstantValue(number(value))
        sizes = value.node.sizes
        resolved = sizes.resolve(value.node.value)
        if isinstance(resolved, int):
            return ConstantValue(resolved)
        if sizes.by_contents(resolved):
            return self._found(lambda: torch.scalar_tensor(value, dtype=torch.int64), "int")
        return SizeValue(*sizes.written(value.node.value))

    def _found(self, compute: Callable[[], Any], kind: str) -> ScalarValue:
        """A number that follows from sizes which contents decide: the graph computes it."""
        with self.loader.tensors.recorder.recording(), torch.no_grad():
            return ScalarValue(self._tensor(compute()).index, kind)

    def hook_number(self, position: int) -> Template:
        """The number of the hook that comes `position` after those that exist when the call begins."""
        handles = self.loader.sources.named("torch.utils.hooks", "RemovableHandle")
        counted = SourceValue(self.loader.sources.class_attribute(handles, "next_id"))
        self.objects.append(NewCall(self.loader.guards.reference(operator.add), (counted, ConstantValue(position))))
        return NewValue(len(self.objects) - 1)

    def is_described(self, value: Any) -> bool:
        """Whether describing it costs nothing: it is from outside, or part of what has been described."""
        return type(value) is Deferred or id(value) in self._made or id(value) in self.loader.by_value

    def is_made(self, value: Any) -> bool:
        """Whether the region makes it anew for those who see it afterwards."""
        return id(value) in self._made

    def call(self, function: Any, *args: Template) -> Template:
        """The result of a function of `ir.operations`."""
        self.objects.append(NewCall(self.loader.guards.reference(function), args))
        return NewValue(len(self.objects) - 1)

    def items(self, values: Any) -> tuple[Template, ...]:
        return tuple([self.template(value) for value in values])

    def pairs(self, mapping: Any) -> tuple[tuple[Template, Template], ...]:
        return tuple([(self.template(key), self.template(value)) for key, value in mapping])

    def _tensor(self, value: torch.Tensor) -> TensorValue:
        if not isinstance(value, Fake):
            raise Break("result", "a tensor that a function transform wraps leaves the transform")
        index = self._output_index.get(id(value))
        if type(value) is not Fake:
            raise Break("result", "a tensor that the program did not get through anything known leaves the region")
        if index is None:
            index = self._output_index[id(value)] = len(self.outputs)
            self.outputs.append(value)
            self.loader.tensors.recorder.settle_history(value)
            if self.loader.freed_histories and value.grad_fn is not None and is_spent(value, self.loader.freed_nodes):
                self.spent.add(index)
        cls = self.tensor_class(value)
        reference = None if cls is torch.Tensor else self.loader.guards.reference(cls)
        return TensorValue(index, reference, value.requires_grad, index in self.spent)

    @staticmethod
    def tensor_class(value: torch.Tensor) -> type:
        return torch.nn.Parameter if isinstance(value, torch.nn.Parameter) else torch.Tensor

    # ------------------------------------------------------------------------------------------------------------------

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

    def _new(self, value: Any) -> Template:
        kind = type(value)
        reference = self.loader.guards.reference
        if kind is tuple:
            return self._after_parts(value, lambda: NewTuple(self.items(value)))
        if kind is frozenset:
            return self._after_parts(value, lambda: NewSet(self.items(value), frozen=True))
        if kind is slice:
            return self._after_parts(value, lambda: NewSlice(*self.items((value.start, value.stop, value.step))))
        if kind is types.MethodType and type(value.__self__) is UnknownText:
            method = (self.template(value.__self__), ConstantValue(value.__func__.__name__))
            return self._after_parts(value, lambda: NewCall(reference(getattr), method))
        if kind is types.MethodType:
            return self._after_parts(
                value, lambda: NewMethod(self.template(value.__func__), self.template(value.__self__))
            )
        if kind is functools.partial:
            return self._after_parts(
                value,
                lambda: NewCall(
                    reference(functools.partial),
                    (self.template(value.func), *self.items(value.args)),
                    tuple((name, self.template(item)) for name, item in value.keywords.items()),
                ),
            )
        if kind is weakref.ReferenceType and value() is not None and value.__callback__ is None:
            return self._after_parts(value, lambda: NewCall(reference(weakref.ref), (self.template(value()),)))
        if isinstance(value, (type, types.ModuleType, *_BUILTIN_CALLABLES)):
            return self._object(value)
        if kind is list:
            index = self._reserve(value)
            self.objects[index] = NewList(self.items(value))
        elif kind is dict and id(value) in self.loader.dict_owners:
            owner = self.loader.dict_owners[id(value)]
            arguments = (self.template(owner), ConstantValue("__dict__"))
            return self._after_parts(value, lambda: NewCall(reference(getattr), arguments))
        elif kind is dict:
            index = self._reserve(value)
            self.objects[index] = NewDict(self.pairs(value.items()))
        elif kind is set:
            index = self._reserve(value)
            self.objects[index] = NewSet(self.items(value))
        elif kind is collections.deque:
            index = self._reserve(value)
            self.objects[index] = NewDeque(self.items(value), value.maxlen)
        elif kind is types.CellType:
            shadow = self.loader.cells.get(id(value))
            if shadow is not None:
                return SourceValue(shadow.source)
            index = self._reserve(value)
            self._fill_cell(value)
        elif kind is types.FunctionType:
            return self._function(value)
        elif kind in _LIST_ITERATORS and id(value.__reduce__()[1][0]) in self.loader.by_value:
            return self._list_iterator(value)
        elif kind in _DICT_ITERATORS:
            return self._after_parts(value, lambda: self._dict_iterator(value))
        elif kind in _ITERATORS:
            return self._after_parts(value, lambda: self._iterator(value))
        elif kind is MachineGenerator:
            return self._after_parts(value, lambda: self._generator(value))
        elif kind is Callback:
            return self.template(value.function)
        elif kind is io.StringIO and not value.closed:
            contents = self.items((value.getvalue(), value.tell()))
            return self._after_parts(value, lambda: NewCall(reference(operations.string_io), contents))
        elif isinstance(value, BaseException):
            return self._exception(value)
        elif isinstance(value, tuple):
            return self._after_parts(value, lambda: NewTuple(self.items(tuple.__iter__(value)), reference(kind)))
        else:
            return self._instance(value)
        return NewValue(index)

    def cell_contents(self, cell: Any) -> Any:
        """The contents of a cell as the program left them; MISSING if empty."""
        try:
            return cell.cell_contents
        except ValueError:
            return MISSING

    def _object(self, value: Any) -> Template:
        reference = self.loader.guards.reference(value)
        if not reference.portable:
            bound = isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType))
            if bound and not isinstance(value.__self__, types.ModuleType):
                return self._after_parts(value, lambda: self._native_method(value))
            raise Break("result", f"a {reference.kind} made in the region leaves it: {value!r}")
        return ObjectValue(reference)

    def _native_method(self, value: Any) -> NewCall:
        """A C method bound to an object; `super()` may have found it behind an override."""
        owner = value.__self__
        reference = self.loader.guards.reference
        if not isinstance(owner, (torch.Tensor, type)):
            for cls in type(owner).__mro__:
                descriptor: Any = cls.__dict__.get(value.__name__)
                if type(descriptor) in _BUILTIN_CALLABLES and descriptor.__get__(owner, type(owner)) == value:
                    return NewCall(reference(operations.bound), (self.template(descriptor), self.template(owner)))
        return NewCall(reference(getattr), (self.template(owner), ConstantValue(value.__name__)))

    def _function(self, value: types.FunctionType) -> Template:
        reference = self.loader.guards.reference(value)
        if reference.portable:
            return ObjectValue(reference)
        # Cells come first: a function is allocated with its cells, whose contents may be the function itself.
        cells = value.__closure__ or ()
        pending = [cell for cell in cells if self._reserve_cell(cell)]
        index = self._reserve(value)
        self.objects[index] = NewFunction(
            code=value.__code__,
            globals_of=self._namespace(value.__globals__),
            name=value.__name__,
            qualname=value.__qualname__,
            defaults=None if value.__defaults__ is None else self.template(value.__defaults__),
            kwdefaults=None if value.__kwdefaults__ is None else self.template(value.__kwdefaults__),
            closure=tuple(self.template(cell) for cell in cells),
            attributes=tuple((name, self.template(item)) for name, item in value.__dict__.items()),
        )
        for cell in pending:
            self._fill_cell(cell)
        return NewValue(index)

    def _namespace(self, names: dict[str, Any]) -> Template:
        """The globals of a function: those of a module by its name, others through a function that has them."""
        module = sys.modules.get(names.get("__name__", ""))
        if module is not None and module.__dict__ is names:
            return ObjectValue(self.loader.guards.reference(module))
        for origin in self.loader.by_value.values():
            if type(origin.raw) is types.FunctionType and origin.raw.__globals__ is names:
                return SourceValue(self.loader.sources.attribute(origin.source, "__globals__"))
        raise Break("result", "a function made in the region, with globals of no module, leaves it")

    def _reserve_cell(self, cell: Any) -> bool:
        """Allocates a cell if it is new."""
        if id(cell) in self._made or id(cell) in self.loader.cells:
            return False
        self._reserve(cell)
        return True

    def _fill_cell(self, cell: Any) -> None:
        contents = self.cell_contents(cell)
        index = self._made[id(cell)]
        assert index is not None
        self.objects[index] = NewCell(None if contents is MISSING else self.template(contents))

    def _iterator(self, value: Any) -> NewCall:
        """An iterator that goes on where `value` stands."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of itertools' pickling; removed in 3.14 only
            function, args, *state = value.__reduce__()
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
        view, backwards = _DICT_ITERATORS[type(value)]
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
        reference = self.loader.guards.reference(cls)
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

    def _instance(self, value: Any) -> Template:
        """An instance of a class written in Python, made by its builtin base's `__new__`."""
        cls = type(value)
        if not cls.__flags__ & HEAP_TYPE and cls not in _FILLED:
            raise Break("result", f"a value of type {cls.__module__}.{cls.__qualname__} leaves the region")
        reference = self.loader.guards.reference(cls)
        index = self._reserve(value)
        items = pairs = number = None
        if isinstance(value, dict):
            contents: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
            pairs = self.pairs(contents.items(value))
        elif isinstance(value, list):
            items = self.items(list.__iter__(value))
        elif isinstance(value, (set, frozenset)):
            items = self.items(set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value))
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


_OWN_DIRECTORY = __file__.removesuffix("capture/templates.py")
_ATTEMPT = ObjectRef("function", "lampwork.runtime.deferred", "attempt")
_ARRAY_OF = ObjectRef("function", "lampwork.runtime.deferred", "array_of")
_TRACEBACK = ObjectRef("function", "lampwork.runtime.places", "traceback_of")
#: Builtin exceptions with state of their own, all of which their constructor sets.
_KEPT_BY_ARGUMENTS = frozenset({
    StopIteration, SystemExit, AttributeError, NameError, UnboundLocalError, ImportError, ModuleNotFoundError, OSError,
    ExceptionGroup, BaseExceptionGroup, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError,
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
