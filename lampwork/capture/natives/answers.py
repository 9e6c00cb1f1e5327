"""Native functions that the host answers in capture's own way: what they reflect on is the program's view of things."""

from __future__ import annotations

import _thread
import copyreg
import functools
import inspect
import itertools
import sys
import types
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lampwork import _torch
from lampwork.capture.machine import UNBOUND, Answer, InPython
from lampwork.capture.machine.natives import Callback, class_check
from lampwork.capture.natives.introspection import follows_protocol, is_protocol
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.capture.outside.plain import HEAP_TYPE, is_plain
from lampwork.capture.record.fake import TENSOR_KINDS
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.memberships import contains_symbol
from lampwork.capture.values.sizes import number

#: The program cannot be followed through these: they reach frames, other threads or the outside world.
REFUSED = {
    sys._getframe: "sys._getframe()",
    _thread.start_new_thread: "starting a thread",
    inspect.currentframe: "inspect.currentframe()",
    open: "open()", input: "input()",
}  # fmt: skip


def _enter_dispatch_mode(world: Any, mode: Any) -> Any:
    """A break: the program's mode is to see what runs, and PyTorch's notes on modes tell of the recorder's own."""
    raise Break("context", f"a dispatch mode ({type(mode).__qualname__}) is entered")


def _autocast_cache(world: Any) -> bool:
    """Whether casts are cached, as the program left it: the recorder has its own reasons to turn the cache off."""
    world.process.read("autocast")
    if world.process.autocast_cache is None:
        world.process.autocast_cache = world.process.initial["autocast"][-1]
    return world.process.autocast_cache


def _set_autocast_cache(world: Any, enabled: Any) -> None:
    world.process.read("autocast")
    world.process.autocast_cache = bool(enabled)


def _is_compiling(world: Any) -> bool:
    """True but in optimizers, which would compute their corrections in single precision, and in calls of modules, which
    would leave out the hooks that are called always. False where numbers are to be eager's: programs take another road
    where they are told yes."""
    if world.recorder.exact:
        return False
    frame = world.machine.user_frame()
    name = str(frame.globals.get("__name__", "")) if frame is not None else ""
    return not name.startswith("torch.optim.") and name != "torch.nn.modules.module"


def _refuse(text: str) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        raise Break("native-call", f"{text} is called", "Do it outside the compiled function.")

    return answer


