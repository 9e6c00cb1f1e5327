"""`Rules`: which rule the call of a callable follows. Tables of a predicate and what is done, asked in their order.

    FUNCTIONS    functions in Python
    KINDS        other callables, by class
    NATIVES      functions in C that are in no table of effect classes (`effect_classes.py`)

A rule is `rule(world, function, args, kwargs)`: the answer, or HANDS_ON where the machine does as it does without one.
What rules of native functions do is in `perform.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import threading
import types
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy
import torch

from lampwork import _torch, regions
from lampwork.capture.machine import UNBOUND
from lampwork.capture.machine.natives import Callback
from lampwork.capture.natives import perform
from lampwork.capture.natives.answers import REFUSED
from lampwork.capture.natives.caches import CACHED_FUNCTION
from lampwork.capture.natives.effect_classes import (
    CONSTANT_ANSWERS,
    CONTEXT_ENTER,
    CONTEXT_EXIT,
    STATE_READERS,
    STATE_WRITERS,
)
from lampwork.capture.natives.introspection import DISPATCH_CODE, dispatched
from lampwork.capture.natives.library import PURE_FUNCTIONS
from lampwork.capture.natives.torch_answers import apply_function
from lampwork.capture.natives.watchers import debugs, refuse_watching, starts_watching
from lampwork.capture.outside.initial_states import make_initial_states
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE, is_plain
from lampwork.capture.outside.tensor_inputs import is_tensor_function
from lampwork.capture.record.composites import called as composite_called
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.subclasses import has_wrapper
from lampwork.ir.operations import ArrayMethod

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

    Rule = Callable[[TorchWorld, Any, tuple, dict[str, Any]], Any]

_OUTSIDE = "Call it outside."
_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Rules:
    """The rules of one capture: what decides is marked on functions, by programs too, and does not change in a call."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world
        self._functions: dict[int, tuple[Any, Rule | None]] = {}
        self._kinds: dict[type, Rule | None] = {}

    def of(self, function: Any) -> Rule | None:
        """That of a call of `function`; None: the machine's own."""
        kind = type(function)
        if kind is FunctionType:
            known = self._functions.get(id(function))
            if known is None:
                rule = None if function in self.world.intrinsics else _first(FUNCTIONS, function)
                number, known_rules = id(function), self._functions
                held = ref(function, lambda _: known_rules.pop(number, None))  # it may be the program's, and die
                known = known_rules[number] = (held, rule)
            return known[1]
        if kind in self._kinds:
            return self._kinds[kind]
        rule = self._kinds[kind] = _first(KINDS, kind)
        return rule

    def of_native(self, function: Any) -> Rule:
        """That of a function in C which has no effect class. Raises `Break` for one of which nothing is known."""
        rule = _first(NATIVES, function) if perform.is_hashable(function) else None
        if rule is None:
            raise perform.unknown(function)
        return rule

    def breaks_always(self, function: Any) -> bool:
        """Whether a call is a break whatever the arguments, which need not be looked at then."""
        if type(function) is FunctionType and self.of(function) in (_DISABLED, _REGION, _SCHEDULING, refuse_watching):
            return True
        return perform.is_hashable(function) and function in REFUSED

    def runs_on_fakes(self, function: FunctionType) -> bool:
        """Whether a function in Python runs natively, on stand-ins for tensors."""
        return self.of(function) in (_call_on_fakes, _call_whole)


def _first(table: tuple[tuple[Callable[[Any], Any], Rule], ...], asked: Any) -> Rule | None:
    return next((rule for applies, rule in table if applies(asked)), None)


