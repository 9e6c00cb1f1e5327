"""`Templates`: describes the values that leave a region so that the runtime can build them again on every call.

Identity is kept: one object gets one description, however often it is mentioned, and cycles close. Things whose parts
must exist first (tuples, bound methods, partials, frozen sets) are described after their parts.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
import weakref
from typing import Any

import torch

from lampwork.capture.fake import Fake
from lampwork.capture.load import HEAP_TYPE, Loader, getattr_dict, is_plain
from lampwork.capture.shadow import MISSING, Break, HookNumber, IdentityNumber, Pending
from lampwork.capture.sizes import SYMBOLIC, number
from lampwork.capture.text import UnknownText
from lampwork.capture.unknown import UnknownNumber
from lampwork.ir.template import (
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
)  # fmt: skip


class Templates:
    """Collects `objects` (what the region made) and `outputs` (tensors that the graph must return)."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.objects: list[NewThing | None] = []
        self.outputs: list[Any] = []
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
        if kind is UnknownNumber:
            return ScalarValue(self._tensor(value.tensor).index, value.kind.__name__)
        if kind is IdentityNumber and value.subject:
            subject = self.template(value.subject[0])
            return self._after_parts(value, lambda: NewCall(self.loader.guards.reference(id), (subject,)))
        if kind is HookNumber:
            return self.hook_number(value.position)
        if is_plain(value):
            return ConstantValue(value)
        if kind is Pending:
            raise AssertionError("a pending element is described by its container")
        if id(value) in self._made:
            index = self._made[id(value)]
            if index is None:
                raise Break("result", "a tuple that contains itself leaves the region")
            return NewValue(index)
        return self._new(value)

    def _symbol(self, value: Any) -> Template:
        """A number computed from sizes: from those that the call has."""
        if type(value) is not torch.SymInt:
            return ConstantValue(number(value))
        sizes = value.node.sizes
        resolved = sizes.resolve(value.node.value)
        if isinstance(resolved, int):
            return ConstantValue(resolved)
        return SizeValue(*sizes.written(value.node.value))

    def hook_number(self, position: int) -> Template:
        """The number of the hook that comes `position` after those that exist when the call begins."""
        handles = self.loader.sources.named("torch.utils.hooks", "RemovableHandle")
        counted = SourceValue(self.loader.sources.class_attribute(handles, "next_id"))
        self.objects.append(NewCall(self.loader.guards.reference(operator.add), (counted, ConstantValue(position))))
        return NewValue(len(self.objects) - 1)

    def items(self, values: Any) -> tuple[Template, ...]:
        return tuple([self.template(value) for value in values])

    def pairs(self, mapping: Any) -> tuple[tuple[Template, Template], ...]:
        return tuple([(self.template(key), self.template(value)) for key, value in mapping])

    def _tensor(self, value: torch.Tensor) -> TensorValue:
        if not isinstance(value, Fake):
            raise Break("result", "a tensor that a function transform wraps leaves the transform")
        index = self._output_index.get(id(value))
        if index is None:
            index = self._output_index[id(value)] = len(self.outputs)
            self.outputs.append(value)
        cls = self.tensor_class(value)
        reference = None if cls is torch.Tensor else self.loader.guards.reference(cls)
        return TensorValue(index, reference, value.requires_grad)

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
            index = self._reserve(value)
            self._fill_cell(value)
        elif kind is types.FunctionType:
            return self._function(value)
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
            if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, types.ModuleType):
                return self._after_parts(
                    value,
                    lambda: NewCall(
                        self.loader.guards.reference(getattr),
                        (self.template(value.__self__), ConstantValue(value.__name__)),
                    ),
                )
            raise Break("result", f"a {reference.kind} made in the region leaves it: {value!r}")
        return ObjectValue(reference)

    def _function(self, value: types.FunctionType) -> Template:
        reference = self.loader.guards.reference(value)
        if reference.portable:
            return ObjectValue(reference)
        # Cells come first: a function is allocated with its cells, whose contents may be the function itself.
        cells = value.__closure__ or ()
        pending = [cell for cell in cells if self._reserve_cell(cell)]
        index = self._reserve(value)
        module = value.__globals__.get("__name__")
        self.objects[index] = NewFunction(
            code=value.__code__,
            globals_of=ConstantValue(module),
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

    def _reserve_cell(self, cell: Any) -> bool:
        """Allocates a cell if it is new."""
        if id(cell) in self.loader.cells:
            raise Break("result", "a function made in the region that shares a closure variable with one from outside "
                        "leaves the region")  # fmt: skip
        if id(cell) in self._made:
            return False
        self._reserve(cell)
        return True

    def _fill_cell(self, cell: Any) -> None:
        contents = self.cell_contents(cell)
        index = self._made[id(cell)]
        assert index is not None
        self.objects[index] = NewCell(None if contents is MISSING else self.template(contents))

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
        elif cls is UnknownText:
            raise Break("data-dependent", "text made of a tensor's contents leaves the program")
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
