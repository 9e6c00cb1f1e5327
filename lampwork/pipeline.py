"""The pipeline, as one list that reads aloud. Loaded on a cache miss only.

    call --capture--> Region --prepare--> FunctionalGraph --lower--> Lowered --schedule--> Program
         --generate--> NativeCode --host--> host source --assemble--> Artifact

Each stage is a function from a value to a value. With LAMPWORK_VERIFY=1 the verifier of each IR runs between stages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch, collector
from lampwork._torch import InitialStates
from lampwork.backends import backend_of
from lampwork.capture.capture import capture
from lampwork.capture.outside.dynamic_sizes import DynamicPolicy
from lampwork.codegen.generate import generate, make_tuner
from lampwork.codegen.host import host_source
from lampwork.config import Settings, environment
from lampwork.errors import CompileError, Diagnostic, DynamicSizeError, GraphBreak, LampworkError, OffsetError
from lampwork.fakes.kernels import is_refusal
from lampwork.fakes.symbolic import SymbolicSizes
from lampwork.graph.prepare import UserPasses, prepare, prepare_halves, prepare_relaid
from lampwork.ir.artifact import Artifact, CompiledBody
from lampwork.ir.body import Body, bodies_in
from lampwork.ir.differentiation import Backward, GradientLayout
from lampwork.ir.guard import Guard
from lampwork.ir.order import read_before_written
from lampwork.ir.program import Extern, NativeCode, Program
from lampwork.ir.region import Continue, FunctionalGraph, Raise, Region, Return, RunEagerly
from lampwork.ir.size import Size
from lampwork.ir.source import Argument, is_lasting
from lampwork.ir.target import Target
from lampwork.ir.template import ConstantValue
from lampwork.lower import lower
from lampwork.runtime.cache import libraries
from lampwork.runtime.cache.operators import declarations
from lampwork.runtime.cache.versions import versions
from lampwork.runtime.launch.memory_effects import accessed_inputs
from lampwork.schedule import schedule
from lampwork.signals import run_pending
from lampwork.turns import give_way, uninterrupted

if TYPE_CHECKING:
    from lampwork.capture.autograd.gradient_layouts import TangentLayout
    from lampwork.graph.partition import Halves
    from lampwork.ir.replay import EagerBackward, Replay

#: Called with (stage name, value) after each stage; `debug/` passes one to print or dump every IR.
Observer = Callable[[str, Any], None]


def compile_call(
    function: Callable,
    args: tuple,
    kwargs: Mapping[str, Any],
    settings: Settings,
    observe: Observer | None = None,
    varied: Collection[Any] = (),
    contents: bool = True,
    states: InitialStates | None = None,
    single: bool = False,
) -> Artifact:
    """An artifact that serves this call and every call that passes its guards.

    `varied`: what differed between calls so far (see `capture.dynamic.Varying`): those sizes become symbols.
    `contents`: so do sizes that the contents of tensors decide. `states`: where states of optimizers are made that the
    program would find missing, which the caller takes back if it does not run the artifact (None: none are made).
    `single`: sizes that are 1 in this call are numbers, even if they varied.

    Raises `GraphBreak` when the call holds something capture does not put in a graph, `CompileError` naming the stage
    when a stage fails. The program's state is untouched either way but for `states`.
    """
    seconds: dict[str, float] = {}
    observer = observe or (lambda stage, value: None)
    dynamic = settings.dynamic
    known = frozenset(varied)
    policy = DynamicPolicy(dynamic is not False, dynamic is True, known, contents or settings.fullgraph)
    if single:
        policy = replace(policy, single=known)
    capture_as = partial(capture, function, args, kwargs, settings, states=states)
    with collector.paused():
        try:
            with _stage("capture", seconds), uninterrupted():
                region = _capture(capture_as, policy, not settings.fullgraph)
        except GraphBreak as stop:
            if settings.fullgraph or stop.guards is None:
                raise
            if states is not None:
                states.keep(stop.optimizers)
            return _broken_artifact(function, stop, seconds)
        observer("capture", region)
        stepped = region.optimizers
        try:
            artifact = compile_region(region, settings, observer, seconds)
            specialised = tuple(region.sizes.specialised()) if region.sizes is not None else ()
        except CompileError as error:
            if region.sizes is None or (environment.strict and not isinstance(error, OffsetError)):
                raise
            # Some stage cannot do it for symbols: an entry for these sizes alone.
            specialised = (Diagnostic("size-specialised", f"all sizes are fixed: {error}", error.location),)
            with _stage("capture", seconds), uninterrupted():
                fixed = capture_as(policy.fixed(), not settings.fullgraph)
            observer("capture", fixed)
            stepped = fixed.optimizers
            artifact = compile_region(fixed, settings, observer, seconds, prove=True)
        if region.sizes is not None and region.sizes.wrongly_supposed():  # a later stage asked
            if states is not None:
                states.undo()
            return compile_call(function, args, kwargs, settings, observe, varied, contents, states, single=True)
        if region.sizes is not None:
            _check_marks(region.sizes)
        if states is not None:
            states.keep(stepped)
        made = states.notes if states is not None else ()
        if observe is None and region.graph is not None:
            _torch.free_nodes(region.graph)
        return replace(artifact, varied=known, specialised=specialised, initial_states=made)


def _capture(capture_as: Callable[..., Region], policy: DynamicPolicy, split: bool) -> Region:
    """The region of the call that `capture_as` captures, under a policy; with numbers for sizes where symbols would
    break it. `split`: it may end at a break. Raises `GraphBreak`."""
    try:
        region = _captured(capture_as, policy, split)
    except GraphBreak as stop:
        if not stop.symbolic:
            raise
        try:
            return capture_as(policy.fixed())
        except GraphBreak:
            raise stop from stop.__cause__
    if isinstance(region.outcome, Continue) and region.sizes is not None and region.sizes.of_the_call:
        with suppress(GraphBreak):  # it is not for the symbols
            fixed = capture_as(policy.fixed())
            return region if _is_not_differentiated(fixed) else fixed
    elif _is_not_differentiated(region) and region.sizes is not None and region.sizes.of_the_call:
        with suppress(GraphBreak):
            fixed = capture_as(policy.fixed(), split)  # a derivative may take numbers only
            return region if _is_not_differentiated(fixed) else fixed
    return region


def _is_not_differentiated(region: Region) -> bool:
    return region.requires_grad_outputs and region.joint is None


def _captured(capture_as: Callable[..., Region], policy: DynamicPolicy, split: bool) -> Region:
    """The region of the call as of larger sizes than those of 1 that varied, so that it serves others, too; those that
    the program asks about are numbers. Raises `GraphBreak`."""
    while True:
        try:
            region = capture_as(policy, split)
        except GraphBreak:
            if policy.single >= policy.varied:
                raise
            policy = replace(policy, single=policy.varied)  # of larger sizes it may do what it does not do here
            continue
        if region.sizes is None or not region.sizes.supposed:
            return region
        wrong = region.sizes.wrongly_supposed() if isinstance(region.outcome, Return) else policy.varied
        if not wrong:
            return region
        policy = replace(policy, single=policy.single | wrong)


def _check_marks(sizes: SymbolicSizes) -> None:
    """Raises `DynamicSizeError` for a size that the user marked as dynamic and the program needs as a number."""
    found = sizes.specialised_marks()
    if found:
        remedy = "Use the size in arithmetic and tensor operators only, or leave the mark out."
        raise DynamicSizeError(replace(found[0], remedy=remedy))


def compile_region(
    region: Region,
    settings: Settings,
    observe: Observer,
    seconds: dict[str, float] | None = None,
    prove: bool = False,
) -> Artifact:
    """The artifact for a captured region: every stage after capture. `prove`: as for `_generate`."""
    seconds = {} if seconds is None else seconds
    if isinstance(region.outcome, Raise):  # an error is the program's only where eager raises it
        return _eager_artifact(region, RAISES, seconds)
    if _is_not_differentiated(region):
        return _eager_artifact(region, _undifferentiated(region), seconds)
    halves = None
    of_the_user = _passes_of_the_user(settings)
    try:
        with _stage("prepare", seconds):
            if settings.options.passes.program:
                from lampwork.passes.program import before_differentiation

                region = before_differentiation(region, settings.options.passes, settings.options.exact)
            if region.joint is not None:
                halves = prepare_halves(region, settings, of_the_user)
            if halves is not None:
                functional = halves.forward
            else:  # passes of the user's are given the whole program, also what it does to many tensors alike
                functional = prepare(region, settings, copies=not settings.options.passes, of_the_user=of_the_user)
    except GraphBreak as stop:  # several GPUs, or a device without a back end
        if settings.fullgraph:
            raise
        return _eager_artifact(region, _outcome_of(stop), seconds)
    except (
        CompileError
    ) as failed:  # the form of an operator that returns what this one writes was refused by its kernel
        if not is_refusal(failed.__cause__):
            raise
        return _eager_artifact(region, RAISES, seconds)
    weights = frozenset(index for index, each in enumerate(region.inputs) if is_lasting(each))
    observe("prepare", functional)
    program, native, source = _generate(
        functional, settings, observe, seconds, weights, region.sizes, prove=prove, region=region
    )
    facts = region.sizes.facts() if region.sizes is not None else ()
    bodies = _bodies(program, settings, observe, seconds, prove, facts)
    backward = _backward(region, halves, settings, observe, seconds, prove) if halves is not None else None
    with _stage("guards", seconds):
        guards = _guards(region)
    return Artifact(
        name=region.name,
        guards=guards,
        inputs=region.inputs,
        objects=region.objects,
        effects=region.effects,
        outcome=region.outcome,
        program=program,
        native=native,
        host_source=source,
        derived=functional.derived,
        code_digests=dict(region.code_digests),
        versions=versions(),
        compile_seconds=seconds,
        backward=backward,
        unaccessed=frozenset(range(len(region.inputs))) - accessed_inputs(program),
        locks=region.locks,
        host_calls=region.host_calls,
        operators=_operators(region, functional, halves),
        libraries=libraries.digests(region.vouched),
        bodies=bodies,
    )


def _operators(region: Region, functional: FunctionalGraph, halves: Halves | None) -> dict[str, str]:
    """What was asked of operators that other libraries brought: those of the program, and those that passes of the
    user's have put in."""
    found: dict[str, str] = {}
    for graph in (functional.graph, halves.backward.graph if halves is not None and halves.backward else None):
        if graph is not None:
            found |= declarations(graph, differentiated=False)
    return found | declarations(region.graph, differentiated=region.joint is not None)


