"""Calls of native functions while capturing: each runs for real if its effect class allows it, else a graph break.

Which rule a function follows that is in no table of effect classes is said by `rules.py`.
"""

from __future__ import annotations

import collections
import functools
import operator
import re
import types
import weakref
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.torch_version import TorchVersion

from lampwork import _torch
from lampwork.capture.machine import UNBOUND, MachineGenerator, World
from lampwork.capture.machine.attributes import NATIVE_KINDS, find_in_class
from lampwork.capture.machine.iteration import InterpretedIterator, ReversedIterator, SequenceIterator
from lampwork.capture.natives.caches import call_cached, guard_native
from lampwork.capture.natives.effect_classes import EFFECTS, ITERATORS, STATE_READERS, WRITERS, name_of
from lampwork.capture.natives.library import death_callback
from lampwork.capture.natives.refusals import with_numbers
from lampwork.capture.natives.torch_answers import legacy_tensor
from lampwork.capture.outside import facts
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE, bound_owner
from lampwork.capture.outside.tensor_inputs import is_tensor_function
from lampwork.capture.record.fake import TENSOR_KINDS, DataDependent
from lampwork.capture.values.array_functions import call_method, call_with_tensors, is_of_numpy
from lampwork.capture.values.container_methods import SHADOW_METHODS
from lampwork.capture.values.hashed_keys import first_of, keys_of
from lampwork.capture.values.set_order import see_order
from lampwork.capture.values.sizes import settled, settled_in_place
from lampwork.capture.values.special_methods import is_object
from lampwork.capture.values.subclasses import has_wrapper
from lampwork.capture.values.unbacked_numbers import item
from lampwork.capture.values.walk import holds
from lampwork.errors import LampworkError
from lampwork.ir.reference import is_replacement

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_ITERATORS = frozenset({
    *ITERATORS, map, filter, MachineGenerator, InterpretedIterator, ReversedIterator, SequenceIterator,
})  # fmt: skip
#: Functions that look at an iterator as an object, which may never end: they get no list of what is left of it.
_NEVER_ITERATES = frozenset({
    repr, ascii, str, format, bool, int, float, complex, abs, round, chr, ord, hex, oct, bin, divmod, pow, range, slice,
})  # fmt: skip
_NEW_ALLOWED = frozenset({
    id(cls)
    for cls in (object, dict, list, tuple, set, frozenset, int, float, str, complex, bytes, collections.OrderedDict,
                collections.deque, collections.defaultdict, types.SimpleNamespace, property, staticmethod, classmethod,
                functools.partial, types.GenericAlias, weakref.ReferenceType)
})  # fmt: skip
#: Methods that keep what they are given, and do not look at it.
_STORES = frozenset({list.append, collections.deque.append, collections.deque.appendleft})
IDENTITY_METHODS: frozenset[Any] = frozenset({
    object.__init__, object.__init_subclass__, object.__hash__, object.__eq__, object.__ne__, object.__new__,
    object.__subclasshook__, *[vars(object)[name] for name in ("__lt__", "__le__", "__gt__", "__ge__")],
})  # fmt: skip
#: What fills a dict from its last argument, with the number of arguments.
_FILLS_DICTS: dict[Any, int] = {
    dict: 1, collections.OrderedDict: 1, collections.defaultdict: 2, dict.update: 2, dict.__init__: 2, dict.__ior__: 2,
    collections.OrderedDict.update: 2,
}  # fmt: skip
#: Methods of C classes that are told the class that defines them: a subclass of the usual kind.
_BUILTIN_METHOD = type(re.compile("").search)
_KEY_WRAPPER = type(functools.cmp_to_key(len))  # type: ignore[arg-type]
#: Kinds of functions whose answers were asked for before; others are compiled by Cython, for example.
_ANSWERED_BEFORE = frozenset({
    BuiltinFunctionType, _BUILTIN_METHOD, types.MethodDescriptorType, types.WrapperDescriptorType, type,
})  # fmt: skip
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_GETTERS = frozenset({"attrgetter", "itemgetter", "methodcaller"})
_MAKES_KEYED = frozenset({set, frozenset, dict, collections.OrderedDict, collections.defaultdict})
_TAKES_ITERABLE = frozenset({
    "update", "fromkeys", "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset",
    "isdisjoint", "intersection_update", "difference_update", "symmetric_difference_update", "__init__", "__or__",
    "__ior__", "__ror__", "__and__", "__sub__", "__xor__", "__rand__", "__rsub__", "__rxor__", "__iand__", "__isub__",
    "__ixor__", "__eq__", "__ne__", "__le__", "__lt__", "__ge__", "__gt__",
})  # fmt: skip


