"""Who is to blame for wrong numbers: the calls are made again, each run of each program is judged, and of the first
wrong one the pass is found by bisecting its stages, then the operator or the kernel.

A program is right if it gives what its graph gives, as it was captured, run by torch. Where all programs are right and
the call is not, capture or what stands around the programs is to blame: the operators that eager runs are compared
with those of the graphs.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

import torch

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.config import Settings
from lampwork.debug.interpret.steps import Steps
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.location import Location, Origin
from lampwork.ir.record import record
from lampwork.ir.region import AliasOfInput, FunctionalGraph, RunEagerly
from lampwork.lower.rules import rule_of
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.launch.host import Host
from lampwork.runtime.observer import Run
from lampwork.schedule.copies import written_out
from lampwork.verification import operators
from lampwork.verification.eager import Beside64, Noted, Rounded
from lampwork.verification.hazards import hazard_of_group, hazard_of_nest
from lampwork.verification.judge import Allowed, Difference, differences
from lampwork.verification.kernels import wrong_kernel
from lampwork.verification.lowering import wrong_rule
from lampwork.verification.operators import Found
from lampwork.verification.passes import Half, Observed, Watch
from lampwork.verification.stages import Chain, Stage, backward_chain, forward_chains, scheduled_items
from lampwork.verification.values import Run as Left
from lampwork.verification.values import run_on

#: Runs of a graph that are off by roundings.
ROUNDED = 2

#: Where passes are written, for those that are no function of a graph.
FILES: dict[str, tuple[str, ...]] = {
    "functionalize": ("graph/functionalize.py", "graph/views.py", "graph/in_place.py", "graph/result_layouts.py"),
    "rematerialise": ("graph/whole_step.py", "graph/recompute.py", "graph/min_cut.py"),
    "partition": ("graph/partition.py", "graph/recompute.py", "graph/min_cut.py"),
    "levels": ("schedule/dependences.py", "schedule/levels.py"),
    "split": ("schedule/split.py", "schedule/cascade.py"),
    "inline": ("schedule/inline.py",),
    "fuse": ("schedule/fuse.py", "schedule/group.py"),
    "kernels": (
        "schedule/build.py", "schedule/segment.py", "schedule/arrange.py", "schedule/loops.py", "schedule/masks.py",
        "schedule/regions.py", "schedule/horizontal.py",
    ),
    "in_place": ("schedule/in_place.py",),
    "places": ("schedule/plan.py",),
    "kernel": ("codegen/llvm",),
    "host": ("codegen/host.py", "codegen/host_steps.py", "codegen/host_expressions.py", "runtime/launch"),
    "capture": ("capture", "fakes"),
    "guards": ("capture/outside", "runtime/guards", "fakes/solving.py"),
    "effects": ("capture/leave", "runtime/leave", "runtime/autograd"),
    "memory": ("runtime/launch",),
}  # fmt: skip

#: In words, for those whose names do not say it.
WORDS = {
    "levels": "the order of loop nests",
    "split": "reductions cut into pieces",
    "inline": "producers inlined",
    "fuse": "fusion",
    "kernels": "kernels written",
    "in_place": "memory shared between buffers",
    "places": "buffers placed in memory",
    "kernel": "machine code of one kernel",
    "host": "the function that runs the kernels",
    "capture": "the graph as captured",
    "guards": "guards: an entry served a call that it was not made for",
    "effects": "what is made of the program's results",
    "memory": "memory of a result is taken for another",
}


@record
class Blame:
    """`stage`: of the pipeline ("capture", "graph", "lower", "schedule", "generate", "host", "effects"). `name`: the
    pass within. `half`: of which program, where a call is differentiated. `files`: where it is written, below
    `lampwork/`. `origin`: the first operator that diverges, with its line. `kernel`: what computes it, if one does.
    `what`: the wrong numbers there. `bisected`: each stage that was run, and whether it was right."""

    stage: str
    name: str
    files: tuple[str, ...]
    what: str
    half: str = ""
    origin: Origin | None = None
    kernel: str = ""
    function: str = ""
    bisected: tuple[tuple[str, bool], ...] = ()

    @property
    def where(self) -> str:
        """The source line, as file:line; empty where none is known."""
        location = self.origin.location if self.origin is not None else Location()
        return f"{location.file}:{location.line}" if location.file else ""

    def __str__(self) -> str:
        half = f" of the {self.half} half" if self.half and self.half != "joint" else ""
        stage = self.stage if self.name in (self.stage, "") else f"{self.stage}: {self.name}"
        words = f" ({WORDS[self.name]})" if self.name in WORDS else ""
        return f"{stage}{words}{half}, in lampwork/{self.files[0]}" if self.files else f"{stage}{words}{half}"

    def to_dict(self) -> dict[str, object]:
        origin = self.origin or Origin("", "")
        return {
            "stage": self.stage, "pass": self.name, "half": self.half, "files": list(self.files), "what": self.what,
            "operator": origin.op, "node": origin.node, "file": origin.location.file, "line": origin.location.line,
            "module": origin.location.module, "kernel": self.kernel, "function": self.function,
            "bisected": [[name, right] for name, right in self.bisected],
        }  # fmt: skip


@record(frozen=False)
class _Ran:
    """One run of a program: the values of its inputs before, and the random numbers that came next. `results`: each
    tensor that it gave, with its version and numbers then."""

    observed: Observed
    values: list[Any]
    state: torch.Tensor
    results: list[tuple[torch.Tensor, int, torch.Tensor]] = field(default_factory=list)


@record(frozen=False)
class Judging:
    """What runs while calls are made again. `blames`: what was found, the first wrong run alone. `served`: the entries
    that ran in the call, `ran`: what their programs went through, where it is kept. Without `judges` programs run, and
    nothing else does: judging uses memory, too."""

    settings: Settings
    say: Callable[[str], object] = lambda text: None
    judges: bool = True
    blames: list[Blame] = field(default_factory=list)
    number: int = 0
    compiled_at: dict[int, int] = field(default_factory=dict)
    served: list[Observed] = field(default_factory=list)
    ran: list[_Ran] = field(default_factory=list)
    eagerly: list[Diagnostic] = field(default_factory=list)
    keep: bool = False

    def begin(self, number: int) -> None:
        """Call `number` begins."""
        self.number, self.ran, self.served = number, [], []

    def is_late(self) -> bool:
        """Whether an entry served the call that an earlier one was compiled for."""
        return any(self.compiled_at.get(id(each), self.number) < self.number for each in self.served)

    def overwritten(self) -> bool:
        """Whether a result of a program holds other numbers now, though nobody wrote to it that autograd knows of."""
        return any(
            tensor._version == version and differences({"value": tensor}, Allowed({"value": before}, {}))
            for ran in self.ran
            for tensor, version, before in ran.results
        )


class Observer:
    """Stands for the machine code of every entry that is made: the code runs, and then each stage is judged."""

    needs_stages = True

    def __init__(self, judging: Judging, watch: Watch) -> None:
        self.judging, self.watch = judging, watch

    def compile(self, compiled: CompiledFunction, args: tuple, kwargs: Mapping[str, object]) -> _Compile:
        self.watch.begin_compile()
        return _Compile(self, compiled.name)

    def loaded(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        """There is none while programs are judged."""

    def recompiled(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        """Entries are judged as they run."""

    def fell_back(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        self.judging.eagerly.append(why)


class _Compile:
    def __init__(self, observer: Observer, name: str) -> None:
        self.observer, self.name = observer, name

    def stage(self, name: str, value: object) -> None:
        self.observer.watch.see(name, value)

    def finished(self, artifact: Artifact, seconds: float) -> tuple[Run, Run | None] | None:
        observed = self.observer.watch.observed
        if isinstance(artifact.outcome, RunEagerly) or observed.region is None or observed.recorded is None:
            return None
        observed.artifact = artifact
        judging = self.observer.judging
        judging.compiled_at[id(observed)] = judging.number
        forward = _Judged(judging, observed, artifact, self.name, backward=False)
        link = artifact.backward
        if link is None or link.artifact is None:
            return forward, None
        return forward, _Judged(judging, observed, link.artifact, self.name, backward=True)


class _Judged:
    """Runs a program as its entry would, then judges all that it went through."""

    def __init__(self, judging: Judging, observed: Observed, artifact: Artifact, name: str, backward: bool) -> None:
        self.judging, self.observed, self.name, self.backward = judging, observed, name, backward
        self.host = Host(artifact)
        self.count = len(artifact.inputs)

    def __call__(self, values: Sequence[Any], generation: object = None) -> Sequence[object]:
        judging = self.judging
        before: list[Any] = []
        ran: _Ran | None = None
        if not judging.blames:
            before = _copies(list(values)[: self.count])
            if not self.backward:
                judging.served.append(self.observed)
                if judging.keep:
                    ran = _Ran(self.observed, before, torch.get_rng_state())
                    judging.ran.append(ran)
        results = self.host.call(values, generation)
        if ran is not None:
            ran.results = _as_now(results, values)
        if judging.judges and not judging.blames:
            with _own_random_numbers():
                blame = self.blame(before)
            if blame is not None:
                judging.blames.append(replace(blame, function=self.name))
        return results

    def blame(self, values: list[Any]) -> Blame | None:
        chains: Iterator[Chain | None]
        if self.backward:
            chains = iter([backward_chain(self.observed, values)])
        else:
            chains = forward_chains(self.observed, values)
        for chain in chains:
            if chain is None:
                continue
            found = blame_chain(chain, self.judging.settings, self.judging.say)
            if found is not None:
                return found
        return None


def _as_now(results: Sequence[object], inputs: Sequence[object]) -> list[tuple[torch.Tensor, int, torch.Tensor]]:
    """Results in memory of their own."""
    held = {_torch.storage_key(each) for each in inputs if isinstance(each, torch.Tensor)}
    own = [each for each in results if isinstance(each, torch.Tensor) and not each.is_inference()]
    tensors = [each.detach() for each in own if _torch.storage_key(each) not in held]
    return [(each, each._version, each.clone()) for each in tensors]


def _copies(values: list[Any]) -> list[Any]:
    from lampwork.debug.interpret.inputs import copies

    return copies(values)


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def judged(judging: Judging) -> Iterator[Observer]:
    """An observer for a `CompiledFunction`; passes are watched meanwhile, in the whole process."""
    watch = Watch()
    with watch.standing_in():
        yield Observer(judging, watch)


# One run of one program -----------------------------------------------------------------------------------------------


def allowed_in(chain: Chain) -> Allowed | None:
    """What the chain's graph gives; None where it cannot be run by itself."""
    call = lambda inputs: chain.expected(inputs, False)
    try:
        expected = run_on(chain.values, call)
    except Exception:  # the program's own error, or an operator that needs more than the graph says
        return None
    mode = Beside64()
    wide = run_on(chain.values, call, mode)
    rounded = []
    for seed in range(ROUNDED):
        try:
            rounded.append(dict(run_on(chain.values, call, Rounded(seed)).leaves()))
        except (RuntimeError, ValueError, IndexError):
            continue
    return Allowed(dict(expected.leaves()), {name: mode.of(value) for name, value in wide.leaves()}, rounded)