def _backward(
    region: Region, halves: Halves, settings: Settings, observe: Observer, seconds: dict[str, float], prove: bool
) -> Backward:
    """The backward half compiled: an artifact that has a program only."""
    if halves.backward is None:
        return halves.link
    observe("partition", halves.joined)
    observe("prepare backward", halves.backward)
    spent: dict[str, float] = {}

    def observed(stage: str, value: Any) -> None:
        observe(f"{stage} backward", value)

    facts = region.sizes.facts() if region.sizes is not None else ()
    program, native, source = _generate(
        halves.backward, settings, observed, spent, frozenset(), owns_inputs=True, facts=facts, prove=prove
    )
    for stage, each in spent.items():
        seconds[f"{stage} backward"] = each
    made = Artifact(
        f"backward of {region.name}", (), tuple(map(Argument, range(len(program.inputs)))), (), (),
        Return(ConstantValue(None)), program, native, source, versions=versions(),
        bodies=_bodies(program, settings, observe, seconds, prove, facts),
    )  # fmt: skip
    return replace(halves.link, artifact=made)


def _bodies(
    program: Program, settings: Settings, observe: Observer, seconds: dict[str, float], prove: bool = False,
    facts: tuple[Size, ...] = (),
) -> dict[str, CompiledBody]:  # fmt: skip
    """The graphs that operators of the program run, compiled, by digest."""
    made: dict[str, CompiledBody] = {}
    for step in program.steps:
        for body in bodies_in(step.args) if isinstance(step, Extern) else ():
            if str(body) not in made:
                made[str(body)] = _compiled_body(body, settings, observe, seconds, prove, facts)
    return made


