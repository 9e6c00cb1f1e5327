"""`capture`: one call of a program as a `Region`: a graph of ATen operators, its guards, its result and effects.

    region = capture(model, (tokens,), {}, Settings())

The program runs once in the bytecode machine, on fakes; nothing of it is computed and nothing real is changed, whether
capture succeeds or not. Where the program does something that no graph holds, the region ends: see `suspend.py`.
"""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import torch

from lampwork import _torch, collector
from lampwork.capture.autograd.backward import has_new_history, has_usable_history
from lampwork.capture.bytecode.liveness import looks_at_frame
from lampwork.capture.failures import is_certain
from lampwork.capture.flow import ALL as CONTROL_FLOW
from lampwork.capture.leave.effects import (
    collect_effects,
    granted_inputs,
    guard_distinct,
    stores_itself,
)
from lampwork.capture.leave.object_reconstruction import same_objects
from lampwork.capture.leave.output import warning_settings
from lampwork.capture.leave.reconstruction import Templates
from lampwork.capture.leave.suspend import Retry, Suspended, function_positions, rebuild, suspend, watches
from lampwork.capture.leave.versions import Versions
from lampwork.capture.machine import Interruption
from lampwork.capture.machine.core import Handled
from lampwork.capture.natives.numpy_data import check_shared_arrays
from lampwork.capture.natives.watchers import REMEDY
from lampwork.capture.outside import identity
from lampwork.capture.outside.dynamic_sizes import DynamicPolicy
from lampwork.capture.outside.overlay import MISSING, Break, Deferred, LeftToEager
from lampwork.capture.record.recorder import Recorder
from lampwork.capture.steps import StopHere, TorchMachine
from lampwork.capture.stops import described, diagnostic_of, graph_break, guards_so_far, location_of
from lampwork.capture.values.unbacked_numbers import check_assumed
from lampwork.capture.world import TorchWorld
from lampwork.config import Settings, environment
from lampwork.errors import CompileError, Diagnostic, GraphBreak
from lampwork.fakes.nodes import SizeNode
from lampwork.fakes.numbers import NumberNode
from lampwork.ir.continuation import Resumption, SuspendedFrames
from lampwork.ir.differentiation import Joint
from lampwork.ir.location import name_of
from lampwork.ir.operations import subclasses
from lampwork.ir.region import Outcome, Raise, Region, Return
from lampwork.ir.template import (
    CallSetAttribute,
    ConstantValue,
    DeleteItem,
    Effect,
    Evaluate,
    SetItem,
    SetState,
    SourceValue,
)
from lampwork.regions import keys

#: Process state that every region depends on, whatever it reads: it decides what operators torch records.
_ALWAYS_GUARDED = (
    "grad_mode", "inference_mode", "autocast", "default_dtype", "deterministic", "attention",
    "float32_matmul_precision",
    "modes", "anomaly",
)  # fmt: skip
#: What a program may leave changed.
_SETTABLE = ("grad_mode", "autocast", "default_dtype", "attention", "attention_order", "cudnn")
#: Those among them that all threads share: what another thread changes meanwhile is not the program's doing.
_SHARED = frozenset({"default_dtype", "attention", "attention_order", "cudnn"})


#: How often one call is captured: each time up to an earlier break than the time before.
_ATTEMPTS = 12


def capture(
    function: Callable,
    args: tuple,
    kwargs: Mapping[str, Any],
    settings: Settings,
    policy: DynamicPolicy | None = None,
    split: bool = False,
    states: _torch.InitialStates | None = None,
) -> Region:
    """The region of `function(*args, **kwargs)`. `function`: a function, bound method, module or callable object, or
    `SuspendedFrames` with live values for arguments.

    `policy`: which sizes are symbols (default: what the settings and the marks on tensors say).
    Guards cover all that was read. At a break, with `split`, the region ends there and its outcome is `Continue`;
    else, and where what is live at the break cannot be described, raises `GraphBreak` (its `guards` say what had been
    read by then). `states`: where to make states of optimizers that the program would find missing, None: nowhere.
    """
    if policy is None:
        policy = DynamicPolicy(allowed=settings.dynamic is not False, everything=settings.dynamic is True)
    step = 0
    reason: Diagnostic | None = None
    natively: dict[str, str] = {}
    _torch.tensor_layout()  # found by differentiating, which no function transform of the program's may see
    with collector.paused():
        regions = keys(function.root if isinstance(function, SuspendedFrames) else function, settings)
        for _ in range(_ATTEMPTS):
            attempt = _Attempt(
                function, args, dict(kwargs), policy, split, step, reason, natively, settings.options.exact
            )
            attempt.world.regions = regions
            if states is not None:
                attempt.world.initial_states = states
            try:
                return attempt.run()
            except Retry as again:
                step, reason = again.step, attempt.reason
            except _Natively as again:
                step, reason, natively = 0, None, again.natively
            except Interruption as stop:
                raise graph_break(attempt.world, stop, function, attempt.reason) from None
            finally:
                attempt.release()
    if reason is None:
        reason = Diagnostic("backward-effect", "; ".join(natively.values()))
    raise GraphBreak(reason, guards_so_far(attempt.world))