def blame_chain(chain: Chain, settings: Settings, say: Callable[[str], object] = lambda text: None) -> Blame | None:
    """What is to blame for the last stage being wrong; None where it is right."""
    allowed = allowed_in(chain)
    if allowed is None or not chain.stages:
        return None
    judged: dict[int, Difference | None] = {}

    def wrong(place: int) -> Difference | None:
        if place not in judged:
            say(f"running {chain.stages[place].name}")
            judged[place] = _judge_stage(chain.stages[place], chain, allowed)
        return judged[place]

    last = len(chain.stages) - 1
    if wrong(last) is None and (chain.half != "joint" or all(wrong(place) is None for place in range(last))):
        return None
    first = _first_wrong(last, wrong)
    what = judged[first]
    assert what is not None
    bisected = tuple((chain.stages[place].name, judged[place] is None) for place in sorted(judged))
    return _explained(chain, first, what, settings, bisected)


def _first_wrong(last: int, wrong: Callable[[int], Difference | None]) -> int:
    """The first wrong stage, where those after it are wrong as well."""
    if wrong(last) is None:  # of a joint graph some pass is wrong and what follows is not
        return next(place for place in range(last + 1) if wrong(place) is not None)
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if wrong(middle) is None:
            low = middle + 1
        else:
            high = middle
    return high


