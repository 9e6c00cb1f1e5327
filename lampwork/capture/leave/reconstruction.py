"""`Templates`: describes the values that leave a region so that the runtime can build them again on every call.

Identity is kept: one object gets one description, however often it is mentioned, and cycles close. Things whose parts
must exist first (tuples, bound methods, partials, frozen sets) are described after their parts.
"""

from __future__ import annotations

import _thread
import collections
import functools
import io
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.capture.autograd.backward import is_spent
from lampwork.capture.leave.object_reconstruction import DICT_ITERATORS, ObjectTemplates
from lampwork.capture.machine import MachineGenerator
from lampwork.capture.machine.natives import Callback
from lampwork.capture.outside import facts
from lampwork.capture.outside.container_overlays import getattr_dict
from lampwork.capture.outside.open_text import OpenText
from lampwork.capture.outside.overlay import MISSING, Break, Deferred, HookNumber, IdentityNumber, Pending
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.scalar import Element, Late, Scalar, function_of, given, has_element, is_backed
from lampwork.capture.values.sizes import SYMBOLIC, number
from lampwork.capture.values.unknown_array import UnknownArray
from lampwork.capture.values.unknown_text import UnknownText
from lampwork.fakes.wrappers import Wrapper
from lampwork.ir import operations
from lampwork.ir.number import Constant, NumberExpr
from lampwork.ir.reference import ObjectRef
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
    NewTuple,
    NewValue,
    NumberValue,
    ObjectValue,
    ScalarValue,
    SourceValue,
    Template,
    TensorValue,
)

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
_LOCKS: dict[type, Any] = {_thread.LockType: _thread.allocate_lock, _thread.RLock: _thread.RLock}
_LIST_ITERATORS: frozenset[type] = frozenset({type(iter([])), type(reversed([]))})

_ATTEMPT = ObjectRef("function", "lampwork.runtime.leave.post_graph", "attempt")
_ARRAY_OF = ObjectRef("function", "lampwork.runtime.leave.post_graph", "array_of")

_OVER_MEMORY = ObjectRef("function", "lampwork.runtime.leave.post_graph", "over_memory")
_WRAPPER = ObjectRef("function", "lampwork.runtime.leave.post_graph", "wrapper")

_WITH_ATTRIBUTES = ObjectRef("function", "lampwork.runtime.leave.post_graph", "with_attributes")

