"""Calls of native functions while capturing: each runs for real if its effect class allows it, else a graph break."""

from __future__ import annotations

import collections
import functools
import inspect
import operator
import re
import types
import weakref
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.capture.base import CaptureWorld
from lampwork.capture.machine import UNBOUND, MachineGenerator, World
from lampwork.capture.machine.iteration import InterpretedIterator, ReversedIterator, SequenceIterator
from lampwork.capture.machine.natives import Callback
from lampwork.capture.natives.answers import REFUSED, install_answers
from lampwork.capture.natives.caches import CACHED_FUNCTION, call_cached, guard_native
from lampwork.capture.natives.context_variables import install_context_variables
from lampwork.capture.natives.effect_classes import (
    CONSTANT_ANSWERS,
    CONTEXT_ENTER,
    CONTEXT_EXIT,
    EFFECTS,
    ITERATORS,
    STATE_READERS,
    STATE_WRITERS,
    name_of,
)
from lampwork.capture.natives.function_modes import install_function_modes
from lampwork.capture.natives.generators import install_generators
from lampwork.capture.natives.host_functions import install_host_functions
from lampwork.capture.natives.introspection import DISPATCH_CODE, dispatched
from lampwork.capture.natives.library import PURE_FUNCTIONS, death_callback
from lampwork.capture.natives.locks import Locks
from lampwork.capture.natives.numpy_data import install_arrays
from lampwork.capture.natives.optimizers import install_optimizers, make_initial_states
from lampwork.capture.natives.peers import call_higher_order, call_made_by_peer
from lampwork.capture.natives.switches import install_switches
from lampwork.capture.natives.thread_locals import install_thread_locals
from lampwork.capture.natives.torch_answers import install_torch_answers, legacy_tensor
from lampwork.capture.outside.iterators import install_iterators
from lampwork.capture.outside.load import bound_owner
from lampwork.capture.outside.overlay import Break, Deferred
from lampwork.capture.outside.plain import HEAP_TYPE, is_plain
from lampwork.capture.outside.tensor_inputs import is_tensor_function
from lampwork.capture.record.attention import AttentionCalls
from lampwork.capture.record.cells import install_cells
from lampwork.capture.record.packed import install_packed_sequences
from lampwork.capture.record.resampling import interpolate
from lampwork.capture.values.array_functions import (
    call_function,
    call_method,
    call_with_tensors,
    is_numpy_function,
    is_of_numpy,
)
from lampwork.capture.values.arrays import UnknownArray, holds_array, holds_tensor
from lampwork.capture.values.container_methods import SHADOW_METHODS
from lampwork.capture.values.sizes import settled
from lampwork.capture.values.unbacked_numbers import item
from lampwork.ir.operations import ArrayMethod
from lampwork.ir.reference import is_replacement

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
_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: Methods that keep what they are given, and do not look at it.
_STORES = frozenset({list.append, collections.deque.append, collections.deque.appendleft})
_IDENTITY_METHODS = frozenset({
    object.__init__, object.__init_subclass__, object.__hash__, object.__eq__, object.__ne__, object.__new__,
    object.__subclasshook__,
})  # fmt: skip