def _later(module: str, name: str) -> Rule:
    """A rule that few programs need: its module, of `lampwork.capture`, is imported with the first call."""

    def rule(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        home = importlib.import_module(f"lampwork.capture.{module}")
        return getattr(home, name)(world, function, args, kwargs)

    return rule


# Functions in Python --------------------------------------------------------------------------------------------------


def _is_compiled(function: FunctionType) -> bool:
    """Whether `lampwork.compile` returned `function`; `functools.wraps` copies its attributes to others."""
    compiled = function.__dict__.get("__lampwork__")
    return compiled is not None and function.__code__ is compiled.wrapper_code


def _call_on_fakes(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if not world.data.are_data(args, kwargs):
        return HANDS_ON
    if world.recorder.wrapped is not None and has_wrapper(args, kwargs):
        return HANDS_ON  # it asks them for their methods
    if world.recorder.sizes:
        answer = composite_called(world.recorder, function, args, kwargs)
        if answer is not NotImplemented:
            return answer
    return world.tensor_calls.called_natively(function, args, kwargs)


def _call_pure(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs) if all(map(world.data.is_text_data, (*args, *kwargs.values()))) else HANDS_ON


def _import_module(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`importlib.import_module`, by which packages load parts of themselves when these are asked for."""
    if not all(map(world.data.is_plain_data, (*args, *kwargs.values()))):
        raise Break("import", "importlib.import_module is called with objects")
    name = args[0] if args else kwargs.get("name")
    if len(args) + len(kwargs) == 2:
        try:
            name = importlib.util.resolve_name(*args, **kwargs)
        except (TypeError, AttributeError, ImportError):
            return HANDS_ON  # raises
    if type(name) is not str or name.startswith("."):
        return HANDS_ON  # as well
    return world.names.import_module(name)


def _dispatch(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return dispatched(world, function, args[0]) if len(args) == 1 and not kwargs else HANDS_ON


def _call_compiled(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return world.call(world.attribute(function, "__wrapped__"), args, kwargs)


def _call_disabled_by_torch(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return world.call(world.attribute(function, _torch.without_disabling(function)), args, kwargs)


def _call_region(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return world.call(args[0], args[1:], kwargs)


def _refusing(kind: str, what: str, remedy: str = "") -> Rule:
    """A rule that breaks the graph; `what` says why, with the function's name."""

    def refuse(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        raise Break(kind, what.format(function.__qualname__), remedy)

    return refuse


def _schedules(function: FunctionType) -> bool:
    """Whether a function of the standard library starts, or waits for, what runs beside the program: loops, threads."""
    module = function.__module__
    if isinstance(module, str) and module.startswith(("asyncio.", "concurrent.futures.")):
        return True
    return module == "threading" and function in _BESIDE


_BESIDE = frozenset({
    threading.Thread.start, threading.Thread.join, threading.Event.wait, threading.Condition.wait,
    threading.Condition.wait_for, threading.Barrier.wait,
})  # fmt: skip


def _call_constant(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function marked `assume_constant_result`: run once, now; the user vouches for its result."""
    if not all(map(world.data.is_plain_data, (*args, *kwargs.values()))):
        raise Break("native-argument", f"{function.__qualname__}, marked as constant, is called with objects")
    _vouch(world, function)
    with world.recorder._paused():
        result = function(*args, **kwargs)
    if not is_plain(result):
        raise Break("native-argument", f"{function.__qualname__}, marked as constant, returns an object")
    return result


def _call_whole(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function marked `allow_in_graph`: run natively on fakes, whatever Python it is made of."""
    if not world.data.are_data(args, kwargs):
        raise Break("tensor-argument", f"{function.__qualname__}, which is marked allow_in_graph, is called with "
                    f"{world.data.describe_arguments(args, kwargs)}")  # fmt: skip
    if has_wrapper(args, kwargs):
        raise Break("tensor-subclass", f"{function.__qualname__}, marked allow_in_graph, is called with a subclass")
    _vouch(world, function)
    result = function(*args, **kwargs)
    if not world.data.is_data(result):
        raise Break("tensor-argument", f"{function.__qualname__}, marked allow_in_graph, returns an object")
    return result


def _vouch(world: TorchWorld, function: FunctionType) -> None:
    """Notes that the user vouches for what a function does. What it closes over, and its defaults, have no guards,
    and other functions have its code: it is this very one."""
    world.vouched |= _library_of(function)
    origin = world.loader.origin(function)
    if origin is not None:
        world.guards.is_object(origin.source, function)


def _library_of(function: FunctionType) -> set[str]:
    """The top-level package that a function and what it calls belong to, as a set of one name; "" for one that may call
    anything. The empty set for PyTorch, whose version is part of every key."""
    if function.__closure__:
        return {""}  # perhaps what the user gave to the library
    return {str(function.__globals__.get("__name__", "")).partition(".")[0]} - {"torch"}


def _make_initial_states(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    make_initial_states(world, args)
    return HANDS_ON


_DISABLED = _refusing("disabled", "{} is marked as not to be compiled")
_REGION = _refusing("region", "a submodule is called that has settings of its own")
#: By the second one NumPy's own functions set the options of arrays' texts, from NumPy 2 on.
_SETS_ARRAY_OPTIONS = frozenset({
    numpy.set_printoptions, numpy.set_printoptions.__globals__.get("_set_printoptions", numpy.set_printoptions),
})  # fmt: skip
_SCHEDULING = _refusing("native-call", "{} is called: other code runs meanwhile", _OUTSIDE)
FUNCTIONS: tuple[tuple[Callable[[Any], Any], Rule], ...] = (
    (lambda function: function is _torch.generation_tag(), lambda world, function, args, kwargs: None),
    (is_tensor_function, _call_on_fakes),
    (STATE_READERS.__contains__, perform.read_state),
    (CONSTANT_ANSWERS.__contains__, perform.natively),
    (PURE_FUNCTIONS.__contains__, _call_pure),
    (lambda function: function is importlib.import_module, _import_module),
    (lambda function: function.__code__ is DISPATCH_CODE, _dispatch),
    # Made while capturing, a coroutine would be one that nobody awaits, which Python warns of.
    (
        lambda function: function.__code__.co_flags & _ASYNCHRONOUS,
        _refusing("result", "{} makes a coroutine or an asynchronous generator"),
    ),
    (_schedules, _SCHEDULING),
    (debugs, refuse_watching),
    # Texts are made after the graph, under the options in force there.
    (_SETS_ARRAY_OPTIONS.__contains__, _refusing("native-call", "{} changes how arrays are shown", _OUTSIDE)),
    (_torch.launches_triton, _later("natives.kernel_launches", "launch_kernel")),
    (_torch.is_wrap_triton, _later("natives.kernel_launches", "without_wrapper")),
    (_torch.is_of_wrapped_kernel, _later("natives.kernel_launches", "call_wrapper")),
    (lambda function: function is regions.run_with_settings, _REGION),
    (_is_compiled, _call_compiled),
    (_torch.is_made_by_peer, _later("natives.peers", "call_made_by_peer")),
    (_torch.makes_block_masks, _later("natives.peers", "call_without_peer")),
    (_torch.calls_peer, _refusing("native-call", "{} is called", _OUTSIDE)),
    (_torch.is_nested_region, _call_region),
    (_torch.is_control_flow, _later("flow.operators", "call_public")),
    (_torch.is_collective, _refusing("native-call", "torch.distributed's {} is called", _OUTSIDE)),
    (_torch.without_disabling, _call_disabled_by_torch),
    (lambda function: function.__dict__.get("_torchdynamo_disable"), _DISABLED),
    (lambda function: function.__dict__.get("_dynamo_marked_constant"), _call_constant),
    (_torch.allowed_in_graph, _call_whole),
    (_torch.makes_initial_state, _make_initial_states),
)


# Other callables, by class --------------------------------------------------------------------------------------------


def _call_module(world: TorchWorld, module: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    key = world.regions.get(id(module))
    if key is not None:
        return world.call(regions.call, (key, module, *args), kwargs)
    answer = world.families.module.called(module, args, kwargs)
    return HANDS_ON if answer is UNBOUND else answer


def _call_alias(world: TorchWorld, alias: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`dict[str, int]()`: what has no attributes is not told what it was made by."""
    return HANDS_ON if alias.__origin__.__dictoffset__ else world.call(alias.__origin__, args, kwargs)


KINDS: tuple[tuple[Callable[[type], Any], Rule], ...] = (
    (lambda kind: kind is ArrayMethod, perform.call_array_method),
    (lambda kind: issubclass(kind, torch.nn.Module), _call_module),
    (lambda kind: kind in _torch.OPERATOR_TYPES or kind is torch.jit.ScriptFunction, perform.call_tensor_function),
    (
        lambda kind: kind.__flags__ & HEAP_TYPE and _torch.HigherOrderOperator in kind.__mro__,
        _later("natives.peers", "call_higher_order"),
    ),
    (lambda kind: kind is types.GenericAlias, _call_alias),
)


# Functions in C without an effect class -------------------------------------------------------------------------------

_OF_CLASSES = frozenset({"__instancecheck__", "__subclasscheck__", "mro", "__prepare__"})


def _is_method_of_class(function: Any) -> bool:
    return type(function) is BuiltinFunctionType and isinstance(function.__self__, type)


def _makes_instances(function: Any) -> bool:
    return _is_method_of_class(function) and function.__name__ == "__new__" and perform.makes_plain(function.__self__)


def _is_apply(function: Any) -> bool:
    return _is_method_of_class(function) and _torch.is_function_apply(function)


def _apply(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return apply_function(world, function.__self__, *args, **kwargs)


def _call_substitute(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function in C of which nothing is known, and for which the user has one in Python that does the same: that is
    found under its importable name, and guarded there."""
    known = _torch.substitute_for(function)
    assert known is not None
    if not world.guards.reference(known).portable:
        raise perform.unknown(function)
    world.adopt_function(known)
    return world.call(world.attribute(known, _torch.SUBSTITUTE), args, kwargs)


NATIVES: tuple[tuple[Callable[[Any], Any], Rule], ...] = (
    (starts_watching, refuse_watching),
    (STATE_READERS.__contains__, perform.read_state),
    (STATE_WRITERS.__contains__, perform.set_state),
    (CONSTANT_ANSWERS.__contains__, perform.natively),
    (lambda function: isinstance(function, numpy.ufunc), perform.call_ufunc),
    (CONTEXT_ENTER.__contains__, perform.enter_context),
    (CONTEXT_EXIT.__contains__, perform.leave_context),
    (perform.IDENTITY_METHODS.__contains__, perform.call_identity_method),
    (lambda function: isinstance(function, type(torch.FloatTensor)), perform.make_legacy_tensor),
    (lambda function: isinstance(function, type), perform.instantiate_native),
    (lambda function: _is_method_of_class(function) and function.__name__ in _OF_CLASSES, perform.natively),
    (_makes_instances, perform.call_new_of_class),
    (_is_apply, _apply),
    (lambda function: type(function) is CACHED_FUNCTION, perform.call_cached_function),
    (lambda function: isinstance(function, Callback), perform.call_back),
    (perform.is_getter, perform.call_getter),
    (_torch.substitute_for, _call_substitute),
)