_RELATIONS = {"==": torch.eq, "!=": torch.ne, "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge}


def _is_plain_annotation(value: Any) -> bool:
    """Whether a template can say what it is: a class, or plain data."""
    return issubclass(type(value), type) or type(value) in (str, int, float, bool, type(None))


def _is_free(lock: Any) -> bool:
    """Whether the program does not hold a lock of its own."""
    return not (lock.locked() if type(lock) is _thread.LockType else lock._is_owned())


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


class Templates(ObjectTemplates):
    """The descriptions of one region's values: see `template`."""

    def template(self, value: Any) -> Template:
        """How to get `value` again. Raises `Break` for values that no template describes (open files, generators)."""
        if type(value) is OpenText:
            value = value.fixed()
        kind = type(value)
        if kind in (type(None), bool, int, float, str):
            return ConstantValue(value)
        if kind in SYMBOLIC:
            return self._symbol(value)
        if kind is HostResult:
            return value.calls.template(value)
        if id(value) in self.loader.host_objects:
            result = self.loader.host_objects[id(value)][1]
            return result.calls.template(result)
        origin = self.loader.by_value.get(id(value))
        if origin is not None and origin.value is value:
            if isinstance(value, (type, types.FunctionType, types.ModuleType)):
                reference = self.loader.guards.reference(value)
                if reference.portable:
                    return ObjectValue(reference)
            return SourceValue(origin.source)
        if isinstance(value, Wrapper):
            return self._once(value, lambda: self._wrapper(value))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind is Scalar:
            if is_backed(value) and value.reads_tensors:
                # The program may have changed what is in tensors by the time that templates are read.
                return ScalarValue(self._tensor(value.numbers.tensor(value)).index, "float")
            return self._number(value.expression)
        if isinstance(value, NumberExpr):
            return self._number(value)
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
        if kind is tuple or kind is torch.Size:
            settled = self.loader.tensors.recorder.sizes.settled.get(id(value))
            if settled is not None:  # one object, which is a key somewhere
                return self.template(settled[1])
        if id(value) in self._made:
            index = self._made[id(value)]
            if index is None:
                raise Break("result", "a tuple that contains itself leaves the region")
            return NewValue(index)
        return self._new(value)

    def _once(self, value: Any, make: Any) -> Template:
        index = self._made.get(id(value))
        return self._after_parts(value, make) if index is None else NewValue(index)

    def _number(self, number: NumberExpr) -> Template:
        if number.leaves and not has_element(number):
            return NumberValue(number)
        if type(number) is Constant:
            return ConstantValue(number.value)
        by = given(number)
        if type(by) is HostResult or type(by) is torch.SymInt:
            return self.template(by)
        if type(number) is Element and type(by) is not Late:
            return ScalarValue(self._tensor(by).index, number.kind or "float")
        found = self._numbers.get(number)
        if found is None:
            self.objects.append(self._made_of(number, by))
            found = self._numbers[number] = NewValue(len(self.objects) - 1)
        return found

    def _made_of(self, number: NumberExpr, by: Any) -> NewCall:
        """What a function makes of numbers when the graph has run."""
        reference = self.loader.guards.reference
        if type(by) is Late:
            return NewCall(reference(by.function), self.items(by.args))
        function, parts = reference(function_of(number)), tuple(map(self._number, number.parts))
        if number in self.loader.numbers.assumed:
            return NewCall(_ATTEMPT, (ObjectValue(function), *parts))
        return NewCall(function, parts)

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
        return NumberValue(sizes.expression(value.node.value))

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

    def _tensor(self, value: torch.Tensor) -> TensorValue:
        if not isinstance(value, Fake):
            raise Break("result", "a tensor that a function transform wraps leaves the transform")
        index = self._output_index.get(id(value))
        if type(value) is not Fake:
            raise Break("result", "a tensor that the program did not get through anything known leaves the region")
        if value.is_neg():
            raise Break("result", "a lazily negated tensor leaves the region", "Call resolve_neg() first.")
        if index is None:
            index = self._output_index[id(value)] = len(self.outputs)
            self.outputs.append(value)
            try:
                self.loader.tensors.recorder.settle_history(value)
            except RuntimeError as error:  # a view made without gradients, of what was written since
                raise Break(
                    "result", f"a tensor whose history autograd refuses to make leaves the region: {error}"
                ) from None
            if self.loader.freed_histories and value.grad_fn is not None and is_spent(value, self.loader.freed_nodes):
                self.spent.add(index)
        cls = self.tensor_class(value)
        reference = None if cls is torch.Tensor else self.loader.guards.reference(cls)
        # A view made without gradients requires grad or not as eager's autograd makes it (`Made("view")`).
        # Instances of subclasses (parameters) were made by the program, which said so.
        base = value._base if cls is torch.Tensor and value.is_leaf else None
        requires_grad = value.requires_grad and (base is None or not base.requires_grad)
        return TensorValue(index, reference, requires_grad, index in self.spent)

    def _wrapper(self, value: Wrapper) -> NewCall:
        """A tensor of a wrapper subclass: one of the same metadata, with what its dict holds."""
        held = dict(value.__dict__)
        if id(value) in self.loader.subclasses.memory:
            with _torch.without_torch_function():
                requires_grad = value.requires_grad
            plain = self.template(self.loader.subclasses.plain(value))
            names = map(ConstantValue, (requires_grad, tuple(held)))
            cls = self.template(type(value).real_class)
            return NewCall(_OVER_MEMORY, (cls, plain, *names, *self.items(held.values())))
        with _torch.without_torch_function():
            if not value.is_leaf:
                name = type(value).real_class.__qualname__
                raise Break("tensor-subclass", f"a tensor of class {name} with a history leaves the region")
            sizes, strides, offset = tuple(value.size()), value.stride(), value.storage_offset()
            version = 0 if value.is_inference() else value._version
            kept = (value.dtype, value.device, value.requires_grad, version, tuple(held))
        parts = (type(value).real_class, sizes, strides, offset)
        return NewCall(_WRAPPER, (*self.items(parts), *map(ConstantValue, kept), *self.items(held.values())))

    @staticmethod
    def tensor_class(value: torch.Tensor) -> type:
        return torch.nn.Parameter if isinstance(value, torch.nn.Parameter) else torch.Tensor

    def _partial(self, value: functools.partial) -> NewCall:
        called = (self.template(value.func), *self.items(value.args))
        keywords = tuple((name, self.template(item)) for name, item in value.keywords.items())
        made = NewCall(self.loader.guards.reference(functools.partial), called, keywords)
        held = dict(value.__dict__)
        if not held:
            return made
        attributes = self.items(held.values())
        self.objects.append(made)
        return NewCall(_WITH_ATTRIBUTES, (NewValue(len(self.objects) - 1), ConstantValue(tuple(held)), *attributes))

    def _derived(self, value: tuple | frozenset) -> Template:
        """One of a class that derives from these. What it holds as attributes may lead back to it."""
        reference = self._class_of(type(value))
        if isinstance(value, tuple):
            made: Template = self._after_parts(value, lambda: NewTuple(self.items(tuple.__iter__(value)), reference))
        else:
            plain = frozenset(frozenset.__iter__(value))
            made = self._after_parts(value, lambda: NewObject(reference, value=self.template(plain)))
        held = getattr_dict(value)
        if not held:
            return made
        attributes = self.items(held.values())
        self.objects.append(NewCall(_WITH_ATTRIBUTES, (made, ConstantValue(tuple(held)), *attributes)))
        index = self._made[id(value)] = len(self.objects) - 1
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
            return self._after_parts(value, lambda: self._partial(value))
        if kind is weakref.ReferenceType and value() is not None and value.__callback__ is None:
            return self._after_parts(value, lambda: NewCall(reference(weakref.ref), (self.template(value()),)))
        if isinstance(value, numpy.dtype) and value.isbuiltin == 1:
            return self._after_parts(value, lambda: NewCall(reference(numpy.dtype), (ConstantValue(value.str),)))
        if kind in _LOCKS and _is_free(value):
            return self._after_parts(value, lambda: NewCall(reference(_LOCKS[kind]), ()))
        if isinstance(value, (type, types.ModuleType, *_BUILTIN_CALLABLES)):
            return self._object(value)
        if kind is list:
            index = self._reserve(value)
            self.objects[index] = NewList(self.items(value))
        elif kind is dict and (owner := self._owner_of(value)) is not None:
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
            overlay = self.loader.cells.get(id(value))
            if overlay is not None:
                return SourceValue(overlay.source)
            index = self._reserve(value)
            self._fill_cell(value)
        elif kind is types.FunctionType:
            return self._function(value)
        elif kind in _LIST_ITERATORS and id(value.__reduce__()[1][0]) in self.loader.by_value:
            return self._list_iterator(value)
        elif kind in DICT_ITERATORS:
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
        elif isinstance(value, (tuple, frozenset)):
            return self._derived(value)
        else:
            return self._instance(value)
        return NewValue(index)

    def _owner_of(self, names: dict[str, Any]) -> Any:
        """The object that the program has made whose `__dict__` this is; None for a dict that one had before it got
        another."""
        _, owner = self.loader.dict_owners.get(id(names), (None, None))
        return owner if owner is not None and getattr_dict(owner) is names else None

    def _object(self, value: Any) -> Template:
        reference = self.loader.guards.reference(value)
        if not reference.portable:
            bound = isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType))
            if bound and not isinstance(value.__self__, (types.ModuleType, type(None))):  # None: bound to nothing
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
        attributes = list(value.__dict__.items())
        # Those of later releases are not there before they are asked for. Objects of `typing` cannot be described.
        annotations = value.__annotations__ if sys.version_info < (3, 14) else {}
        if annotations and all(_is_plain_annotation(each) for each in annotations.values()):
            attributes.append(("__annotations__", annotations))
        self.objects[index] = NewFunction(
            code=value.__code__,
            globals_of=self._namespace(value.__globals__),
            name=value.__name__,
            qualname=value.__qualname__,
            defaults=None if value.__defaults__ is None else self.template(value.__defaults__),
            kwdefaults=None if value.__kwdefaults__ is None else self.template(value.__kwdefaults__),
            closure=tuple(self.template(cell) for cell in cells),
            attributes=tuple((name, self.template(item)) for name, item in attributes),
        )
        for cell in pending:
            self._fill_cell(cell)
        return NewValue(index)

    def _namespace(self, names: dict[str, Any]) -> Template:
        """The globals of a function: those of a module by its name, others through a function that has them."""
        module = sys.modules.get(names.get("__name__", ""))
        if module is not None and module.__dict__ is names:
            return ObjectValue(self.loader.guards.reference(module))
        source = facts.globals_source(self.loader, names)
        if source is not None:
            return SourceValue(source)
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