def _judge_stage(stage: Stage, chain: Chain, allowed: Allowed) -> Difference | None:
    try:
        left: Left = run_on(chain.values, stage.run)
    except Exception as error:
        return Difference("the run", f"{type(error).__name__}: {error}")
    ours = dict(left.leaves())
    found = [each for each in differences(ours, allowed) if each.what != "eager has none"]
    if found:
        return found[0]
    return None


def _explained(
    chain: Chain, place: int, what: Difference, settings: Settings, bisected: tuple[tuple[str, bool], ...]
) -> Blame:
    stage = chain.stages[place]
    kind, _, name = stage.name.rpartition(", ")[2].rpartition(": ")
    try:
        found = _first_operator(chain, place, name, settings)
    except Exception:  # what an interpreter does not allow: the stage is named without its operator
        found = None
    if found is None and stage.graph is not None:
        found = _of_result(stage.graph, what)
    elif found is None and chain.part is not None:
        found = _of_result(chain.part.graphs[-1][1], what)
    if name == "kernels" and chain.part is not None:
        name, hazard = _hazard(chain.part)
        if hazard:
            found, what = found and replace(found, what=Difference("", "")), Difference("the loop", hazard)
    text = str(found.what if found is not None and found.what.what else what)
    origin = found.origin if found is not None else None
    kernel = found.kernel if found is not None else ""
    if name == "native":
        kernel_is_wrong = found is not None and bool(found.kernel)
        name = "kernel" if kernel_is_wrong else "host"
        stage_name = "generate" if kernel_is_wrong else "host"
        files = _native_files(chain) if kernel_is_wrong else FILES["host"]
    elif name == "lower":
        stage_name, files = "lower", _lowering_files(origin)
    elif name == "partition" or "graph" in kind:
        stage_name, files = "graph", FILES.get(name) or _pass_files(name)
    else:
        stage_name, files = "schedule", FILES.get(name, ())
    return Blame(stage_name, name, files, text, chain.half, origin, kernel, bisected=bisected)


