"""`capture`: one call of a program as a `Region`: a graph of ATen operators, its guards, its result and effects.

    region = capture(model, (tokens,), {}, Settings())

The program runs once in the bytecode machine, on fakes; nothing of it is computed and nothing real is changed, whether
capture succeeds or not. Raises `GraphBreak` where the program does something that no graph holds.
"""

from __future__ import annotations

import functools
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from lampwork import _torch, collector
from lampwork.capture.arrays import check_shared_arrays
from lampwork.capture.dynamic import DynamicPolicy
from lampwork.capture.effects import collect_effects, guard_distinct, guard_identities
from lampwork.capture.machine import Interruption, Machine
from lampwork.capture.machine.errors import Unsupported
from lampwork.capture.recorder import Recorder
from lampwork.capture.shadow import MISSING, Break
from lampwork.capture.templates import Templates
from lampwork.capture.world import TorchWorld
from lampwork.config import Settings
from lampwork.errors import Diagnostic, GraphBreak
from lampwork.ir.guard import ArgumentCount
from lampwork.ir.loops import Location
from lampwork.ir.region import Region, Return
from lampwork.ir.template import CallSetAttribute, ConstantValue, DeleteItem, Effect, SetItem, SetState, SourceValue

#: Process state that every region depends on, whatever it reads: it decides what operators torch records.
_ALWAYS_GUARDED = (
    "grad_mode", "inference_mode", "autocast", "default_dtype", "deterministic", "attention",
    "float32_matmul_precision",
    "modes", "anomaly",
)  # fmt: skip
#: What a program may leave changed.
_SETTABLE = ("grad_mode", "autocast", "default_dtype", "attention")


_TORCH_DIRECTORY = torch.__file__.rpartition("/")[0] + "/"
_OWN_DIRECTORY = __file__.rpartition("/")[0] + "/"


class TorchMachine(Machine):
    """A machine whose program cannot catch what stops capture."""

    def unwind(self, error: BaseException, fresh: bool = True) -> bool:
        if isinstance(error, GraphBreak):
            diagnostic = error.diagnostic
            raise Break(diagnostic.id, diagnostic.reason, diagnostic.remedy) from None
        return super().unwind(error, fresh)


def capture(
    function: Callable, args: tuple, kwargs: Mapping[str, Any], settings: Settings, policy: DynamicPolicy | None = None
) -> Region:
    """The region of `function(*args, **kwargs)`. `function`: a function, bound method, module or callable object.

    `policy`: which sizes are symbols (default: what the settings and the marks on tensors say).
    Guards cover all that was read. Raises `GraphBreak` (its `guards` say what had been read by then).
    """
    if policy is None:
        policy = DynamicPolicy(allowed=settings.dynamic is not False, everything=settings.dynamic is True)
    recorder = Recorder()
    world = TorchWorld(recorder, policy)
    world.attach(recorder)
    machine = TorchMachine(world)
    with collector.paused():
        try:
            return _capture(world, machine, function, args, dict(kwargs))
        except Interruption as stop:
            raise _graph_break(world, stop, function) from None
        finally:
            machine.finished = True


def _capture(world: TorchWorld, machine: Machine, function: Callable, args: tuple, kwargs: dict) -> Region:
    loader, sources, guards = world.loader, world.sources, world.guards
    guards.add(sources.root, ("arguments",), lambda: ArgumentCount(len(args), tuple(kwargs)))
    initial = {name: _torch.STATE[name]() for name in _torch.STATE}
    world.initial_state = initial  # type: ignore[attr-defined]
    for name in _ALWAYS_GUARDED:
        guards.equals(sources.state(name), initial[name])
    callable_value = loader.load(function, sources.root)
    with _restored_state(world):
        with world.recorder.recording():
            loaded = tuple([loader.load(value, sources.argument(index)) for index, value in enumerate(args)])
            named = {name: loader.load(value, sources.keyword(name)) for name, value in kwargs.items()}
            try:
                result = machine.call(callable_value, loaded, named)
                changed = _state_effects(initial, world.autocast_cache)
            except GraphBreak as stop:
                raise Break(stop.diagnostic.id, stop.diagnostic.reason, stop.diagnostic.remedy) from None
            except (Exception, SystemExit, GeneratorExit, BaseExceptionGroup) as error:
                raise Break("exception", f"the program raised {type(error).__name__}: {error}") from error
            finally:
                machine.finished = True
                world.leave_contexts()
        check_shared_arrays(world)
        templates = Templates(loader)
        value = templates.template(result)
        effects = collect_effects(loader, templates) + _global_effects(world, templates) + changed
        if world.recorder.uses_cuda:
            guards.equals(sources.state("cuda"), initial["cuda"])
        guard_distinct(loader)
        guard_identities(loader, world.identified)
        world.tensors.finish()
        outputs = templates.outputs
        graph = world.recorder.finish(outputs)
    return Region(
        name=_name(function),
        graph=graph,
        inputs=tuple(world.tensors.inputs),
        guards=guards.finish({id(source) for source in world.tensors.sources}),
        objects=tuple(templates.objects),  # type: ignore[arg-type]
        effects=tuple(effects),
        outcome=Return(value),
        code_digests=dict(world.code_digests),
        requires_grad_outputs=any(output.requires_grad and not output.is_leaf for output in outputs),
        input_values=tuple(world.tensors.fakes),
        location=_location_of(function),
        sizes=world.recorder.sizes if world.recorder.sizes else None,
    )