def is_hashable(function: Any) -> bool:
    """Whether tables may be asked for it. They hold nothing whose hash the program's own code gives, which is not
    called."""
    answers = find_in_class(type(function), "__hash__")
    if type(answers) is not types.WrapperDescriptorType and (
        type(answers) is not FunctionType or is_replacement(answers)
    ):
        return False
    try:
        hash(function)
    except TypeError:
        return False
    return True


def unknown(function: Any) -> Break:
    return Break(
        "unknown-native",
        f"the native function {name_of(function)} is called, and what it does to its arguments is not known",
        "Call it outside the compiled function, or report it so that it can be added to the table.",
    )


# By effect class ------------------------------------------------------------------------------------------------------


def call_by_effect(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A callable implemented in C, by its effect class. Raises `Break` for one that is in no table."""
    kind = type(function)
    if not callable(function):
        return world.families[kind].example(function)(*args, **kwargs)  # which words the error
    if kind is BuiltinFunctionType or kind is _BUILTIN_METHOD:
        owner = bound_owner(function)
        if owner is not None:
            return _call_method(world, function, owner, args, kwargs)
        if type(function.__self__).__module__ == "pybind11_builtins" and function in world.intrinsics:
            return world.intrinsics[function](world, *args, **kwargs)
    if is_tensor_function(function):
        return world.tensor_calls.call(function, args, kwargs)
    if kind is weakref.ReferenceType and not args and not kwargs:
        return _referent(world, function)
    effect = EFFECTS.get(function) if is_hashable(function) else None
    if effect is None:
        return _call_other(world, function, args, kwargs)
    return _perform_as_eager(world, function, effect, args, kwargs)


def _call_method(world: TorchWorld, function: Any, owner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A C method bound to its object."""
    if id(owner) in world.made_caches:
        return function(*args, **kwargs)
    if isinstance(owner, torch.Tensor):
        if is_tensor_function(function):
            return world.tensor_calls.call(function, args, kwargs)
        raise unknown(function)
    descriptor = None
    for cls in type(owner).__mro__:
        candidate: Any = cls.__dict__.get(function.__name__)
        # A Python class may override the method that `super()` found.
        if type(candidate) in _C_METHODS and candidate.__get__(owner, type(owner)) == function:
            descriptor = candidate
            break
    if descriptor is not None and descriptor in world.intrinsics:
        return world.intrinsics[descriptor](world, owner, *args, **kwargs)
    effect = EFFECTS.get(descriptor) if descriptor is not None and is_hashable(descriptor) else None
    if effect is None:
        return _call_other(world, function, args, kwargs)
    return _perform_as_eager(world, descriptor, effect, (owner, *args), kwargs)


def _perform_as_eager(world: TorchWorld, function: Any, effect: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`perform`, without errors that tell of stand-ins among the arguments."""
    try:
        return perform(world, function, effect, args, kwargs)
    except LampworkError:
        raise
    except Exception as error:
        args, kwargs = with_numbers(function, args, kwargs, error)
        return perform(world, function, effect, args, kwargs)


def perform(world: TorchWorld, function: Any, effect: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A native function whose effect class is known. Raises `Break` for arguments that it may not be given."""
    loader, data = world.loader, world.data
    if args and id(args[0]) in loader.unsettled and effect in ("method", "keyed", "compares"):
        special = SHADOW_METHODS.get(function)
        if special is not None:
            answer = special(world, loader.unsettled[id(args[0])], *args[1:], **kwargs)
            if answer is not UNBOUND:
                return answer
    for value in args[:1] if function in _STORES else args:
        world.touch(value)
    for value in kwargs.values():
        world.touch(value)
    args = see_order(world, function, effect, args, kwargs)
    if len(args) == _FILLS_DICTS.get(function):
        args = (*args[:-1], as_pairs(world, args[-1]))
    if effect == "data":
        if function not in _NEVER_ITERATES:
            args = tuple([world.collect(value) if type(value) in _ITERATORS else value for value in args])
        if world.recorder.sizes:
            args = tuple(map(settled_in_place, args)) if function in WRITERS else settled(args)
            kwargs = settled(kwargs)
        if getattr(function, "__objclass__", None) is re.Pattern:
            args = tuple([str.__str__(each) if type(each) is TorchVersion else each for each in args])
        wraps = world.recorder.wrapped is not None and has_wrapper(args, kwargs)
        if wraps or not data.are_data(args, kwargs):
            if type(function) is types.WrapperDescriptorType and len(args) == 2 and data.is_data(args[0]):
                # `5 .__add__(point)`: numbers and strings leave operands of other classes to the other side.
                if not isinstance(args[1], (int, float, complex, str, bytes)):
                    return NotImplemented
            if wraps:
                raise Break("tensor-subclass", f"{name_of(function)} is called with a tensor of a subclass")
            reason = f"{name_of(function)} is called with {data.describe_arguments(args, kwargs)}"
            raise Break("native-argument", reason)
        if is_of_numpy(function) and (holds(args, TENSOR_KINDS) or holds(kwargs, TENSOR_KINDS)):
            return call_with_tensors(world, function, args, kwargs)
    elif function in _MAKES_KEYED or (effect == "keyed" and getattr(function, "__name__", "") in _TAKES_ITERABLE):
        args = check_elements(world, function, args)
    elif effect == "keyed":
        if len(args) > 1:
            container = args[0] if isinstance(args[0], (dict, set)) else {}
            world.families.container.check_key(container, args[1])
    elif effect == "compares":
        if not all(data.is_plain_data(value) or _all_identity(world, value) for value in args):
            return world.families.container.compare_elements(function, args)
    return function(*args, **kwargs)


def check_elements(world: TorchWorld, function: Any, args: tuple) -> tuple:
    """The arguments of native code that makes keys of their elements, or compares those: of the program's code for
    that, nothing may be run that does more than read."""
    keys = world.families.container.keys
    fills = function in _FILLS_DICTS
    made = tuple(
        [world.collect(each) if type(each) in _ITERATORS and not _may_stop(function) else each for each in args]
    )
    if fills and made and type(made[-1]) in (list, tuple):
        pairs = [world.collect(each) if is_object(each) and not isinstance(each, tuple) else each for each in made[-1]]
        made = (*made[:-1], pairs)
    keys.check_all(*map(keys_of, made[:-1] if fills else made), *([first_of(made[-1])] if fills and made else []))
    return made


def _may_stop(function: Any) -> bool:
    """Whether a method of sets need not go over all of what it is given, which may never end."""
    return function.__name__ in ("isdisjoint", "issuperset")


def as_pairs(world: TorchWorld, value: Any) -> Any:
    """What native code makes a dict of as it does of `value`, without running Python code."""
    if isinstance(value, (*_ITERATORS, list, tuple, type(None))) or type(value) in (dict, collections.OrderedDict):
        return value
    keys = world.attribute_or(value, "keys", UNBOUND)
    if keys is UNBOUND:
        return world.native_iterable(value)
    if isinstance(value, dict) and world.class_lookup(type(value), "__iter__")[1] is dict.__iter__:
        return value
    made: dict = {}
    world.dict_update(made, value)
    return made


def _all_identity(world: TorchWorld, value: Any) -> bool:
    held = value if isinstance(value, (list, tuple, set, frozenset, collections.deque)) else (value,)
    return all(world.loader.has_identity_hash(each) and not isinstance(each, torch.Tensor) for each in held)


def _referent(world: TorchWorld, reference: weakref.ReferenceType) -> Any:
    """What a weak reference was made of, or what was loaded for it."""
    value = reference()
    origin = world.loader.origin(value)
    if origin is not None and world.resumed_with:
        held = [each for frame in world.machine.frames for each in (*frame.locals, *frame.stack)]
        if facts.is_let_go(origin, world.resumed_with, held):
            # It may live for the sake of this call alone; a native one is made when this call is over.
            raise Break("opaque-value", "a weak reference leads to what the program let go of")
    return value


# By rule --------------------------------------------------------------------------------------------------------------


def _call_other(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A callable in C without an effect class."""
    if type(function) is _KEY_WRAPPER:
        return function(*args, **kwargs)
    if is_hashable(function):
        if id(function) in world.loader.opaque:
            guard_native(world, world.loader.by_value[id(function)].source, function)
        if function in world.intrinsics and type(function) not in _ANSWERED_BEFORE:
            return world.intrinsics[function](world, *args, **kwargs)
    return world.rules.of_native(function)(world, function, args, kwargs)


def call_identity_method(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A method of `object`, which looks at nothing that its arguments hold."""
    if function is object.__new__ and args and isinstance(args[0], type):
        refuse_finalizer(world, args[0])
    return function(*args, **kwargs)


def natively(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def call_array_method(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return call_method(world, function.array, function.name, args, kwargs)


def call_tensor_function(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    op = _torch.returning_numbers(function)
    if op is None:
        return world.tensor_calls.call(function, args, kwargs)
    has_tensors = any(str(each.type) == "Tensor" for each in op._schema.returns)
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    differentiable = has_tensors and torch.is_grad_enabled() and any(each.requires_grad for each in given)
    if differentiable or _torch.tells_numbers(op):
        try:
            return world.tensor_calls.call(function, args, kwargs)
        except DataDependent:
            if differentiable:
                raise
    # Numbers that a run tells: out of tensors, as `item()` gives them.
    made = world.tensor_calls.call(_torch.numbers_as_tensors(op), args, kwargs)
    results = made if type(made) is tuple else (made,)
    pairs = zip(results, op._schema.returns, strict=True)
    found = [each if str(result.type) == "Tensor" else item(world.recorder, each) for each, result in pairs]
    return found[0] if len(found) == 1 else tuple(found)


def call_ufunc(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return perform(world, function, "data", args, kwargs)


def read_state(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    world.process.read(STATE_READERS[function])
    return function(*args, **kwargs)


def set_state(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return world.process.set(function, args, kwargs)


def enter_context(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    world.process.entered.append(args[0])
    return function(*args, **kwargs)


def leave_context(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    world.process.entered.remove(args[0])
    return function(*args, **kwargs)


def make_legacy_tensor(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return legacy_tensor(world, function.dtype, args, kwargs)


def makes_plain(cls: Any) -> bool:
    """Whether `__new__` of `cls` makes an instance that holds what it is given, and does nothing else."""
    return id(cls) in _NEW_ALLOWED


def call_new_of_class(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], type):
        refuse_finalizer(world, args[0])
    for value in args:
        world.touch(value)
    return function(*args, **kwargs)


def instantiate_native(world: TorchWorld, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A class whose `__new__` and `__init__` are both implemented in C."""
    data = world.data
    if cls is _torch.InferenceModeContext:
        world.process.read("inference_mode")
        return cls(*args, **kwargs)
    if issubclass(cls, numpy.generic) and data.are_data(args, kwargs) and not holds(args, TENSOR_KINDS):
        return cls(*args, **kwargs)
    if not makes_plain(getattr(cls.__new__, "__self__", None)) and not issubclass(cls, BaseException):
        raise unknown(cls)
    refuse_finalizer(world, cls)
    if issubclass(cls, collections.OrderedDict) and (args or kwargs):
        if type(cls.__setitem__) is FunctionType or type(cls.update) is FunctionType:
            raise Break("native-class", f"{cls.__qualname__} fills itself from native code")
    for value in args:
        world.touch(value)
    if issubclass(cls, dict) and len(args) == (2 if issubclass(cls, collections.defaultdict) else 1):
        args = (*args[:-1], as_pairs(world, args[-1]))
    base = next((each for each in (collections.defaultdict, dict, set, frozenset) if issubclass(cls, each)), None)
    if base is not None:
        args = check_elements(world, base, args)
    if issubclass(cls, (int, float, str, complex, bytes)) and not data.are_data(args, kwargs):
        raise Break("native-argument", f"{cls.__qualname__} is made of {data.describe_arguments(args, kwargs)}")
    return cls(*args, **kwargs)


def call_cached_function(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if id(function) not in world.made_caches:
        return call_cached(world, function, args, kwargs)
    for value in (*args, *kwargs.values()):
        world.families.container.check_key({}, value)
    return function(*args, **kwargs)


def call_back(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return world.machine.call(function.function, args, kwargs)


def is_getter(function: Any) -> bool:
    return type(function).__name__ in _GETTERS


def call_getter(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`operator.attrgetter("a", "b")(x)`, `itemgetter(0)(x)`, `methodcaller("f", 1)(x)`: done by the machine."""
    if kwargs or len(args) != 1:
        raise unknown(function)
    (value,) = args
    maker, parts = function.__reduce__()
    if type(function) is operator.methodcaller:
        named = maker.keywords if isinstance(maker, functools.partial) else {}
        name, *given = (*maker.args, *parts) if named else parts
        return world.machine.call(world.attribute(value, name), tuple(given), named)
    complete = world.machine.complete
    results = []
    for part in parts:
        if type(function).__name__ == "attrgetter":
            current = value
            for name in part.split("."):
                current = complete(world.load_attr(current, name))
        else:
            current = complete(world.get_item(value, part))
        results.append(current)
    return results[0] if len(results) == 1 else tuple(results)


# Instances ------------------------------------------------------------------------------------------------------------


def refuse_finalizer(world: TorchWorld, cls: type) -> None:
    """Breaks where an object with a `__del__` would be made. It runs when the last reference to the object goes, which
    capture, and a region that makes the object at its end, do at another moment than eager."""
    found, method = world.class_lookup(cls, "__del__") if cls.__flags__ & HEAP_TYPE else (False, None)
    if found and type(method) not in NATIVE_KINDS:
        raise Break("finalizer", f"an object of {cls.__qualname__} is made, which has a __del__",
                    "Make it outside the compiled function, or free what it holds in a with statement.")  # fmt: skip


def call_new(world: TorchWorld, new: Any, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A `__new__` in C, of a class whose `__init__` is about to be interpreted."""
    owner = getattr(new, "__self__", None)
    if issubclass(cls, torch.Tensor):
        raise Break("tensor-subclass", f"a tensor of class {cls.__qualname__} is made")
    if not makes_plain(owner) and not (isinstance(owner, type) and issubclass(owner, BaseException)):
        raise unknown(cls)
    refuse_finalizer(world, cls)
    for value in args:
        world.touch(value)
    if owner is weakref.ReferenceType:
        args = (args[0], *[death_callback(world, each) for each in args[1:]])
    return new(cls, *args, **kwargs)


def instantiate(world: TorchWorld, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)`."""
    if cls in world.intrinsics:
        return world.intrinsics[cls](world, *args, **kwargs)
    if cls is torch.nn.Buffer:
        raise Break("tensor-subclass", "a Buffer is made", "Make buffers outside the compiled function.")
    _, initialise = world.class_lookup(cls, "__init__")
    if type(initialise) is not FunctionType and initialise is not object.__init__:
        for value in args:
            world.touch(value)
    return World.instantiate(world, cls, args, kwargs)