def _first_operator(chain: Chain, place: int, name: str, settings: Settings) -> Found | None:
    """The first operator of the wrong stage whose value is not what the stage before gives."""
    stage, part = chain.stages[place], chain.part
    if stage.graph is not None:
        before = chain.stages[place - 1].graph if place else None
        derived = before.derived if before is not None else ()
        right = operators.values_of(before.graph if before is not None else chain.graph, chain.values, derived)
        return operators.wrong_node(stage.graph, chain.values, right)
    if part is None or part.lowered is None or part.program is None:
        return None
    functional = part.graphs[-1][1]
    right = operators.values_of(functional.graph, chain.values, functional.derived)
    inputs = [*chain.values]
    derived = functional.derived
    if derived:
        from lampwork.debug.interpret.graphs import prepacked

        inputs += prepacked(derived, chain.values)
    lowered = part.lowered
    if name == "lower":
        if lowered.copies:
            lowered = written_out(lowered, set(range(len(lowered.copies))))
        try:
            found = operators.wrong_item(lowered, None, None, inputs, right)
        except Exception:  # a load outside of its buffer
            found = None
        return wrong_rule(functional, inputs, settings, right, found)
    for each, items, buffers in scheduled_items(part.scheduling, lowered.copies):
        if each == name:
            return operators.wrong_item(lowered, items, buffers, inputs, right)
    for each, steps in part.scheduling.steps:
        if each == name:
            return operators.wrong_step(steps, inputs, right)
    program = part.program
    if name == "places":
        steps = Steps(
            program.kernels, program.steps, program.buffers, program, program.placements, program.arena,
            program.workspace_bytes,
        )  # fmt: skip
        return operators.wrong_step(steps, inputs, right)
    return wrong_kernel(program, settings, inputs)


def _hazard(part: Half) -> tuple[str, str]:
    """The pass that put iterations together which meet in memory, and where; else kernels were written wrongly."""
    scheduling = part.scheduling
    buffers = dict(scheduling.buffers or {})
    for segments in scheduling.passes.values():
        buffers.update(segments.buffers)
    inlined, fused = scheduling.passes.get("inline"), scheduling.passes.get("fuse")
    for nests in inlined.nests.values() if inlined is not None else ():
        for nest in nests:
            hazard = hazard_of_nest(nest, buffers)
            if hazard:
                return "inline", hazard
    for group in fused.groups if fused is not None else ():
        hazard = hazard_of_group(group, buffers)
        if hazard:
            return "fuse", hazard
    return "kernels", ""


def _of_result(functional: FunctionalGraph, what: Difference) -> Found | None:
    """The operator that makes the wrong result."""
    kind, _, number = what.name.partition(" ")
    outputs = next(node for node in functional.graph.nodes if node.op == "output").args[0]
    if kind == "result" and number.isdecimal() and int(number) < len(functional.results):
        result = functional.results[int(number)]
        index = None if isinstance(result, AliasOfInput) else result.index
    else:
        written = dict(functional.writes)
        place = number.partition(" ")[0]
        index = written.get(int(place)) if kind == "input" and place.isdecimal() else None
    if index is None or not isinstance(outputs, (list, tuple)) or not isinstance(outputs[index], torch.fx.Node):
        return None
    return Found(operators.origin_of(outputs[index]), Difference("", ""))


def _pass_files(name: str) -> tuple[str, ...]:
    """Where a pass of the graph stage is written."""
    for module, loaded in sys.modules.copy().items():
        if module.startswith("lampwork.graph.") and getattr(vars(loaded).get(name), "__module__", "") == module:
            return (module.removeprefix("lampwork.").replace(".", "/") + ".py",)
    return ("graph",)