class NativeCalls(CaptureWorld):
    """The part of a world that calls functions: those in Python by rule, those in C by effect class."""

    _function_kinds: dict[int, tuple[Any, str]]

    def install_natives(self) -> None:
        """Registers what the host answers in place of natives."""
        self._function_kinds = {}
        self.entered: list[Any] = []
        #: Names of process state that the program has set.
        self.written_state: set[str] = set()
        #: Whether a text that is made after the graph shows a tensor.
        self.shows_tensors = False
        #: How much deeper in `autocast` contexts the program is than where it began, the least that this was, and
        #: whether it emptied their cache of casts.
        self.autocast_nesting = self.autocast_lowest = 0
        self.autocast_cleared = False
        #: Function transforms that are active around the call, and levels of forward derivatives entered in it.
        self.transforms_outside = _torch.active_transforms()
        self.dual_levels: list[int] = []
        #: Whether the program has the cache of casts on; None until it asked or said.
        self.autocast_cache: bool | None = None
        #: Whether the program sets hooks on what autograd saves.
        self.sets_saved_hooks = False
        #: Why hooks on saved tensors are forbidden at the moment, if they are.
        self.saved_hooks_refusal: str | None = None
        #: What suspended frames held when this region began.
        self.resumed_with: tuple = ()
        #: Objects whose `id()` was taken: which of them are the same is guarded at the end.
        self.identified: dict[int, Any] = {}
        #: The step that took the first of them.
        self.identified_at = 0
        #: Leaves whose gradients the autograd engine is adding to.
        self.accumulating: set[int] = set()
        #: Kinds of code of backward passes that are left to eager ("hooks", "saved hooks", "functions"), and why.
        self.natively: dict[str, str] = {}
        #: What eager's engine knows of functions of the user's, by their class.
        self.function_nodes: dict[Any, Any] = {}
        #: How many hooks the program registered.
        self.hooks_registered = 0
        #: Storages that `copy.deepcopy` has copied, by id of its memo.
        self.copied_storages: dict[int, set[int]] = {}
        #: Process state that the program set, such that no other state shows it: set again on every call, to the value.
        self.states_touched: dict[tuple[str, Any], None] = {}
        #: Functions that the program itself put behind `functools.lru_cache`, by id.
        self.made_caches: dict[int, Any] = {}
        #: Whether the region may end before the program does.
        self.may_divide = False
        #: Functions made by `torch.compile`, by the code of what they were made of.
        self.peers: dict[types.CodeType, FunctionType] = {}
        #: Containers whose text is being written, by id.
        self.being_written: set[int] = set()
        self.attention_calls = AttentionCalls(self.recorder)
        self.locks = Locks()
        install_answers(self)
        install_torch_answers(self)
        install_arrays(self)
        install_iterators(self)
        install_optimizers(self)
        install_function_modes(self)
        install_cells(self)
        install_packed_sequences(self)
        install_switches(self)
        install_host_functions(self)
        install_generators(self)
        install_context_variables(self)
        install_thread_locals(self)

    def leave_contexts(self) -> None:
        """Leaves what the program had entered in C when it was stopped, and enters what it had left."""
        for context in reversed(self.entered):
            context.__exit__(None, None, None)
        self.entered.clear()
        _torch.leave_transforms(self.transforms_outside, self.dual_levels)
        for _ in range(self.autocast_nesting):
            torch.autocast_decrement_nesting()
        for _ in range(-self.autocast_nesting):
            torch.autocast_increment_nesting()

    # -- calls

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        kind = type(function)
        if kind is ArrayMethod:
            return call_method(self, function.array, function.name, args, kwargs)
        if kind is FunctionType:
            rule = self.function_rule(function)
            if rule == "tensor":
                if self.are_data(args, kwargs):
                    if function is torch.nn.functional.interpolate and self.recorder.sizes:
                        answer = interpolate(*args, **kwargs)
                        if answer is not NotImplemented:
                            return answer
                    return function(*args, **kwargs)
            elif rule in ("__wrapped__", "_torchdynamo_orig_callable"):
                return self.call(self.attribute(function, rule), args, kwargs)
            elif rule == "peer":
                return call_made_by_peer(self, function, args, kwargs)
            elif rule == "nested region":
                return self.call(args[0], args[1:], kwargs)
            elif rule == "compiled":
                return self.call(self.attribute(function, "__wrapped__"), args, kwargs)
            elif rule == "allowed":
                return self.call_whole(function, args, kwargs)
            elif rule == "constant result":
                return self.call_constant(function, args, kwargs)
            elif rule == "initial state":
                make_initial_states(self, args)
            elif rule == "disabled":
                raise Break("disabled", f"{function.__qualname__} is marked as not to be compiled")
            elif rule == "collective":
                raise Break("native-call", f"torch.distributed's {function.__name__} is called", "Call it outside.")
            elif rule == "calls peer":
                raise Break("native-call", f"{function.__qualname__} is called", "Call it outside.")
            elif rule == "coroutine":
                # Made while capturing, it would be one that nobody awaits, which Python warns of.
                raise Break("result", f"{function.__qualname__} makes a coroutine or an asynchronous generator")
            elif rule == "state":
                self.read_state(STATE_READERS[function])
                return function(*args, **kwargs)
            elif rule == "constant":
                return function(*args, **kwargs)
            elif rule == "dispatch" and len(args) == 1 and not kwargs:
                return dispatched(self, function, args[0])
            elif rule == "pure" and all(map(self.is_text_data, (*args, *kwargs.values()))):
                return function(*args, **kwargs)
        elif kind.__flags__ & HEAP_TYPE and isinstance(function, torch.nn.Module):
            answer = self.families.module.called(function, args, kwargs)
            if answer is not UNBOUND:
                return answer
        elif kind in _torch.OPERATOR_TYPES or kind is torch.jit.ScriptFunction:
            return self.call_tensor(function, args, kwargs)
        elif kind.__flags__ & HEAP_TYPE and _torch.HigherOrderOperator in kind.__mro__:
            return call_higher_order(self, function, args, kwargs)
        elif kind is types.GenericAlias and not function.__origin__.__dictoffset__:
            # `dict[str, int]()`: what has no attributes is not told what it was made by.
            return self.call(function.__origin__, args, kwargs)
        return World.call(self, function, args, kwargs)

    def call_attribute(self, attribute: Any, obj: Any, args: tuple) -> Any:
        if type(attribute) is FunctionType:
            return self.call(attribute, (obj, *args), {})
        return World.call_attribute(self, attribute, obj, args)

    def function_rule(self, function: FunctionType) -> str:
        """How a Python function is called: "tensor" (natively, on fakes), "state", "constant", "compiled" (by us),
        "peer" (made by `torch.compile`), "calls peer" (is `torch.compile`), "nested region", "collective", "allowed",
        "constant result", "disabled", "coroutine", "initial state" (of an optimizer), "" (interpreted), or the name of
        the attribute with the function to call."""
        known = self._function_kinds.get(id(function))
        if known is None:
            if function in self.intrinsics:
                rule = ""
            elif is_tensor_function(function):
                rule = "tensor"
            elif function in STATE_READERS:
                rule = "state"
            elif function in CONSTANT_ANSWERS:
                rule = "constant"
            elif function in PURE_FUNCTIONS:
                rule = "pure"
            elif function.__code__ is DISPATCH_CODE:
                rule = "dispatch"
            elif function.__code__.co_flags & _ASYNCHRONOUS:
                rule = "coroutine"
            elif _is_compiled(function):
                rule = "compiled"
            elif _torch.is_made_by_peer(function):
                rule = "peer"
            elif function in _torch.CALL_PEER:
                rule = "calls peer"
            elif _torch.is_nested_region(function):
                rule = "nested region"
            elif _torch.is_collective(function):
                rule = "collective"
            elif _torch.without_disabling(function):
                rule = _torch.without_disabling(function)
            elif function.__dict__.get("_torchdynamo_disable"):
                rule = "disabled"
            elif function.__dict__.get("_dynamo_marked_constant"):
                rule = "constant result"
            elif _torch.allowed_in_graph(function):
                rule = "allowed"
            elif _torch.makes_initial_state(function):
                rule = "initial state"
            else:
                rule = ""
            known = self._function_kinds[id(function)] = (function, rule)
        return known[1]

    def breaks_always(self, function: Any) -> bool:
        """Whether a call is a break whatever the arguments, which need not be looked at then."""
        if type(function) is FunctionType and self.function_rule(function) == "disabled":
            return True
        return _hashable(function) and function in REFUSED

    def call_whole(self, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A function marked `allow_in_graph`: run natively on fakes, whatever Python it is made of."""
        if not self.are_data(args, kwargs):
            raise Break("tensor-argument", f"{function.__qualname__}, which is marked allow_in_graph, is called with "
                        f"{self.describe_arguments(args, kwargs)}")  # fmt: skip
        result = function(*args, **kwargs)
        if not self.is_data(result):
            raise Break("tensor-argument", f"{function.__qualname__}, marked allow_in_graph, returns an object")
        return result

    def call_constant(self, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A function marked `assume_constant_result`: run once, now; the user vouches for its result."""
        if not all(map(self.is_plain_data, (*args, *kwargs.values()))):
            raise Break("native-argument", f"{function.__qualname__}, marked as constant, is called with objects")
        with self.recorder._paused():
            result = function(*args, **kwargs)
        if not is_plain(result):
            raise Break("native-argument", f"{function.__qualname__}, marked as constant, returns an object")
        return result

    def should_interpret(self, function: FunctionType) -> bool:
        return True

    def add_intrinsic(self, native: Any, answer: Any) -> None:
        if not is_replacement(native):  # what the program put there is interpreted
            super().add_intrinsic(native, answer)

    def add_substitute(self, native: Any, function: FunctionType) -> None:
        if not is_replacement(native):
            super().add_substitute(native, function)

    def read_state(self, name: str) -> None:
        """Guards process state by name, once."""
        source = self.sources.state(name)
        if name not in self.initial_state:
            self.guards.equals(source, _torch.STATE[name]())
        else:
            self.guards.equals(source, self.initial_state[name])

    def call_by_effect(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A callable implemented in C, by its effect class. Raises `Break` for one that is in no table."""
        kind = type(function)
        if not callable(function):
            return self.families[kind].example(function)(*args, **kwargs)  # which words the error
        if kind is ArrayMethod:
            return call_method(self, function.array, function.name, args, kwargs)
        if holds_array(args):
            if is_numpy_function(function):
                return call_function(self, function, args, kwargs)
            if function is len:
                return self.length(args[0])
            if type(args[0]) is UnknownArray and args[0].scalar and getattr(function, "__module__", "") == "math":
                return self.call(function, (item(self.recorder, args[0].tensor), *args[1:]), kwargs)
        if kind is BuiltinFunctionType or kind is _BUILTIN_METHOD:
            owner = bound_owner(function)
            if owner is not None:
                return self._call_method(function, owner, args, kwargs)
            if type(function.__self__).__module__ == "pybind11_builtins" and function in self.intrinsics:
                return self.intrinsics[function](self, *args, **kwargs)
        if is_tensor_function(function):
            return self.call_tensor(function, args, kwargs)
        if kind is weakref.ReferenceType and not args and not kwargs:
            return self._referent(function)
        effect = EFFECTS.get(function) if _hashable(function) else None
        if effect is not None:
            return self._perform(function, effect, args, kwargs)
        return self._call_other(function, args, kwargs)

    def takes_symbols(self, function: Any) -> bool:
        if is_tensor_function(function) or isinstance(function, type(torch.FloatTensor)):
            return True
        if type(function) is BuiltinFunctionType:
            if function.__self__ is tuple and function.__name__ == "__new__":
                return True  # what named tuples are made by
            owner = bound_owner(function)
            if owner is not None:
                function = getattr(type(owner), function.__name__, None)
        return _hashable(function) and EFFECTS.get(function) in ("holds", "method", "identity")

    def _call_method(self, function: Any, owner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A C method bound to its object."""
        if id(owner) in self.made_caches:
            return function(*args, **kwargs)
        if isinstance(owner, torch.Tensor):
            if is_tensor_function(function):
                return self.call_tensor(function, args, kwargs)
            raise unknown(function)
        descriptor = None
        for cls in type(owner).__mro__:
            candidate: Any = cls.__dict__.get(function.__name__)
            # A Python class may override the method that `super()` found.
            if type(candidate) in _C_METHODS and candidate.__get__(owner, type(owner)) == function:
                descriptor = candidate
                break
        if descriptor is not None and descriptor in self.intrinsics:
            return self.intrinsics[descriptor](self, owner, *args, **kwargs)
        effect = EFFECTS.get(descriptor) if descriptor is not None and _hashable(descriptor) else None
        if effect is None:
            return self._call_other(function, args, kwargs)
        return self._perform(descriptor, effect, (owner, *args), kwargs)

    def _perform(self, function: Any, effect: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        loader = self.loader
        if args and id(args[0]) in loader.unsettled and effect in ("method", "keyed", "compares"):
            special = SHADOW_METHODS.get(function)
            if special is not None:
                answer = special(self, loader.unsettled[id(args[0])], *args[1:], **kwargs)
                if answer is not UNBOUND:
                    return answer
        for value in args[:1] if function in _STORES else args:
            self.touch(value)
        for value in kwargs.values():
            self.touch(value)
        if len(args) == _FILLS_DICTS.get(function):
            args = (*args[:-1], self.as_pairs(args[-1]))
        if effect == "data":
            if function not in _NEVER_ITERATES:
                args = tuple([self.materialise(value) for value in args])
            if self.recorder.sizes:
                args, kwargs = settled(args), settled(kwargs)
            if not self.are_data(args, kwargs):
                if type(function) is types.WrapperDescriptorType and len(args) == 2 and self.is_data(args[0]):
                    # `5 .__add__(point)`: numbers and strings leave operands of other classes to the other side.
                    if not isinstance(args[1], (int, float, complex, str, bytes)):
                        return NotImplemented
                raise Break(
                    "native-argument", f"{name_of(function)} is called with {self.describe_arguments(args, kwargs)}"
                )
            if (holds_tensor(args) or holds_tensor(kwargs)) and is_of_numpy(function):
                return call_with_tensors(self, function, args, kwargs)
        elif effect == "keyed":
            if len(args) > 1 and getattr(function, "__name__", "") not in _TAKES_ITERABLE:
                container = args[0] if isinstance(args[0], (dict, set)) else {}
                self.families.container.check_key(container, args[1])
        elif effect == "compares":
            if not all(self.is_plain_data(value) or self._all_identity(value) for value in args):
                return self.families.container.compare_elements(function, args)
        return function(*args, **kwargs)

    def _referent(self, reference: weakref.ReferenceType) -> Any:
        """What a weak reference was made of, or what was loaded for it."""
        value = reference()
        origin = self.loader.origin(value)
        if origin is not None and any(origin.raw is each for each in self.resumed_with):
            held = [each for frame in self.machine.frames for each in (*frame.locals, *frame.stack)]
            if not any(each is value or (type(each) is Deferred and each.raw is origin.raw) for each in held):
                # It may live for the sake of this call alone; a native one is made when this call is over.
                raise Break("opaque-value", "a weak reference leads to what the program let go of")
        return value

    def as_pairs(self, value: Any) -> Any:
        """What native code makes a dict of as it does of `value`, without running Python code."""
        if isinstance(value, (*_ITERATORS, list, tuple, type(None))) or type(value) in (dict, collections.OrderedDict):
            return value
        keys = self.attribute_or(value, "keys", UNBOUND)
        if keys is UNBOUND:
            return self.native_iterable(value)
        if isinstance(value, dict) and type(value).keys is dict.keys and type(value).__iter__ is dict.__iter__:
            return value
        made: dict = {}
        self.dict_update(made, value)
        return made

    def _all_identity(self, value: Any) -> bool:
        if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            return all(self.loader.has_identity_hash(each) and not isinstance(each, torch.Tensor) for each in value)
        return self.loader.has_identity_hash(value) and not isinstance(value, torch.Tensor)

    def materialise(self, value: Any) -> Any:
        """An iterator's remaining elements as a list; anything else unchanged."""
        return self.collect(value) if type(value) in _ITERATORS else value

    def _call_other(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if type(function) is _KEY_WRAPPER:
            return function(*args, **kwargs)
        if not _hashable(function):
            raise unknown(function)
        if id(function) in self.loader.opaque:
            guard_native(self, self.loader.by_value[id(function)].source, function)
        if function in self.intrinsics and type(function) not in _ANSWERED_BEFORE:
            return self.intrinsics[function](self, *args, **kwargs)
        if function in STATE_READERS:
            self.read_state(STATE_READERS[function])
            return function(*args, **kwargs)
        if function in STATE_WRITERS:
            self.read_state(STATE_WRITERS[function])
            if self.shows_tensors and STATE_WRITERS[function] == "default_dtype":
                raise Break("native-call", "the default type changes after a text made of a tensor's contents")
            self.written_state.add(STATE_WRITERS[function])
            if function is torch.autocast_increment_nesting:
                self.autocast_nesting += 1
            elif function is torch.autocast_decrement_nesting:
                self.autocast_nesting -= 1
                self.autocast_lowest = min(self.autocast_lowest, self.autocast_nesting)
            elif function is torch.clear_autocast_cache and _torch.autocast_nesting() > 0:
                self.autocast_cleared = True
            return function(*args, **kwargs)
        if function in CONSTANT_ANSWERS:
            return function(*args, **kwargs)
        if isinstance(function, numpy.ufunc):
            return self._perform(function, "data", args, kwargs)
        if function in CONTEXT_ENTER:
            self.entered.append(args[0])
            return function(*args, **kwargs)
        if function in CONTEXT_EXIT:
            self.entered.remove(args[0])
            return function(*args, **kwargs)
        if function in _IDENTITY_METHODS:
            return function(*args, **kwargs)
        if isinstance(function, type(torch.FloatTensor)):
            return legacy_tensor(self, function.dtype, args, kwargs)
        if isinstance(function, type):
            return self._instantiate_native(function, args, kwargs)
        if type(function) is BuiltinFunctionType and isinstance(function.__self__, type):
            if function.__name__ in ("__instancecheck__", "__subclasscheck__", "mro", "__prepare__"):
                return function(*args, **kwargs)
            if function.__name__ == "__new__" and id(function.__self__) in _NEW_ALLOWED:
                for value in args:
                    self.touch(value)
                return function(*args, **kwargs)
        if type(function) is CACHED_FUNCTION:
            if id(function) in self.made_caches:
                for value in (*args, *kwargs.values()):
                    self.families.container.check_key({}, value)
                return function(*args, **kwargs)
            return call_cached(self, function, args, kwargs)
        if type(function) is types.MethodWrapperType:
            return self._call_wrapper(function, args, kwargs)
        if isinstance(function, (Callback,)):
            return self.machine.call(function.function, args, kwargs)
        if type(function).__name__ in _CALLABLE_GETTERS and not kwargs and len(args) == 1:
            return self._call_getter(function, args[0])
        raise unknown(function)

    def _call_wrapper(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        raise unknown(function)

    def _call_getter(self, function: Any, value: Any) -> Any:
        """`operator.attrgetter("a", "b")(x)`, `itemgetter(0)(x)`, `methodcaller("f", 1)(x)`: done by the machine."""
        maker, parts = function.__reduce__()
        if type(function) is operator.methodcaller:
            kwargs = maker.keywords if isinstance(maker, functools.partial) else {}
            name, *args = (*maker.args, *parts) if kwargs else parts
            return self.machine.call(self.attribute(value, name), tuple(args), kwargs)
        results = []
        for part in parts:
            if type(function).__name__ == "attrgetter":
                current = value
                for name in part.split("."):
                    current = self.machine.complete(self.load_attr(current, name))
            else:
                current = self.machine.complete(self.get_item(value, part))
            results.append(current)
        return results[0] if len(results) == 1 else tuple(results)

    def _instantiate_native(self, cls: type, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A class whose `__new__` and `__init__` are both implemented in C."""
        new = cls.__new__
        owner = getattr(new, "__self__", None)
        if cls is _torch.InferenceModeContext:
            self.read_state("inference_mode")
            return cls(*args, **kwargs)
        if issubclass(cls, numpy.generic) and self.are_data(args, kwargs) and not holds_tensor(args):
            return cls(*args, **kwargs)
        if id(owner) not in _NEW_ALLOWED and not issubclass(cls, BaseException):
            raise unknown(cls)
        if issubclass(cls, collections.OrderedDict) and (args or kwargs):
            if type(cls.__setitem__) is FunctionType or type(cls.update) is FunctionType:
                raise Break("native-class", f"{cls.__qualname__} fills itself from native code")
        for value in args:
            self.touch(value)
        if issubclass(cls, dict) and len(args) == (2 if issubclass(cls, collections.defaultdict) else 1):
            args = (*args[:-1], self.as_pairs(args[-1]))
        if issubclass(cls, (int, float, str, complex, bytes)) and not self.are_data(args, kwargs):
            raise Break("native-argument", f"{cls.__qualname__} is made of {self.describe_arguments(args, kwargs)}")
        return cls(*args, **kwargs)

    def call_new(self, new: Any, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        owner = getattr(new, "__self__", None)
        if issubclass(cls, torch.Tensor):
            raise Break("tensor-subclass", f"a tensor of class {cls.__qualname__} is made")
        if id(owner) not in _NEW_ALLOWED and not (isinstance(owner, type) and issubclass(owner, BaseException)):
            raise unknown(cls)
        for value in args:
            self.touch(value)
        if owner is weakref.ReferenceType:
            args = (args[0], *[death_callback(self, each) for each in args[1:]])
        return new(cls, *args, **kwargs)

    def instantiate(self, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if cls in self.intrinsics:
            return self.intrinsics[cls](self, *args, **kwargs)
        if cls is torch.nn.Buffer:
            raise Break("tensor-subclass", "a Buffer is made", "Make buffers outside the compiled function.")
        found, initialise = self.class_lookup(cls, "__init__")
        if type(initialise) is not FunctionType and initialise is not object.__init__:
            for value in args:
                self.touch(value)
        return World.instantiate(self, cls, args, kwargs)


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
_CALLABLE_GETTERS = frozenset({"attrgetter", "itemgetter", "methodcaller"})
_TAKES_ITERABLE = frozenset({
    "update", "fromkeys", "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset",
    "isdisjoint", "intersection_update", "difference_update", "symmetric_difference_update", "__init__", "__or__",
    "__ior__", "__ror__", "__and__", "__sub__", "__xor__", "__rand__", "__rsub__", "__rxor__", "__iand__", "__isub__",
    "__ixor__", "__eq__", "__ne__", "__le__", "__lt__", "__ge__", "__gt__",
})  # fmt: skip


def _is_compiled(function: FunctionType) -> bool:
    """Whether `lampwork.compile` returned `function`; `functools.wraps` copies its attributes to others."""
    compiled = function.__dict__.get("__lampwork__")
    return compiled is not None and function.__code__ is compiled.wrapper_code


def _hashable(function: Any) -> bool:
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
