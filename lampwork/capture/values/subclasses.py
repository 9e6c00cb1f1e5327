"""Tensors of wrapper subclasses: tensors of the program's own classes, which hold others and say what operators do.

    F.linear(x, weight)      weight: a tensor of class Int8, which holds `int_data` and `scale`

Native PyTorch is called, with a `Wrapper` in the place of the tensor. It goes through autograd and decompositions as
eager does, and calls back where it would call the program's `__torch_function__` and `__torch_dispatch__`: the machine
interprets these, on the fakes that the tensor holds, and what they call is recorded. So the graph has plain operators
on inner tensors. A wrapper is no tensor of the graph: to the program it is an object, whose attributes are loaded,
guarded and written as those of others are, and which is made again where it leaves the region.
"""

from __future__ import annotations

import types
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.capture.machine import Answer, World
from lampwork.capture.machine.attributes import NATIVE_KINDS, is_data_descriptor
from lampwork.capture.machine.operators import IN_PLACE, REFLECTED
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.tensor_inputs import MEMORY_METHODS, TENSOR_ATTRIBUTES
from lampwork.capture.outside.wrappers import dispatches, is_changed
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.family import HANDS_ON, Family
from lampwork.capture.values.walk import holds
from lampwork.fakes.operators import operator
from lampwork.fakes.wrappers import Wrapper, wrapper_class

if TYPE_CHECKING:
    from lampwork.capture.outside.overlay import Origin
    from lampwork.capture.world import TorchWorld

#: Methods that look into an object, which tensors have as all objects do.
_OF_OBJECTS = frozenset(vars(object)) - frozenset(vars(torch.Tensor.__base__))
#: Methods that make a tensor of another class.
_MAKE = frozenset({"as_subclass", "_make_subclass", "_make_wrapper_subclass"})
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DISPATCH, _FUNCTION = "__torch_dispatch__", "__torch_function__"


def refused(cls: type, what: str) -> Break:
    return Break("tensor-subclass", f"a tensor of class {cls.__qualname__} {what}")


