"""Programs that look at themselves: `globals()`, `vars`, `dir`, `eval` and `exec`, protocols, dispatch on types."""

from __future__ import annotations

import functools
import types
import typing
from types import FunctionType, ModuleType
from typing import Any

import torch

from lampwork.capture.machine import UNBOUND, Answer
from lampwork.capture.machine.natives import INTRINSICS
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.ir.operations import subclasses

_ProtocolMeta: Any = type(typing.Protocol)
#: The code of the function `dispatch` that `functools.singledispatch` puts behind a generic function.
DISPATCH_CODE = next(
    code for code in functools.singledispatch.__code__.co_consts if getattr(code, "co_name", "") == "dispatch"
)


# Namespaces ----------------------------------------------------------------------------------------------------------


def _globals(world: Any) -> Any:
    frame = world.machine.user_frame()
    namespace = world.names.namespace(frame)
    return frame.globals if namespace is None else world.names.as_dict(namespace)


def class_namespace(world: Any, cls: type) -> Any:
    """`cls.__dict__` of a class from outside: what is in it now, loaded; its names are guarded."""
    return types.MappingProxyType(world.loader.classes.own_entries(cls))


def _dir(world: Any, *args: Any) -> Any:
    if len(args) != 1:
        return INTRINSICS[dir](world, *args)
    (value,) = args
    kind = world.type_of(value)
    if type(world.special(value, "__dir__")) is FunctionType or issubclass(kind, torch.Tensor):
        return INTRINSICS[dir](world, *args)
    names: dict[str, None] = {}
    if isinstance(value, ModuleType):
        names.update(dict.fromkeys(world.collect(world.names.as_dict(world.names.module_namespace(value)))))
        return sorted(names)
    for cls in world.loader.classes.order(value if isinstance(value, type) else kind):
        names.update(dict.fromkeys(world.loader.classes.own_names(cls)))
    if not isinstance(value, type):
        own = world.attribute_or(value, "__dict__", UNBOUND)
        if own is not UNBOUND:
            names.update(dict.fromkeys(world.collect(own)))
    return sorted(names)


def _mro(world: Any, cls: type) -> list[type]:
    world.note_bases(cls)
    return type.mro(cls)


def _subclasses(world: Any, cls: type) -> list[type]:
    source = world.loader.class_source(cls)
    if source is None or not cls.__flags__ & HEAP_TYPE:  # of those of C every library has some
        raise Break("native-call", f"the subclasses of {cls.__qualname__} are asked for")
    found = subclasses(cls)
    world.asked_subclasses.append((cls, found, world.machine.steps))
    return list(world.loader.load(found, world.sources.subclasses(source)))


# Code given as text --------------------------------------------------------------------------------------------------


def _evaluator(native: Any) -> Any:
    """`eval` and `exec` of text that does not depend on the call: compiled now, run by the machine."""

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if not 1 <= len(args) <= 3 or kwargs or type(args[0]) not in (str, bytes, types.CodeType):
            raise Break("native-call", f"{native.__name__}() is called", "Do it outside the compiled function.")
        source, *spaces = args
        spaces = [_namespace_given(world, each) for each in spaces]
        return INTRINSICS[native](world, source, *spaces)

    return answer


def _namespace_given(world: Any, space: Any) -> Any:
    """A namespace for `exec` as the machine takes it: the globals of a module are its own dict."""
    world.touch(space)
    return world.names.globals_given(space)


def _compile(world: Any, *args: Any, **kwargs: Any) -> Any:
    if not all(map(world.data.is_plain_data, (*args, *kwargs.values()))):
        raise Break("native-call", "compile() is called with objects")
    return INTRINSICS[compile](world, *args, **kwargs)


# Types ---------------------------------------------------------------------------------------------------------------


def is_protocol(cls: Any) -> bool:
    """A protocol that may be asked at run time."""
    return type(cls) is _ProtocolMeta and getattr(cls, "_is_protocol", False) and hasattr(typing, "_get_protocol_attrs")


def follows_protocol(world: Any, protocol: Any, cls: type, subject: Any = UNBOUND) -> bool:
    """`isinstance(subject, protocol)`; without a subject, `issubclass(cls, protocol)`."""
    if not getattr(protocol, "_is_runtime_protocol", False):
        raise Break("native-argument", "isinstance() with a protocol that is not for run time")
    if protocol in cls.__mro__:
        return True
    for name in typing._get_protocol_attrs(protocol):  # type: ignore[attr-defined]
        found, attribute = world.class_lookup(cls, name)
        if not found and subject is not UNBOUND:
            found, attribute = world.instance_lookup(subject, name)
        if not found or (attribute is None and callable(getattr(protocol, name, None))):
            return False
    return True


def _issubclass(world: Any, *args: Any) -> Any:
    if len(args) == 2 and is_protocol(args[1]) and isinstance(args[0], type):
        return follows_protocol(world, args[1], args[0])
    return INTRINSICS[issubclass](world, *args)


def dispatched(world: Any, dispatch: FunctionType, cls: Any) -> Any:
    """What a generic function (`functools.singledispatch`) calls for an argument of class `cls`."""
    _, _, closure = world.function_parts(dispatch)
    registry = world.load_cell(closure[dispatch.__code__.co_freevars.index("registry")])
    implementation = dispatch(cls)
    world.touch(registry)
    for value in registry.values():
        if value is implementation:
            return value
    raise Break("native-argument", "a generic function is called whose implementations the program has changed")


NATIVES: dict[Any, Answer] = {
    globals: _globals,
    dir: _dir,
    eval: _evaluator(eval),
    exec: _evaluator(exec),
    compile: _compile,
    issubclass: _issubclass,
    type.mro: _mro,
    type.__subclasses__: _subclasses,
}