def _lowering_files(origin: Origin | None) -> tuple[str, ...]:
    """Where the rule of the operator is written, and what all rules are made of."""
    rule = rule_of(origin.op) if origin is not None else None
    own = (rule.__module__.removeprefix("lampwork.").replace(".", "/") + ".py",) if rule is not None else ()
    return tuple(
        dict.fromkeys((*own, "lower/nests.py", "lower/expressions.py", "lower/promotion.py", "lower/lower.py"))
    )


def _native_files(chain: Chain) -> tuple[str, ...]:
    device = chain.part.program.device if chain.part is not None and chain.part.program is not None else "cpu"
    return FILES["kernel"] if backend_of(device).is_host else ("codegen/triton",)


# Around the programs --------------------------------------------------------------------------------------------------


def blame_capture(judging: Judging, eager: Callable[[Noted], object], number: int, what: str) -> Blame:
    """Where all programs are right: the first operator that eager runs in call `number`, and the graphs do not, or
    with other numbers; else guards, or what is made of the results. `eager` makes the call in the mode given."""
    theirs: list[tuple[str, Any]] = []

    def note(op: Any, results: list[Any]) -> None:
        tensors = [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in results]
        theirs.append((str(op), tensors[0] if tensors else None))

    eager(Noted(note))
    ours: list[tuple[str, Any, Origin]] = []
    with _own_random_numbers():
        for ran in judging.ran:
            torch.set_rng_state(ran.state)
            _note_graph(ran, ours)
    found = _first_other(theirs, ours)
    late = judging.is_late()
    if found is not None:
        origin, text = found
        name = "guards" if late else "capture"
        return Blame("capture", name, FILES[name], text, origin=origin)
    return blame_guards(judging, what) if late else Blame("effects", "effects", FILES["effects"], what)


def blame_guards(judging: Judging, what: str) -> Blame:
    """Where an entry that was compiled for an earlier call served a call that is right alone. `what`: the wrong numbers
    of the call."""
    text = judging.blames[0].what if judging.blames else what
    return Blame(
        "capture", "guards", FILES["guards"], text, origin=judging.blames[0].origin if judging.blames else None
    )


def blame_memory(what: str) -> Blame:
    """Where a result was right when its program ended, and is not when the call does."""
    return Blame("host", "memory", FILES["memory"], what)


def _note_graph(ran: _Ran, ours: list[tuple[str, Any, Origin]]) -> None:
    from lampwork.debug.interpret.inputs import copies
    from lampwork.verification.stages import tangents

    graph = ran.observed.recorded
    nodes = {node.name: node for node in graph.nodes}

    def note(name: str, value: Any) -> None:
        if nodes[name].target is _torch.getitem:
            return  # no operator, which eager does not run
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        kept = first.detach().clone() if isinstance(first, torch.Tensor) else first
        ours.append((str(nodes[name].target), kept, operators.origin_of(nodes[name])))

    region = ran.observed.region
    given = tangents(graph, ran.values) if region is not None and region.joint is not None else []
    try:
        operators.Noting(graph, copies([*ran.values, *given]), note).run()
    except Exception as error:  # what was captured is not this call's
        ours.append((f"{type(error).__name__}: {error}", None, Origin("", "")))


def _first_other(
    theirs: Sequence[tuple[str, Any]], ours: Sequence[tuple[str, Any, Origin]]
) -> tuple[Origin, str] | None:
    """The first operator of the graphs that eager has otherwise."""
    names = [name for name, _ in theirs], [name for name, _, _ in ours]
    matcher = difflib.SequenceMatcher(None, *names, autojunk=False)
    for kind, low, high, start, end in matcher.get_opcodes():
        if kind == "equal":
            for (name, expected), (_, value, origin) in zip(theirs[low:high], ours[start:end]):
                what = "" if name.startswith(_UNSET) else _other_value(expected, value)
                if what:
                    return origin, f"{name}: {what}"
        elif kind != "insert" or end < len(ours):  # what follows eager's last operator takes gradients
            origin = ours[min(start, len(ours) - 1)][2] if ours else Origin("", "")
            there, here = (", ".join(each[:4]) or "nothing" for each in (names[0][low:high], names[1][start:end]))
            return origin, f"eager runs {there} where the graph has {here}"
    return None


#: Operators whose numbers are whatever was in memory.
_UNSET = ("aten.empty", "aten.new_empty")


def _other_value(expected: Any, value: Any) -> str:
    if not isinstance(expected, torch.Tensor) or not isinstance(value, torch.Tensor):
        return ""
    if expected.shape != value.shape or expected.dtype != value.dtype:
        return f"{value.dtype}{list(value.shape)} instead of {expected.dtype}{list(expected.shape)}"
    found = differences({"value": value}, Allowed({"value": expected}, {}))
    return found[0].what if found else ""