class Subclasses:
    """The wrapper subclasses that one capture has met."""

    def __init__(self, world: TorchWorld) -> None:
        self.world, self.recorder = world, world.recorder
        #: What stands for tensors of a class.
        self.classes: dict[type, type[Wrapper]] = {}
        #: The fakes over whose memory others are, by id; and these.
        self.memory: dict[int, tuple[Wrapper, Any]] = {}
        #: Those from outside that the program has met: where they come from, sizes and strides.
        self.outside: list[tuple[Origin, tuple[tuple, tuple]]] = []

    def class_of(self, real: type) -> type[Wrapper]:
        """What stands for tensors of the class `real`."""
        known = self.classes.get(real)
        if known is None:
            if _torch.is_native_subclass(real):
                raise refused(real, "is read or made, whose operators are native")
            base = Wrapper
            for each in real.__mro__[1:]:
                if each not in _PLAIN and issubclass(each, torch.Tensor):
                    base = self.class_of(each)
                    break
            if dispatches(real):
                self._method(real, _DISPATCH)
            else:
                self.world.class_lookup(real, _DISPATCH)
            overloads = self._overloads(real)
            flattens = all(
                self.world.class_lookup(real, name)[0] for name in ("__tensor_flatten__", "__tensor_unflatten__")
            )
            known = self.classes[real] = wrapper_class(real, base, overloads, flattens)
            self.recorder.wrapped = self.dispatched
        return known

    def _method(self, real: type, name: str) -> Any:
        """A class method in Python, bound to the class. Its look-up is guarded."""
        method = self.world.class_lookup(real, name)[1]
        function = getattr(method, "__func__", None)
        if type(method) not in (classmethod, staticmethod) or not isinstance(function, FunctionType):
            raise refused(real, f"has a {name} that is no class method in Python")
        return MethodType(function, real) if type(method) is classmethod else function

    def _overloads(self, real: type) -> Any:
        method = self.world.class_lookup(real, _FUNCTION)[1]
        if method is _torch.no_torch_function:
            return None
        self._method(real, _FUNCTION)
        self.world.process.read("torch_function")  # whether anybody is asked
        return self.overloaded

    def made(self, real: type, args: tuple, options: dict[str, Any]) -> Any:
        """`Tensor._make_wrapper_subclass(real, *args, **options)`."""
        cls = self.class_of(real)
        if options.get("dispatch_sizes_strides_policy") is not None or len(args) > 8:
            raise refused(real, "says in Python what its sizes are")
        made = _torch.make_wrapper(cls, *args, **options)
        with _torch.without_torch_function():
            layout = made.layout
        if layout is not torch.strided:
            raise refused(real, f"has layout {layout}")
        return made

    def over(self, real: type, plain: Any, requires_grad: bool = False) -> Any:
        """A tensor of the class `real` over the memory of a fake, without a history. They share a version."""
        cls = self.class_of(real)
        with _torch.kernels_only(), _torch.without_torch_function():
            made = _torch.as_subclass(cls, plain, requires_grad)
        self.memory[id(made)] = (made, plain)
        return made

    def plain(self, wrapper: Wrapper) -> Any:
        """The fake over whose memory one is."""
        if id(wrapper) not in self.memory:
            raise refused(type(wrapper).real_class, "has no memory, which is asked for")
        return self.memory[id(wrapper)][1]

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A function of PyTorch's in C, called with such tensors."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Wrapper) and function.__name__ in _OF_OBJECTS:
            raise refused(type(owner).real_class, f"is asked for {function.__name__}")
        if self.memory and getattr(function, "__name__", "") == "tolist":
            raise Break("data-dependent", "the contents of a tensor of a subclass are read")
        return function(*args, **kwargs)

    # -- calls from native code

    def overloaded(self, function: Any, classes: tuple, args: tuple = (), kwargs: dict | None = None) -> Any:
        """What PyTorch gets of the program's `__torch_function__`."""
        given: tuple = (function, self._real(classes), args)
        method = self._method(classes[0].real_class, _FUNCTION) if classes else None
        for each in classes:
            if not issubclass(each, Wrapper):
                raise Break("tensor-subclass", f"tensors of class {each.__qualname__} and others meet")
        if method is None:
            return NotImplemented
        return self._checked(self.world.machine.call(method, given if kwargs is None else (*given, kwargs)), classes[0])

    def dispatched(self, overload: Any, classes: tuple, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the program's `__torch_dispatch__` makes of an operator that has come so far: of the first class, of
        those that PyTorch has put in order, which does not decline."""
        wrappers = [each for each in classes if issubclass(each, Wrapper)]
        real = self._real(tuple(wrappers))
        if not any(dispatches(each.real_class) for each in wrappers):
            return self._on_memory(overload, args, kwargs)
        with self.recorder._mode:
            for cls in wrappers:
                if not dispatches(cls.real_class):
                    continue
                method = self._method(cls.real_class, _DISPATCH)
                answer = self.world.machine.call(method, (overload, real, args, kwargs))
                if answer is not NotImplemented:
                    return self._checked(answer, cls)
        raise refused(wrappers[0].real_class, f"declines {overload}")

    def _on_memory(self, overload: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """An operator on tensors that have memory, whose classes say nothing about it."""
        found: dict[int, Wrapper] = {}

        def plain(value: Any) -> Any:
            if isinstance(value, Wrapper):
                fake = self.plain(value)
                found[id(fake)] = value
                return fake
            return type(value)(map(plain, value)) if type(value) in (list, tuple) else value

        def seen(value: Any) -> Any:
            if type(value) in (list, tuple):
                return type(value)(map(seen, value))
            return found.get(id(value), value)

        known = operator(overload)
        if known.kind in ("metadata", "storage"):
            raise Break("tensor-subclass", f"{overload} changes a tensor of a subclass")
        result = self.recorder.call(overload, plain(args), {name: plain(each) for name, each in kwargs.items()})
        return seen(result)

    def _real(self, classes: tuple) -> tuple:
        return tuple([each.real_class if issubclass(each, Wrapper) else torch.Tensor for each in classes])

    def _checked(self, answer: Any, cls: type[Wrapper]) -> Any:
        """An answer of the program's, as native code takes it."""
        if not self.world.data.is_data(answer):
            raise refused(cls.real_class, f"answers an operator with a {type(answer).__name__}")
        return answer

    # -- the end

    def check_changes(self) -> None:
        """Breaks where the program has changed what no effect changes of a wrapper from outside."""
        for origin, layout in self.outside:
            if is_changed(origin, layout):
                raise refused(type(origin.value).real_class, "is given another size, or other gradients")

    def need_grad(self) -> bool:
        """Whether one from outside has a gradient that nothing would add to."""
        with _torch.without_torch_function():
            return any(origin.value.requires_grad for origin, _ in self.outside)


class _Kinds(frozenset):
    """All classes of what stands for tensors of subclasses."""

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and issubclass(cls, Wrapper)


_KINDS = _Kinds()

#: What gives the `__dict__` of a tensor. Bases of its class that are no tensors have another, for their own instances.
_NAMESPACE = vars(torch.Tensor)["__dict__"]


def has_wrapper(args: tuple, kwargs: dict[str, Any], owner: Any = None) -> bool:
    """Whether a call is given a tensor of a subclass, or is one of its methods."""
    return isinstance(owner, Wrapper) or holds(args, _KINDS) or holds(kwargs, _KINDS)


class SubclassFamily(Family):
    """Tensors of wrapper subclasses."""

    def has(self, cls: type) -> bool:
        return issubclass(cls, Wrapper)

    def kind(self, value: Any) -> type:
        return type(value).real_class

    # -- operators: methods of the class, or PyTorch's own

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        self._refuse_reflected(op, left, right)
        return World.binary_op(self.world, op, left, right)

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        self._refuse_reflected(IN_PLACE[op], left, right)
        return World.inplace_op(self.world, op, left, right)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        self._refuse_reflected(op, left, right)
        return World.compare_op(self.world, op, left, right)

    def _refuse_reflected(self, op: Any, left: Any, right: Any) -> None:
        """A subclass of the left operand's class is asked first, if it has a method of its own for the right side."""
        if type(left) is not Fake and not isinstance(left, Wrapper) or not isinstance(right, Wrapper):
            return
        real = self.kind(right)
        if real is self.world.type_of(left):
            return
        name = REFLECTED[op]
        if self.world.class_lookup(real, name)[1] is not self.world.class_lookup(Fake, name)[1]:
            raise refused(real, f"has a {name} of its own")

    # -- attributes

    def load_attr(self, value: Any, name: str) -> Any:
        world, cls = self.world, self.kind(value)
        if name == "__class__":
            return cls
        getter = world.class_lookup(cls, "__getattribute__")[1]
        if type(getter) not in NATIVE_KINDS:
            raise refused(cls, "has a __getattribute__ in Python")
        found, attribute = world.class_lookup(cls, name)
        if found and is_data_descriptor(attribute):
            return self.bound(value, cls, name, attribute)
        present, own = world.instance_lookup(value, name)
        if present:
            return own
        if found:
            return self.bound(value, cls, name, attribute)
        has_fallback, fallback = world.class_lookup(cls, "__getattr__")
        if has_fallback:
            return world.call_attribute(fallback, value, (name,))
        raise AttributeError(f"'{cls.__name__}' object has no attribute '{name}'", name=name, obj=value)

    def bound(self, value: Any, cls: type, name: str, attribute: Any) -> Any:
        kind = type(attribute)
        if kind is FunctionType:
            return MethodType(attribute, value)
        if kind not in NATIVE_KINDS:
            return self.world.descriptor_get(attribute, value, cls)
        if hasattr(attribute, "__set__") and name not in TENSOR_ATTRIBUTES and name not in ("data", "__dict__"):
            raise Break("tensor-attribute", f"the attribute {name} of a tensor of class {cls.__qualname__} is read")
        if name in MEMORY_METHODS and name not in _MAKE:
            raise refused(cls, f"is asked for {name}")
        if name == "__dict__":  # of whatever base the descriptor is, the namespace is the object's own
            return self.world.families.plain.native_attribute(_NAMESPACE, value)
        return attribute.__get__(value, type(value))

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        found, attribute = self.world.class_lookup(self.kind(obj), name)
        if found and type(attribute) in NATIVE_KINDS and hasattr(attribute, "__set__"):
            if name != "requires_grad" or type(value) is not bool:
                raise Break("tensor-attribute", f"the attribute {name} of a tensor of a subclass is written")
            obj.requires_grad = value
            return
        super().instance_store(obj, name, value)

    # -- questions

    def is_instance(self, value: Any, cls: Any) -> Any:
        """`isinstance(value, cls)`, or HANDS_ON."""
        kind = self.kind(value)
        for base, flag in ((torch.nn.Parameter, "_is_param"), (torch.nn.Buffer, "_is_buffer")):
            if cls is base:
                self.world.note_bases(kind, cls)
                return issubclass(kind, cls) or bool(self.world.instance_lookup(value, flag)[1])
        if type(cls) is type(torch.Tensor) or type(cls) is type:
            self.world.note_bases(kind, cls)
            return issubclass(kind, cls)
        return HANDS_ON


# Answers --------------------------------------------------------------------------------------------------------------


def _make_wrapper(world: Any, cls: Any, *args: Any, **options: Any) -> Any:
    if not isinstance(cls, type) or not issubclass(cls, torch.Tensor) or not world.data.are_data(args, options):
        raise Break("tensor-subclass", f"a tensor subclass is made of {world.data.describe_arguments(args, options)}")
    return world.subclasses.made(cls, args, options)


def _as_subclass(world: Any, tensor: Any, cls: Any) -> Any:
    """`tensor.as_subclass(cls)`."""
    return _over(world, tensor, cls, torch.ops.aten.alias.default, False)


def _make_subclass(world: Any, cls: Any, data: Any, require_grad: Any = False, **options: Any) -> Any:
    if options:
        raise Break("tensor-subclass", "a tensor subclass that says in Python what its sizes are is made")
    return _over(world, data, cls, torch.ops.aten.detach.default, bool(require_grad))


def _over(world: Any, tensor: Any, cls: Any, share: Any, requires_grad: bool) -> Any:
    plain = world.subclasses.plain(tensor) if isinstance(tensor, Wrapper) else tensor
    if type(plain) is not Fake or not isinstance(cls, type) or not issubclass(cls, torch.Tensor):
        raise Break("tensor-subclass", "a tensor of a subclass is made of something else than a tensor")
    made = share(plain)
    if cls is torch.Tensor and not requires_grad:
        return made
    if made.requires_grad or cls in _PLAIN or (requires_grad and torch.is_grad_enabled()):
        raise refused(cls, "that requires grad is made")
    return world.subclasses.over(cls, made, requires_grad)


def _default_function(
    world: Any, cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
) -> Any:  # fmt: skip
    """`Tensor.__torch_function__`: what the function gives, as tensors of the class."""
    if not all(issubclass(cls, each) for each in types):
        return NotImplemented
    world.note_bases(cls)
    with _torch.without_torch_function():
        result = world.machine.call(func, tuple(args), dict(kwargs or {}))
    return result if func in _torch.keep_their_results() else _converted(world, result, cls)


def _converted(world: Any, result: Any, cls: type) -> Any:
    if cls is torch.Tensor:
        return result
    if isinstance(result, torch.Tensor) and not issubclass(world.type_of(result), cls):
        return _as_subclass(world, result, cls)
    if isinstance(result, (tuple, list)):
        return type(result)([_converted(world, each, cls) for each in result])
    return result


def _correct_aliasing(world: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    if not world.data.are_data((args, kwargs, out), {}):
        raise Break("tensor-subclass", "return_and_correct_aliasing is called with objects")
    return _torch.correct_aliasing(func, args, kwargs, out)


def _without_function(
    world: Any, function: Any, classes: Any = (), args: Any = (), kwargs: Any = None
) -> Any:  # fmt: skip
    """`torch._C._disabled_torch_function_impl`: the function itself, which asks no class again."""
    with _torch.without_torch_function():
        return world.machine.call(function, tuple(args), dict(kwargs or {}))


def _get(world: Any, descriptor: Any, obj: Any = None, cls: Any = None) -> Any:
    """`Tensor.shape.__get__(x)`, which is what a `__torch_function__` is given for `x.shape`."""
    if isinstance(obj, Wrapper):
        return world.families.subclass.bound(obj, type(obj).real_class, descriptor.__name__, descriptor)
    if type(obj) is Fake:
        return world.load_attr(obj, descriptor.__name__)
    return world.call_native(_GET, (descriptor, obj, cls), {})


def _enter(world: Any, context: Any) -> None:
    world.process.entered.append(context)
    context.__enter__()


def _exit(world: Any, context: Any, *error: Any) -> None:
    world.process.entered.remove(context)
    context.__exit__(None, None, None)


def parameter(world: Any, data: Any, requires_grad: bool) -> Any:
    """`nn.Parameter(data)` of a tensor of a subclass: what its `detach` gives, with a mark."""
    made = world.machine.call(world.attribute(data, "detach"), ())
    made = world.machine.call(world.attribute(made, "requires_grad_"), (requires_grad,))
    if type(made) is not type(data):
        raise refused(type(data).real_class, "is made a Parameter, and its detach gives another class")
    world.store_attr(made, "_is_param", True)
    return made


_GET = vars(types.GetSetDescriptorType)["__get__"]


def _text_of_operator(function: Any) -> Any:
    """What names an operator: which one it is is known."""
    return lambda world, operator: function(operator)


_OPERATOR = _torch.OPERATOR_TYPES[0]
NATIVES: dict[Any, Answer] = {
    **{each: _text_of_operator(each) for each in (_OPERATOR.__str__, _OPERATOR.__repr__, _OPERATOR.name)},
    _GET: _get,
    _torch.make_wrapper: _make_wrapper,
    _torch.correct_aliasing: _correct_aliasing,
    _torch.make_subclass: _make_subclass,
    _torch.default_torch_function: _default_function,
    vars(torch.Tensor.__base__)["as_subclass"]: _as_subclass,
    _torch.no_torch_function: _without_function,
    _torch.without_torch_function: lambda world: _torch.without_torch_function(),
    _torch.ENTER_WITHOUT_TORCH_FUNCTION: _enter,
    _torch.EXIT_WITHOUT_TORCH_FUNCTION: _exit,
}

__all__ = ["SubclassFamily", "Subclasses", "has_wrapper", "parameter"]