def _compiled_body(
    body: Body, settings: Settings, observe: Observer, seconds: dict[str, float], prove: bool, facts: tuple[Size, ...]
) -> CompiledBody:
    """Every stage after capture, for a graph that is recorded like a region."""
    settings = replace(
        settings, options=replace(settings.options, freeze=False, passes=type(settings.options.passes)())
    )
    spent: dict[str, float] = {}
    inputs = tuple(map(Argument, range(len(body.parameters))))
    region = Region(f"body {body[:8]}", body.graph, inputs, (), (), (), Return(ConstantValue(None)))

    def observed(stage: str, value: Any) -> None:
        observe(f"{stage} of {region.name}", value)

    with _stage("prepare", spent):
        try:
            functional = prepare(region, settings)
        except GraphBreak as stop:  # tensors on several GPUs
            raise CompileError("prepare", stop.diagnostic.reason) from stop
    observed("prepare", functional)
    program, native, source = _generate(functional, settings, observed, spent, frozenset(), facts=facts, prove=prove)
    for stage, each in spent.items():
        seconds[f"{stage} of bodies"] = seconds.get(f"{stage} of bodies", 0.0) + each
    artifact = Artifact(
        region.name, (), inputs, (), (), Return(ConstantValue(None)), program, native, source,
        derived=functional.derived, versions=versions(),
        bodies=_bodies(program, settings, observe, seconds, prove, facts),
    )  # fmt: skip
    strides = [tuple(each.stride()) for each in body.parameters]
    return CompiledBody(artifact, tuple(each if all(type(step) is int for step in each) else None for each in strides))