def _leave(kind: str, reason: str) -> NoReturn:
    raise LeftToEager(kind, reason, "unsupported-operator")


class _Natively(Exception):
    """Capture again, with some of what backward passes run registered or applied natively: see `_Attempt`."""

    def __init__(self, natively: dict[str, str]) -> None:
        super().__init__(natively)
        self.natively = natively


class _Attempt:
    """One run of the program in the machine. `reason`: why it stops before `step`, if it does (0: it does not).

    `natively`: what is left to eager, and why. Of the kinds of code that backward passes run ("hooks", "saved hooks",
    "functions") the program's, since some of it does more than compute; "locks", which it takes; "switches" of
    libraries, which it sets. `exact`: numbers are to be eager's bit by bit.
    """

    def __init__(
        self,
        function: Any,
        args: tuple,
        kwargs: dict[str, Any],
        policy: DynamicPolicy,
        split: bool,
        step: int,
        reason: Diagnostic | None,
        natively: dict[str, str],
        exact: bool,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.split = split
        self.reason = reason
        self.suspended: Suspended | None = None
        #: Its region is made.
        self.is_done = False
        #: How it ended. An exception leads to the frames that it passed, and these to the program's objects.
        self.end: Any = None
        #: What failed inside of us, which a `CompileError` shows the user.
        self.shown: BaseException | None = None
        #: The program is called by native code of ours, which goes on after frames below: they cannot be suspended.
        self.natively_called = False
        recorder = Recorder(sizes_by_contents=policy.contents, exact=exact)
        self.world = TorchWorld(recorder, policy)
        self.world.attach(recorder)
        self.world.natively = natively
        recorder.left, recorder.leave = natively, _leave
        self.world.may_divide = split
        self.world.output.effects = self._changed_so_far
        self.machine = TorchMachine(self.world, step, may_break=split)
        recorder.steps = lambda: self.machine.steps

    def run(self) -> Region:
        """Raises `Retry`, or an `Interruption` for a break at which the region cannot end."""
        world = self.world
        guards, sources = world.guards, world.sources
        # What never changes in a process is read where it is asked for: to look for GPUs has effects of its own.
        initial = {name: _torch.STATE[name]() for name in _torch.STATE if name != "hardware"}
        world.process.initial = initial
        for name in _ALWAYS_GUARDED:
            guards.equals(sources.state(name), initial[name])
        with _restored_state(world), _torch.without_saved_tensor_hooks():
            with world.recorder.recording():
                try:
                    self.end = self._run_to_end()
                    changed = _state_effects(initial, world)
                    entered = bool(world.process.entered)
                finally:
                    self.machine.finished = True
                    world.process.leave_contexts()
            if world.locks.taken:
                self._check_locks(self.end)
            check_shared_arrays(world)
            if world.identified and identity.may_be_identities(guards):
                why = "an id() is taken, and numbers from outside may be what it gave earlier"
                self._break_before(world.identified_at, "identity-number", why)
            if world.warned_at:
                self._break_before(
                    world.warned_at, "native-call", "PyTorch warns, under filters that the program has set"
                )
            if world.recorder.view_by_memory_written is not None:
                why = "memory is written that a view shares which as_strided or a change of shape in place has made"
                self._break_before(world.recorder.view_by_memory_written, "unsupported-operator", why)
            for cls, found, step in world.asked_subclasses:
                if subclasses(cls) != found:
                    self._break_before(
                        step, "native-call", f"the subclasses of {cls.__qualname__} are asked for, and one more is made"
                    )
            late = check_assumed(world)
            if late:
                self._break_before(late, "data-dependent", "a number out of a tensor may fail where inputs are written")
            templates = Templates(world.loader)
            for fake in world.tensors.fakes_of_tensors():
                world.recorder.settle_history(fake)
            try:
                outcome = self._outcome(self.end, templates, entered)
                effects = self._effects(templates, changed)
            except Break:
                self._retry_outside()
                raise
            finally:
                world.loader.restore_exceptions()
            if world.recorder.uses_cuda:
                guards.equals(sources.state("cuda"), initial["cuda"])
            guard_distinct(world.loader)
            identity.identities_stay(world.loader, world.identified)
            world.tensors.finish(copied=bool(world.copied_storages))
            world.backed_numbers.guard_equal()
            outputs = templates.outputs
            needs_grad = _needs_grad(outputs, templates.spent, world)
            joint = undifferentiated = None
            if needs_grad:
                joint, undifferentiated = self._differentiated(templates, effects, changed)
                if undifferentiated is not None:
                    self._leave_to_eager(undifferentiated.reason)
                needs_grad = joint is not None or undifferentiated is not None
            else:
                effects = [*effects, *world.backed_numbers.counted_by_host(outputs)]
            world.backed_numbers.finish()
            host_calls = world.host_calls.finish(templates)
            shown = outputs if joint is None else outputs[: joint.results + joint.hidden]
            versions = Versions(world.recorder.inputs, shown, joint)
            graph = world.recorder.finish(outputs)
        self.is_done = True
        return Region(
            name=name_of(self.function),
            graph=graph,
            inputs=tuple(world.tensors.inputs),
            guards=guards.finish({id(source) for source in world.tensors.sources}),
            objects=tuple(templates.objects),  # type: ignore[arg-type]
            effects=tuple(effects),
            outcome=outcome,
            code_digests=dict(world.code_digests),
            vouched=frozenset(world.vouched),
            requires_grad_outputs=needs_grad,
            input_values=tuple(world.tensors.fakes),
            location=location_of(self.function),
            sizes=world.recorder.sizes if world.recorder.sizes else None,
            joint=joint,
            undifferentiated=undifferentiated,
            own_gradients=world.recorder.own_gradients,
            optimizers=frozenset(world.stepped),
            locks=world.locks.sources,
            host_calls=host_calls,
            raised=versions.raised,
            versions=versions.made,
            separate=versions.separate,
            detached=versions.detached,
            inference=versions.inference,
        )

    def _check_locks(self, end: Any) -> None:
        """Locks that the program took are taken natively where the region does not end with the program, all given
        back. (Without `split` it ends with an error that says why.)"""
        natively = self.world.natively
        if type(end) is tuple:
            if self.world.locks.held:
                raise _Natively({**natively, "locks": "and kept"})
        elif self.split:
            why = diagnostic_of(end, self.function).reason if isinstance(end, Interruption) else described(end)
            raise _Natively({**natively, "locks": f"and then {why}"})

    def _effects(self, templates: Templates, changed: list[Effect]) -> list[Effect]:
        """What happens after the graph, in order. `changed`: process state that the program left changed."""
        world = self.world
        computed: list[Effect] = []
        world.subclasses.check_changes()
        late = [*world.backed_numbers.assumed, *world.host_calls.late]
        if late:
            computed = [Evaluate(templates.items(late))]
        told = world.output.described(templates)
        effects = world.walks.effects() + collect_effects(world.loader, templates)
        effects += _global_effects(world, templates) + changed
        if not told:
            return [*computed, *effects, *templates.placed]
        wrote = any(_torch.storage_key(fake) in world.recorder.written for fake in world.tensors.fakes_of_tensors())
        settings = warning_settings(world) if any(each.settings is not None for each in world.output.calls) else None
        first = world.output.come_first(self._changed_so_far() if effects else ([], []), wrote, settings)
        if type(first) is int:
            self._break_before(first, "native-call", "code that may look at the program's effects is called among them")
        return [*computed, *(told + effects if first else effects + told), *templates.placed]

    def _changed_so_far(self) -> tuple[list[Effect], list[Any]]:
        """What the program has changed until now, such that equal states compare equal."""
        templates = Templates(self.world.loader)
        effects = self.world.walks.effects() + collect_effects(self.world.loader, templates)
        effects += _global_effects(self.world, templates)
        return effects + _state_effects(self.world.process.initial, self.world), templates.objects

    def _break_before(self, step: int, id: str, why: str) -> None:
        """The region ends before `step`, which meets what comes later."""
        stop = Break(id, why)
        self.reason = diagnostic_of(stop, self.function)
        if not self.split:
            raise stop
        raise Retry(step)

    @contextmanager
    def _sizes_as_numbers(self) -> Iterator[None]:
        """Floats that derivatives make of sizes, as that of a variance does of what it divides by, vary with them."""
        recorder, numbers = self.world.recorder, self.world.backed_numbers

        def as_float(size: SizeNode) -> NumberNode:
            recorder.numbers = numbers
            return NumberNode(numbers.compute(operator.mul, torch.SymInt(size), 1.0))

        if not recorder.exact:  # numbers that vary are tensors in the graph, and may be rounded otherwise
            recorder.sizes.floats = as_float
        try:
            yield
        finally:
            recorder.sizes.floats = None

    def _differentiated(
        self, templates: Templates, effects: list[Effect], changed: list[Effect]
    ) -> tuple[Joint | None, Diagnostic | None]:
        """The joint graph's description, its gradients recorded; or why there is none.

        Hooks and backward methods of the program are interpreted meanwhile. They may record, and do nothing else:
        `effects` are what the program did before.
        """
        from lampwork.capture.autograd.differentiate import differentiate  # calls without gradients do without

        world, machine = self.world, self.machine
        if world.subclasses.need_grad():
            return None, Diagnostic("tensor-subclass", "a tensor of a wrapper subclass requires grad")
        machine.stop_at, steps = 0, machine.steps
        held = templates.held()
        try:
            with world.recorder.recording(), self._sizes_as_numbers():
                written = [
                    index for index, fake in enumerate(world.recorder.inputs) if has_usable_history(world.loader, fake)
                ]
                if any(templates.is_made(table) for table in world.recorder.hook_tables):
                    raise Break("needs-grad", "a handle that can remove a hook leaves the region")
                joint = differentiate(world.recorder, templates.outputs, templates.spent, written)
            if machine.steps != steps:
                count = len(templates.outputs)
                after = self._effects(templates, changed)
                same = after == effects or _in_full(after, templates.objects) == _in_full(effects, templates.objects)
                same = same and same_objects(held, templates.held())
                if not same or len(templates.outputs) != count:
                    raise Break("needs-grad", "a hook or a backward method of the program changes what others can see")
        except (GraphBreak, Interruption) as stop:
            found = stop.diagnostic if isinstance(stop, GraphBreak) else diagnostic_of(stop, self.function)
            return None, replace(found, id="needs-grad")
        granted = granted_inputs(world.loader)
        if joint is not None and granted:
            used = {id(world.recorder.inputs[index]): index for index in (*joint.wanted, *joint.views.inputs)}
            joint = replace(joint, granted=tuple(used[id(fake)] for fake in granted if id(fake) in used))
        return joint, None

    def _leave_to_eager(self, why: str) -> None:
        """Hooks of the program, then its backward methods, run natively if that may be what keeps the region from being
        differentiated: the graph breaks where they are registered or applied, instead of running eagerly."""
        world = self.world
        kinds = (
            ("hooks", bool(world.recorder.hook_tables)),
            ("saved hooks", world.sets_saved_hooks),
            ("functions", bool(world.function_nodes)),
            (CONTROL_FLOW, bool(world.flows)),
        )
        for kind, used in kinds:
            if self.split and used and kind not in world.natively:
                raise _Natively({**world.natively, kind: why})

    def release(self) -> None:
        """Nothing of the program stays alive because it was captured."""
        self.machine.finished = True
        self.world.recorder.release(self.is_done)
        self.machine.frames.clear()
        for error, _ in self.machine.first_raised.values():
            if id(error) not in self.world.loader.exceptions and error is not self.shown:
                error.__traceback__ = None
        self.machine.first_raised.clear()
        self.machine.doubtful.clear()
        self.world.loader.release()
        self.world.names.release()
        self.world.initial_states = None
        self.world._keep.clear()
        self.world.tensors.values.clear()
        self.world.identified.clear()
        self.world.subclasses.outside.clear()
        self.world.subclasses.memory.clear()
        self.world.resumed_with = ()
        self.suspended = self.end = None
        self.args = ()

    def _run_to_end(self) -> Any:
        """What the program returns, in a tuple; the exception it raises; or the break it comes to."""
        try:
            return (self._run_program(),)
        except LeftToEager as stop:
            if self.split and stop.kind not in self.world.natively:
                raise _Natively({**self.world.natively, stop.kind: stop.reason}) from None
            return stop
        except Interruption as stop:
            if environment.strict and getattr(stop, "id", "") == "capture-failed":
                self.shown = stop.__cause__
                raise CompileError("capture", str(stop)) from stop.__cause__
            return stop
        except GraphBreak as stop:
            return Break(stop.diagnostic.id, stop.diagnostic.reason, stop.diagnostic.remedy)
        except (Exception, SystemExit, GeneratorExit, BaseExceptionGroup) as error:
            return error

    def _outcome(self, end: Any, templates: Templates, entered: bool) -> Outcome:
        if type(end) is tuple:
            return Return(templates.template(end[0]))
        if isinstance(end, Interruption):
            return self._continue(end, templates, entered)
        stop = Break("exception", f"the program raised {described(end)}")
        stop.__cause__ = end
        if not self.split:
            raise stop
        _, step = self.machine.first_raised.get(id(end), (end, -1))
        if step == 0 or id(end) in self.world.loader.exceptions:
            return Raise(templates.template(end))
        if step > 0:
            if id(end) not in self.machine.doubtful and is_certain(end):
                try:
                    return Raise(templates.template(end))
                except Break:
                    pass
            self.reason = diagnostic_of(stop, self.function)  # whatever raises it does so natively, in its own words
            raise Retry(step)
        raise stop

    def _run_program(self) -> Any:
        """What the program returns; or raises what it raises."""
        if isinstance(self.function, SuspendedFrames):
            return self._resume(self.function.resumption)
        world = self.world
        loader, sources = world.loader, world.sources
        count, names = len(self.args), tuple(self.kwargs)
        world.guards.called_with(sources.root, count, names, _collected(self.function, names))
        function = loader.load(self.function, sources.root)
        loaded = tuple([loader.load(value, sources.argument(index)) for index, value in enumerate(self.args)])
        named = {name: loader.load(value, sources.keyword(name)) for name, value in self.kwargs.items()}
        self.natively_called = True
        answer = world.call(function, loaded, named)
        self.natively_called = False
        return self.machine.complete(answer)

    def _resume(self, resumption: Resumption) -> Any:
        """Goes on with suspended frames."""
        loader, sources, raw = self.world.loader, self.world.sources, self.args
        self.world.resumed_with = raw
        values: list[Any] = [Deferred(value, sources.argument(index)) for index, value in enumerate(raw)]

        def look(position: int) -> Any:
            values[position] = loader.load(raw[position], sources.argument(position))
            return values[position]

        def slot(value: Any, position: int) -> Any:
            return look(position) if type(raw[position]) is types.CellType else value

        if resumption.raised:
            look(0)
        if resumption.handled:
            look(len(raw) - 1)
        for position in function_positions(resumption):
            look(position)
        frames, handling = rebuild(resumption, values, raw, slot)
        handled = Handled()
        handled.value = handling
        self.machine.use_deferred()
        self.machine.frames.extend(frames)
        for frame in frames:
            if looks_at_frame(frame.code):
                frame.locals = [loader.look(value) for value in frame.locals]
        return self.machine.run(0, values[0] if resumption.raised else None, handled, fresh=False)

    def _continue(self, stop: Interruption, templates: Templates, entered: bool) -> Outcome:
        """Ends the region at a break. `entered`: the program was in a context that is implemented in C."""
        if not isinstance(stop, StopHere) and self.reason is None:
            self.reason = diagnostic_of(stop, self.function)
        split = self.split and not self.natively_called
        watcher = watches(stop)
        if split and watcher and self.reason is not None and self.reason.id != "watched":
            why = f"{watcher} may be called after a break, and watches frames: {self.reason.reason}"
            self.reason = Diagnostic("watched", why, self.reason.location, REMEDY)
            raise stop
        suspended = self.suspended = suspend(self.machine, stop) if split else None
        if suspended is None:
            raise stop
        assert self.reason is not None
        if entered:
            raise Break("context", "a context implemented in C is entered where the graph breaks")
        for generator in self.machine.begun:
            if generator.has_end:  # nothing would close it where the program lets go of it
                raise Break("result", f"the generator {generator.__qualname__}, which has begun, outlives the region")
        return suspended.outcome(templates, self.reason)

    def _retry_outside(self) -> None:
        """What is live at the break cannot be described: tries the call of the innermost frame, if it has one."""
        again = None if self.suspended is None else self.suspended.retry_outside()
        if again is not None:
            raise again


def _needs_grad(outputs: list[Any], spent: Collection[int], world: TorchWorld) -> bool:
    """Whether some result, or an input that was written, has a history of this region's making that can be used; or
    is a view made without gradients of a tensor that requires grad, which autograd knows as such."""
    return (
        any(
            fake.requires_grad and (not fake.is_leaf or fake._is_view()) and index not in spent
            for index, fake in enumerate(outputs)
        )
        or any(
            has_usable_history(world.loader, fake) or (has_new_history(fake) and _is_detached(fake, outputs))
            for fake in world.recorder.inputs
        )
        or any(_is_detached(fake, outputs) for fake in granted_inputs(world.loader))
    )


def _is_detached(fake: Any, outputs: list[Any]) -> bool:
    """Whether some result shares the tensor's memory and not its history."""
    key = _torch.storage_key(fake)
    return any(each is not fake and not each.requires_grad and _torch.storage_key(each) == key for each in outputs)


def _in_full(effects: list[Effect], objects: list[Any]) -> str:
    """The effects as text, with the first levels of the objects that they name written out: some are described anew
    each time (numbers of hooks)."""
    text = repr(effects)
    for _ in range(2):
        text = re.sub(r"NewValue\(index=(\d+)\)", lambda match: repr(objects[int(match[1])]), text)
    return text


def _state_effects(initial: Mapping[str, Any], world: TorchWorld) -> list[Effect]:
    """Process state that the program left changed."""
    effects: list[Effect] = []
    autocast_cache = world.process.autocast_cache  # what the program set the cache of casts to, if it did
    for name in _SETTABLE:
        if name in _SHARED and name not in world.process.written:
            continue
        now = _torch.STATE[name]()
        if name == "autocast":
            # The recorder turns the cache of casts off; that is not the program's doing.
            now = (*now[:-1], initial[name][-1] if autocast_cache is None else autocast_cache)
        if now != initial[name]:
            effects.append(SetState(name, ConstantValue(now)))
    nesting = (world.process.autocast_lowest, world.process.autocast_nesting, world.process.autocast_cleared)
    if nesting != (0, 0, False):
        effects.append(SetState("autocast_nesting", ConstantValue(nesting)))
    return effects


@contextmanager
def _restored_state(world: TorchWorld) -> Iterator[None]:
    """Whatever the program does to process state while it is captured is undone."""
    before = {name: _torch.STATE[name]() for name in _SETTABLE}
    try:
        yield
    finally:
        for name, value in before.items():
            if (name not in _SHARED or name in world.process.written) and _torch.STATE[name]() != value:
                _torch.SET_STATE[name](value)


def _global_effects(world: TorchWorld, templates: Templates) -> list[Effect]:
    effects: list[Effect] = [SetState(name, ConstantValue(value)) for name, value in world.process.touched]
    if world.hooks_registered:
        handles = templates.template(torch.utils.hooks.RemovableHandle)
        effects.append(CallSetAttribute(handles, "next_id", templates.hook_number(world.hooks_registered)))
    effects += world.context_variables.effects(templates)
    for (_, name), (cls, value) in world.loader.classes.writes.items():
        effects.append(
            CallSetAttribute(templates.template(cls), name, templates.template(value), past=stores_itself(cls))
        )
    for namespace in world.names.namespaces.values():
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


def _collected(function: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a call's keywords whose order the program can see: what goes into `**kwargs`, if that is two or more.
    Modules hand keywords on; what hooks are given of them is in order, too."""
    target = function
    if isinstance(function, torch.nn.Module):
        hooked = function._forward_hooks_with_kwargs or function._forward_pre_hooks_with_kwargs
        target = None if hooked else type(function).forward
    target = target.__func__ if type(target) is types.MethodType else target
    if type(target) is types.FunctionType:
        code = target.__code__
        named = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
        names = tuple(name for name in names if name not in named)
    return names if len(names) > 1 else ()