def _state_effects(initial: Mapping[str, Any], autocast_cache: bool | None) -> list[Effect]:
    """Process state that the program left changed. `autocast_cache`: what it set the cache of casts to, if it did."""
    effects: list[Effect] = []
    for name in _SETTABLE:
        now = _torch.STATE[name]()
        if name == "autocast":
            # The recorder turns the cache of casts off; that is not the program's doing.
            now = (*now[:-1], initial[name][-1] if autocast_cache is None else autocast_cache)
        if now != initial[name]:
            effects.append(SetState(name, ConstantValue(now)))
    return effects


@contextmanager
def _restored_state(world: TorchWorld) -> Iterator[None]:
    """Whatever the program does to process state while it is captured is undone."""
    grad = torch.is_grad_enabled()
    dtype = torch.get_default_dtype()
    autocast = _torch.STATE["autocast"]()
    attention = _torch.STATE["attention"]()
    try:
        yield
    finally:
        _torch.SET_STATE["grad_mode"](grad)
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
        if _torch.STATE["autocast"]() != autocast:
            _torch.SET_STATE["autocast"](autocast)
        if _torch.STATE["attention"]() != attention:
            _torch.SET_STATE["attention"](attention)


def _global_effects(world: TorchWorld, templates: Templates) -> list[Effect]:
    effects: list[Effect] = [SetState(name, ConstantValue(None)) for name in world.states_touched]
    if world.hooks_registered:
        handles = templates.template(torch.utils.hooks.RemovableHandle)
        effects.append(CallSetAttribute(handles, "next_id", templates.hook_number(world.hooks_registered)))
    for (_, name), (cls, value) in world.class_writes.items():
        effects.append(CallSetAttribute(templates.template(cls), name, templates.template(value)))
    for namespace in world.namespaces.values():
        for name in namespace.written:
            value = namespace.values[name]
            if value is namespace.initial.get(name, world):
                continue
            target = SourceValue(namespace.source)
            if value is MISSING:
                effects.append(DeleteItem(target, ConstantValue(name)))
            else:
                effects.append(SetItem(target, ConstantValue(name), templates.template(value)))
    return effects


def _graph_break(world: TorchWorld, stop: Interruption, function: Any) -> GraphBreak:
    location = _break_location(stop)
    if not location.file and stop.__cause__ is not None:
        location = _raised_at(stop.__cause__)
    if not location.file:  # a result or an effect that no template describes
        location = _location_of(function)
    if isinstance(stop, Break):
        diagnostic = Diagnostic(stop.id, stop.reason, location, stop.remedy)
    elif isinstance(stop, Unsupported):
        diagnostic = Diagnostic("unsupported", stop.reason, location)
    else:
        diagnostic = Diagnostic("unsupported", str(stop), location)
    cause = stop.__cause__
    problem = GraphBreak(diagnostic, (*world.guards.finish(set()), *world.recorder.sizes.guards()))
    problem.__cause__ = cause
    problem.symbolic = bool(world.recorder.sizes)
    return problem


def _break_location(stop: Interruption) -> Location:
    """The innermost line that is not torch's own."""
    frames = [frame for frame in stop.frames or () if not frame.code.hidden]
    for frame in reversed(frames):
        if not frame.filename.startswith(_TORCH_DIRECTORY):
            return Location(frame.filename, frame.line)
    return Location(frames[-1].filename, frames[-1].line) if frames else Location()


def _raised_at(error: BaseException) -> Location:
    """Where the program raised an exception that nothing in it caught."""
    places = traceback.extract_tb(error.__traceback__)
    inner = [place for place in places if not place.filename.startswith((_TORCH_DIRECTORY, _OWN_DIRECTORY))]
    return Location(inner[-1].filename, inner[-1].lineno or 0) if inner else Location()


def _name(function: Any) -> str:
    if isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _location_of(function: Any) -> Location:
    if isinstance(function, types.MethodType):
        function = function.__func__
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    code = getattr(function, "__code__", None)
    return Location(code.co_filename, code.co_firstlineno) if code is not None else Location()
