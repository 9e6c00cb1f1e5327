"""`torch.Generator`: draws with a generator of the program's own or of the caller's.

    noise = torch.randn(4, 3, generator=generator)       host 0: drawn(generator, "randn", ...);  an input of the graph
    mask = torch.empty(4).bernoulli_(0.5, generator=generator)      the same, and a copy

What is drawn depends on sizes and types alone, so the entry draws before its graph runs, in the program's order
(`values/host_results.py`). The default generators are not such ones: other operators draw from them meanwhile.
Draws that depend on tensors (`torch.multinomial`) break.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.scalar import is_unbacked
from lampwork.capture.values.unbacked_numbers import host_number, is_early
from lampwork.fakes.fake import TensorSpec
from lampwork.fakes.shapes import contiguous
from lampwork.ir.operations import call_method
from lampwork.ir.reference import ObjectRef

#: Factories: how many arguments come before the sizes at most.
_FACTORIES: dict[Any, int] = {torch.rand: 0, torch.randn: 0, torch.randint: 2, torch.randperm: 0, torch.normal: 2}
_FILLS = frozenset({
    "bernoulli_", "normal_", "uniform_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_",
})  # fmt: skip
#: What a factory may be told by keyword.
_OPTIONS = frozenset({"dtype", "device", "layout", "requires_grad", "pin_memory"})
_CPU = torch.device("cpu")
_DRAWN, _FILLED = (ObjectRef("function", "lampwork.runtime.launch.host_calls", name) for name in ("drawn", "filled"))


def is_drawn(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a call of a tensor function is given a generator."""
    return type(kwargs.get("generator")) is torch.Generator