def gradient_layouts(
    replay: Replay, wanted: Sequence[int], tangents: Sequence[TangentLayout], sizes: Mapping[str, int]
) -> tuple[GradientLayout | None, ...] | None:
    """How eager would lay out gradients, given tangents laid out so; None where that is not found out."""
    from lampwork.capture.autograd.gradient_layouts import relaid

    try:
        return relaid(replay, wanted, tangents, sizes)
    except Exception:
        if environment.strict:
            raise
        return None  # eager's values in another layout


def relaid_backward(
    half: EagerBackward, values: Sequence[Any], strides: Sequence[Any], device: str, settings: Settings
) -> Artifact:
    """A backward program for inputs that are laid out as `values`, in place of those with these `strides`."""
    from lampwork.graph.relaid import Laid

    inputs, expected = [], []
    for value, wanted in zip(values, strides, strict=True):
        if not isinstance(value, torch.Tensor):
            inputs.append(value)
            expected.append(value)
            continue
        shape, about = tuple(value.shape), (value.dtype, value.device)
        inputs.append(Laid(shape, tuple(value.stride()), *about))
        expected.append(Laid(shape, tuple(wanted), *about))
    seconds: dict[str, float] = {}
    with _stage("prepare", seconds), uninterrupted():
        functional = prepare_relaid(half, inputs, expected, device, settings, _passes_of_the_user(settings))
    program, native, source = _generate(
        functional, settings, lambda stage, value: None, seconds, frozenset(), owns_inputs=True
    )
    return Artifact(
        "backward", (), tuple(map(Argument, range(len(program.inputs)))), (), (), Return(ConstantValue(None)),
        program, native, source, versions=versions(), compile_seconds=seconds,
        bodies=_bodies(program, settings, lambda stage, value: None, seconds),
    )  # fmt: skip


def _generate(
    functional: FunctionalGraph,
    settings: Settings,
    observe: Observer,
    seconds: dict[str, float],
    weights: frozenset[int],
    sizes: SymbolicSizes | None = None,
    owns_inputs: bool = False,
    facts: tuple[Size, ...] = (),
    prove: bool = False,
    region: Region | None = None,
) -> tuple[Program, NativeCode, str]:
    """Every stage after the graph: program, machine code and host function. `sizes`: what it takes for granted of
    those that contents decide is checked. `facts`: what guards say of sizes. Where these are symbols, loads and stores
    are proved to be inside of their buffers; with `prove` where they are numbers, too. `weights` and `owns_inputs`: as
    for `host_source`. `region`: whose versions the program gives to what it writes and makes."""
    target = target_of(functional.device)
    with _stage("lower", seconds):
        if sizes is not None:
            sizes.settle()
        lowered = lower(functional, settings)
        if sizes is not None:
            # Sizes that this half does not find are those of nothing that is left (`graph/found_sizes.py`).
            gone = sizes.contents.keys() - lowered.found.keys()
            lowered = replace(lowered, assumed=tuple(each for each in sizes.assumed() if gone.isdisjoint(each.names)))
            facts = sizes.facts()
    _verify_lowered(lowered)
    observe("lower", lowered)
    tuner = _tuner(settings, target, functional.device)
    with _stage("schedule", seconds):
        program = schedule(lowered, settings, target, tuner.choose if tuner is not None else None)
    if region is not None:
        program = replace(
            program,
            raised=region.raised,
            versions=region.versions,
            separate=region.separate,
            detached=region.detached,
            inference=region.inference,
        )
    if settings.options.passes.fused:
        from lampwork.passes.run import run_over_program

        program = run_over_program(settings.options.passes.fused, program, facts)
    if (program.sizes or prove) and not environment.verify:  # the verifier proves that, too
        with _stage("prove", seconds):
            from lampwork.ir.kernel_verify import prove_program

            prove_program(program, facts, prove)
    _verify_program(program, facts)
    observe("schedule", program)
    with _stage("generate", seconds):
        native = generate(program, settings, target, tuner)
    if tuner is not None:
        _count_tuning(tuner, seconds)
    observe("generate", native)
    with _stage("host", seconds):
        source = host_source(program, native, weights, owns_inputs, environment.poison)
    observe("host", source)
    return program, native, source