def _type(world: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return world.type_of(args[0])
    if len(args) == 3:
        _, bases, namespace = args
        for base in bases:
            world.note_bases(base)
            _, hook = world.class_lookup(base, "__init_subclass__")
            if type(getattr(hook, "__func__", hook)) is FunctionType:
                raise Break("class-made", f"a subclass of {base.__qualname__}, which has an __init_subclass__, is made")
        for value in dict(namespace).values():
            if type(world.class_lookup(type(value), "__set_name__")[1]) is FunctionType:
                raise Break("class-made", f"a class is made with a {type(value).__qualname__} in it")
    return type(*args, **kwargs)


def _isinstance(world: Any, *args: Any) -> Any:
    if len(args) != 2:
        return isinstance(*args)
    subject, classes = args
    if id(classes) in world.loader.unsettled:
        world.touch(classes)
    return _instance_check(world, subject, classes)


_NATIVE_METACLASSES = frozenset({
    type(torch.Tensor), type(torch.nn.Parameter), _torch.pybind_metaclass,
})  # fmt: skip


def _instance_check(world: Any, subject: Any, classes: Any) -> bool:
    family = world.families[type(subject)]
    if isinstance(family, StandInFamily):
        subject = family.example(subject)
    kind = type(classes)
    if kind is tuple:
        return any(_instance_check(world, subject, each) for each in classes)
    if family is world.families.subclass:
        answer = family.is_instance(subject, classes)
        if answer is not HANDS_ON:
            return answer
    if kind is types.UnionType:
        return any(_instance_check(world, subject, each) for each in classes.__args__)
    if kind in _NATIVE_METACLASSES or (kind is type and type(subject) in TENSOR_KINDS):
        return isinstance(subject, classes)
    if is_protocol(classes):
        return follows_protocol(world, classes, world.type_of(subject), subject)
    return class_check(world, "__instancecheck__", isinstance, subject, classes)


def _calls_first(native: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) >= 2 and kwargs.keys() <= {"strict"}:  # of `map`, from 3.14 on
            args = (Callback(world, args[0]) if args[0] is not None else None,
                    *(world.native_iterable(value) for value in args[1:]))  # fmt: skip
            if native is filter and args[0] is None:
                args = (Callback(world, bool), args[1])
        return native(*args, **kwargs)

    return answer


def _signature(world: Any, function: Any, **kwargs: Any) -> Any:
    """`inspect.signature` of a Python function or method: decided by its code, defaults and `__wrapped__` chain; of a
    partial: by that of its function, what it adds is among the defaults."""
    target = function
    if type(target) is functools.partial and not kwargs:
        for name in ("__signature__", "__text_signature__", "__wrapped__"):
            if world.attribute_or(target, name, MISSING) is not MISSING:
                raise Break("native-argument", "inspect.signature of a partial that carries a signature of its own")
        inner, args, keywords = (world.attribute(target, name) for name in ("func", "args", "keywords"))
        _signature(world, inner)
        world.touch(keywords)
        return inspect.signature(functools.partial(inner, *args, **keywords))
    while True:
        target = target.__func__ if type(target) is MethodType else target
        if isinstance(target, type) and world.loader.class_source(target) is None:
            break  # a class that the program made: all that is looked at is its own
        if type(target) is not FunctionType or kwargs:
            raise Break("native-argument", f"inspect.signature is called with a {type(function).__name__}")
        world.function_parts(target)
        for name in ("__signature__", "__text_signature__"):
            if world.attribute_or(target, name, MISSING) is not MISSING:
                raise Break("native-argument", "inspect.signature of a function that carries a signature of its own")
        wrapped = world.attribute_or(target, "__wrapped__", MISSING)
        if wrapped is MISSING:
            break
        target = wrapped
    if isinstance(target, type):
        return inspect.signature(function)
    if not is_plain(target.__defaults__ or ()) or not all(map(is_plain, (target.__kwdefaults__ or {}).values())):
        raise Break("native-argument", "inspect.signature of a function whose defaults are objects")
    return inspect.signature(function)


def _any(iterable: Any) -> bool:
    for element in iterable:
        if element:
            return True
    return False


def _all(iterable: Any) -> bool:
    for element in iterable:
        if not element:
            return False
    return True


def _accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    iterator = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for element in iterator:
        total = total + element if func is None else func(total, element)
        yield total


def _reduced(function: Any, iterable: Any, /, *initial: Any) -> Any:
    if len(initial) > 1:
        raise TypeError(f"reduce expected at most 3 arguments, got {2 + len(initial)}")
    iterator = iter(iterable)
    if initial:
        (total,) = initial
    else:
        try:
            total = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    for element in iterator:
        total = function(total, element)
    return total


def _starmap(function: Any, iterable: Any) -> Any:
    for args in iterable:
        yield function(*args)


def _takewhile(predicate: Any, iterable: Any) -> Any:
    for element in iterable:
        if not predicate(element):
            break
        yield element


def _dropwhile(predicate: Any, iterable: Any) -> Any:
    iterator = iter(iterable)
    for element in iterator:
        if not predicate(element):
            yield element
            break
    yield from iterator


def _filterfalse(predicate: Any, iterable: Any) -> Any:
    for element in iterable:
        if not (element if predicate is None else predicate(element)):
            yield element


def _autograd_function_class(world: Any, *args: Any, **kwargs: Any) -> Any:
    """`class F(torch.autograd.Function)`: its metaclass makes the class of the backward node and counts it."""
    world.touch(args[-1])
    return type(torch.autograd.Function)(*args, **kwargs)


def _reduce(world: Any, obj: Any, protocol: Any = 0) -> Any:
    """`object.__reduce_ex__(4)` of an instance of a Python class: what `copy.copy` and `copy.deepcopy` are made of."""
    cls = type(obj)
    found, reduce = world.class_lookup(cls, "__reduce__")
    if found and reduce is not object.__reduce__:
        return world.call_attribute(reduce, obj, ())
    slots = any("__slots__" in base.__dict__ and base.__dict__["__slots__"] for base in cls.__mro__)
    ordinary = cls.__flags__ & HEAP_TYPE and not isinstance(obj, torch.Tensor) and not slots
    if type(protocol) is not int or protocol < 2 or not ordinary:
        raise Break("native-argument", f"a {cls.__qualname__} is copied or pickled")
    for name in ("__getnewargs_ex__", "__getnewargs__"):
        if world.class_lookup(cls, name)[0]:
            raise Break("native-argument", f"a {cls.__qualname__} with a {name} is copied or pickled")
    getstate = world.python_special(obj, "__getstate__")
    if getstate is UNBOUND:
        state = world.attribute_or(obj, "__dict__", None)
        world.touch(state)
    else:
        state = world.call_special(obj, getstate)
    call = world.machine.call
    elements = world.get_iter(obj) if isinstance(obj, list) else None
    pairs = world.get_iter(call(world.attribute(obj, "items"))) if isinstance(obj, dict) else None
    return copyreg.__newobj__, (cls,), state or None, elements, pairs  # type: ignore[attr-defined]


def _dict_get(world: Any, mapping: Any, *args: Any) -> Any:
    if args and type(args[0]) is torch.SymInt:
        if len(args) <= 2 and contains_symbol(world, args[0], mapping) is False:
            return args[1] if len(args) == 2 else None
        args = (number(args[0]), *args[1:])
    overlay = world.loader.unsettled.get(id(mapping))
    if overlay is not None and 1 <= len(args) <= 2:
        value = world.loader.dict_read(overlay, args[0])
        return (args[1] if len(args) == 2 else None) if value is MISSING else value
    if args:
        world.families.container.check_key(mapping, args[0])
    return dict.get(mapping, *args)


def _handled(function: Any) -> Answer:
    """What is handled, by `sys.exception` or `sys.exc_info`: an error of the program, or what its caller handles."""

    def answer(world: Any) -> Any:
        if world.machine.topmost() is None:
            world.note_handling()
        return function()

    return answer


NATIVES: dict[Any, Answer] = {
    type: _type,
    isinstance: _isinstance,
    **{native: _refuse(text) for native, text in REFUSED.items()},
    torch.compiler.is_compiling: _is_compiling,
    torch.compiler.is_dynamo_compiling: _is_compiling,
    _torch.is_compiling: _is_compiling,
    torch.compiler.is_exporting: lambda world: False,
    torch.jit.is_scripting: lambda world: False,
    torch.jit.is_tracing: lambda world: False,
    _torch.is_scripting: lambda world: False,
    map: _calls_first(map),
    filter: _calls_first(filter),
    inspect.signature: _signature,
    sys.exception: _handled(sys.exception),
    sys.exc_info: _handled(sys.exc_info),
    any: InPython(_any),
    all: InPython(_all),
    itertools.accumulate: InPython(_accumulate),
    functools.reduce: InPython(_reduced),
    itertools.starmap: InPython(_starmap),
    itertools.takewhile: InPython(_takewhile),
    itertools.dropwhile: InPython(_dropwhile),
    itertools.filterfalse: InPython(_filterfalse),
    object.__reduce_ex__: _reduce,
    TorchDispatchMode.__enter__: _enter_dispatch_mode,
    type(torch.autograd.Function): _autograd_function_class,
    _torch.dispatch_stack_length: lambda world: max(_torch.dispatch_stack_length() - 1, 0),
    torch.is_autocast_cache_enabled: _autocast_cache,
    torch.set_autocast_cache_enabled: _set_autocast_cache,
    dict.get: _dict_get,
}