def draw(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`, whose keywords have a generator. Raises `Break` for draws that take tensors."""
    options = dict(kwargs)
    generator = options.pop("generator")
    _check(world, generator)
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if name in _FILLS:
        x, *rest = (owner, *args) if isinstance(owner, torch.Tensor) else args
        return _fill(world, generator, name, x, tuple(rest), options)
    if function in _FACTORIES and options.keys() <= _OPTIONS:
        return _factory(world, generator, function, args, options)
    raise _refused(name)


def _refused(name: str) -> Break:
    return Break("tensor-argument", f"torch.{name} draws with a generator what depends on tensors",
                 "Draw outside of the compiled function.")  # fmt: skip


def _check(world: Any, generator: Any) -> None:
    known = world.loader.origin(generator) is not None or id(generator) in world.loader.host_objects
    if not known or _torch.is_default_generator(generator):
        raise Break("native-argument", "a default generator of torch, or one of unknown origin, is used as an object")


def _factory(world: Any, generator: Any, function: Any, args: tuple, options: dict[str, Any]) -> Any:
    """A tensor that is made of what is drawn."""
    before: tuple = ()
    if function is torch.randint and len(args) > 1:
        before, args = args[:-1], args[-1]
    elif function is torch.normal:
        if len(args) != 3:
            raise _refused("normal")
        before, args = args[:-1], args[-1]
    elif len(args) == 1 and type(args[0]) in (tuple, list, torch.Size):
        args = args[0]
    if type(args) is list:
        world.touch(args)
    sizes = tuple(args)
    device = torch.device(options.pop("device", None) or _CPU)
    dtype = options.pop("dtype", None)
    if dtype is None:
        world.process.read("default_dtype")
        dtype = torch.int64 if function in (torch.randint, torch.randperm) else torch.get_default_dtype()
    if any(options.values()) or device.type != generator.device.type or not _are_early((*before, *sizes)):
        raise _refused(function.__name__)
    if not all(type(each) in (int, torch.SymInt) for each in sizes):
        raise _refused(function.__name__)
    if device.type != "cpu":
        device = generator.device
    before = tuple([int(each) if type(each) is torch.SymInt else each for each in before])
    told = (generator, function.__name__, before, dtype, str(device), *sizes)
    return _tensor(world, _DRAWN, told, sizes, dtype, device)


def _fill(world: Any, generator: Any, name: str, x: Any, args: tuple, options: dict[str, Any]) -> Any:
    """A tensor that is filled with what is drawn: how it lies decides which element gets what."""
    if type(x) is not Fake or not x.is_contiguous() or not _are_early((*args, *options.values())):
        raise _refused(name)
    sizes = tuple(x.size())
    if x.dtype not in (torch.float32, torch.float64, torch.int64) or not all(
        type(each) in (int, float) for each in (*args, *options.values())
    ):
        raise _refused(name)
    told = (generator, name, args, tuple(options.items()), x.dtype, str(x.device), *sizes)
    return x.copy_(_tensor(world, _FILLED, told, sizes, x.dtype, x.device))


def _are_early(values: tuple) -> bool:
    return all(is_early(each) and not is_unbacked(each) for each in values)


def _tensor(world: Any, function: Any, args: tuple, sizes: tuple, dtype: torch.dtype, device: torch.device) -> Fake:
    result = world.host_calls.make(function, args)
    return world.host_calls.tensor_input(result, TensorSpec(sizes, contiguous(sizes), dtype, device))


# Generators as objects ------------------------------------------------------------------------------------------------


def _made(world: Any, *args: Any, **kwargs: Any) -> Any:
    """A generator of the program's own: one that nobody draws from stands for it."""
    if not all(map(world.data.is_plain_data, (*args, *kwargs.values()))):
        raise Break("native-argument", "torch.Generator is called with objects")
    with world.recorder._paused():
        stand_in = torch.Generator(*args, **kwargs)
    world.loader.host_objects[id(stand_in)] = stand_in, world.host_calls.make(torch.Generator, args, kwargs, False)
    return stand_in


def _call(world: Any, generator: Any, name: str, *args: Any) -> HostResult:
    _check(world, generator)
    return world.host_calls.make(call_method, (generator, name, *args))


def _other(name: str, world: Any, generator: Any, *args: Any) -> Any:
    raise Break("unknown-native", f"torch.Generator.{name} is called")


def _manual_seed(name: str, world: Any, generator: Any, seed: Any) -> Any:
    if not is_early(seed) or seed is None:
        raise Break("native-argument", "a generator is seeded with what is not known before the graph has run")
    _call(world, generator, name, seed)
    return generator


def _seed(name: str, world: Any, generator: Any) -> Any:
    return host_number(_call(world, generator, name), int)


def _initial_seed(name: str, world: Any, generator: Any) -> Any:
    """Draws do not change it. That of the default generator is read before the graph runs, which may seed it."""
    if generator is torch.default_generator and world.loader.origin(generator) is not None:
        nodes = world.recorder.graph.nodes
        if not any(each.target.name() in _SEEDING for each in nodes if _torch.is_operator(each.target)):
            return host_number(world.host_calls.make(call_method, (generator, name), changes=False), int)
    return _seed(name, world, generator)


def _get_state(name: str, world: Any, generator: Any) -> Any:
    with world.recorder._paused():
        size = torch.Generator(generator.device).get_state().numel()
    return world.host_calls.tensor_input(_call(world, generator, name), TensorSpec((size,), (1,), torch.uint8))


def _set_state(name: str, world: Any, generator: Any, state: Any) -> Any:
    found = world.host_calls.result_in(state)
    if found is None:
        raise Break("native-argument", "a generator's state is set to what the program computed, or got from outside")
    _call(world, generator, name, found)
    return generator


_SEEDING = frozenset({"lampwork::manual_seed", "lampwork::set_rng_state"})
_METHODS: dict[str, Callable] = {
    "manual_seed": _manual_seed, "initial_seed": _initial_seed, "seed": _seed, "get_state": _get_state,
    "set_state": _set_state,
}  # fmt: skip


NATIVES: dict[Any, Answer] = {
    torch.Generator: _made,
    **{
        getattr(torch.Generator, name): functools.partial(_METHODS.get(name, _other), name)
        for name in ("manual_seed", "initial_seed", "seed", "get_state", "set_state", "clone_state")
        if hasattr(torch.Generator, name)
    },
}