def _passes_of_the_user(settings: Settings) -> UserPasses:
    """The user's passes of a stage over graphs, each with a verifier after it."""
    if not settings.options.passes:
        return lambda stage: ()
    from lampwork.passes.run import over_graphs

    return partial(over_graphs, settings.options.passes)


def _undifferentiated(region: Region) -> RunEagerly:
    """Why the results of a region that require grad are computed by eager."""
    if isinstance(region.outcome, Continue):
        reason = region.outcome.reason
        return RunEagerly(reason.id, reason.reason, reason.location, reason.remedy, is_break=True)
    why = region.undifferentiated
    if why is None:
        return NEEDS_GRAD
    return RunEagerly(why.id, why.reason, why.location, why.remedy)


def _guards(region: Region) -> tuple[Guard, ...]:
    """The region's guards, those on sizes as they are by now among them."""
    return region.guards if region.sizes is None else (*region.guards, *region.sizes.guards())


def _tuner(settings: Settings, target: Target, device: str) -> Any:
    """What measures on the device for the modes that take the fastest; CPU programs are not tuned. Tuning may put a
    product of ours in place of the vendor's: not where numbers are to be eager's."""
    backend = backend_of(device)
    if backend.tuner is None or settings.options.exact or not settings.mode.startswith("max-autotune"):
        return None
    return make_tuner(target, backend.launching.measure(device))


def _count_tuning(tuner: Any, seconds: dict[str, float]) -> None:
    """Tuning happens while programs are scheduled and generated; it is a line of its own."""
    seconds["tune"] = tuner.choosing_seconds + tuner.tiling_seconds
    seconds["schedule"] -= tuner.choosing_seconds
    seconds["generate"] -= tuner.tiling_seconds


RAISES = RunEagerly(
    "exception",
    "the program raises an exception",
    remedy="Look at the exception: it is the program's own. A program that catches its exceptions is compiled whole.",
)
NEEDS_GRAD = RunEagerly(
    "needs-grad",
    "a result of this call requires grad, and the region is not differentiated",
    remedy="Run inference under torch.no_grad() or torch.inference_mode().",
)


def target_of(device: str) -> Target:
    """The machine that programs on `device` ("cpu", "cuda:1") are compiled for.

    Raises `CompileError` for a GPU that no kernels are generated for.
    """
    return backend_of(device).target_of(device)


def _outcome_of(stop: GraphBreak) -> RunEagerly:
    diagnostic = stop.diagnostic
    return RunEagerly(diagnostic.id, diagnostic.reason, diagnostic.location, diagnostic.remedy, is_break=True)


def _broken_artifact(function: Callable, stop: GraphBreak, seconds: dict[str, float]) -> Artifact:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return _artifact_without_program(name, stop.guards or (), {}, _outcome_of(stop), seconds)


def _eager_artifact(region: Region, outcome: RunEagerly, seconds: dict[str, float]) -> Artifact:
    """An entry that runs eagerly while the region's guards hold, so that the call is not captured again and again."""
    return _artifact_without_program(region.name, _guards(region), dict(region.code_digests), outcome, seconds)


def _artifact_without_program(
    name: str, guards: tuple[Guard, ...], code_digests: dict[str, str], outcome: RunEagerly, seconds: dict[str, float]
) -> Artifact:
    return Artifact(
        name=name,
        guards=guards,
        inputs=(),
        objects=(),
        effects=(),
        outcome=outcome,
        program=Program((), {}, {}, (), (), ()),
        native=NativeCode(b"", (), (), (), ()),
        host_source="",
        code_digests=code_digests,
        versions=versions(),
        compile_seconds=seconds,
    )


@contextmanager
def _stage(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Times a stage; any exception that is not ours becomes a `CompileError` that names the stage."""
    start = time.perf_counter()
    try:
        yield
    except (GraphBreak, CompileError):
        raise
    except LampworkError:
        raise
    except Exception as error:
        raise CompileError(name, f"{type(error).__name__}: {error}") from error
    finally:
        seconds[name] = time.perf_counter() - start
    run_pending()
    give_way()


def _verify_lowered(lowered: Any) -> None:
    if environment.verify:
        from lampwork.ir.verify import verify_lowered

        verify_lowered(lowered)


def _verify_program(program: Any, facts: tuple[Size, ...]) -> None:
    """All invariants under LAMPWORK_VERIFY=1; else that the program reads what it wrote."""
    if environment.verify:
        from lampwork.ir.kernel_verify import verify_program

        verify_program(program, facts)
        return
    wrong = read_before_written(program)
    if wrong:
        raise CompileError("verify", wrong)
