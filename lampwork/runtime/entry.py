"""`Entry`: an artifact made ready to serve calls in this process, as one generated function.

    serve(function, args, kwargs) -> the call's result | MISS when a guard does not hold

The function checks the guards, runs the host program, makes what effects and result hold, applies the effects and
returns. It raises `Rerun` when any of these fails before something is written that the caller can see; every other
exception is the call's own.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from lampwork.backends import backend_of
from lampwork.config import Settings, environment
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.differentiation import Backward
from lampwork.ir.program import Extern, FromInput, Launch, Program
from lampwork.ir.region import Continue, Raise, RunEagerly
from lampwork.ir.source import Source, is_lasting
from lampwork.runtime.generated import run_text
from lampwork.runtime.guards.compile import compile_check, explain_failure
from lampwork.runtime.guards.interpreter import tensor_extent_bytes
from lampwork.runtime.guards.memory_words import compare, supported
from lampwork.runtime.guards.static import Split, StaticGuards
from lampwork.runtime.launch.host import Host, Rerun
from lampwork.runtime.launch.old_gradients import OldGradients, unread_inputs
from lampwork.runtime.leave import post_graph  # noqa: F401  (what entries call by name)
from lampwork.runtime.leave.reconstruction import TemplateWriter, sources_of
from lampwork.runtime.locks import under_locks

if TYPE_CHECKING:
    from lampwork.runtime.graphs.cuda_capture import CudaDevice
    from lampwork.runtime.graphs.cuda_graphs import GraphRunner
    from lampwork.runtime.graphs.sized_graphs import SizedGraphs
    from lampwork.runtime.graphs.training_graphs import TrainingGraphs

MISS = object()

#: Runs a call eagerly and counts it as a fall-back for the reason given.
Eagerly = Callable[[Diagnostic, bool, tuple, dict], Any]
#: Is told of something that eager did in place of the entry, and of the seconds that it took.
FellBack = Callable[[Diagnostic, float], None]

#: Modes that replay CUDA graphs, and when.
When = Literal["always", "auto"]
GRAPHS: dict[str, When] = {
    "default": "auto",
    "reduce-overhead": "always",
    "max-autotune": "always",
}

#: Runs a graph: (values of its inputs, a generation as `Host.call` takes it) -> its results.
Run = Callable[..., Sequence[Any]]


def graph_device(name: str) -> CudaDevice | None:
    """What CUDA graphs need of the device "cuda:0"; None for other devices."""
    return backend_of(name).launching.graphs(name)


class _Head:
    """The first lines of an entry's function: all guards checked, `values` read.

    Guards on the call come first; then one native comparison stands for the static ones (see
    `runtime/guards/static.py`).
    """

    def __init__(self, artifact: Artifact, reads: Sequence[Source], unread: frozenset[int]) -> None:
        """`unread`: those of `reads` whose values stay None."""
        split = Split(artifact.guards)
        wanted = [(index, source) for index, source in enumerate(reads) if index not in unread]
        call_reads = [(index, source) for index, source in wanted if not split.is_static(source)]
        static_reads = [(index, source) for index, source in wanted if split.is_static(source)]
        crossing = [*split.different, *split.disjoint]
        check = compile_check(split.call, [*(source for _, source in call_reads), *crossing])
        self.names: dict[str, Any] = {"check": check}
        self.lines = ["values = check(function, args, kwargs)", "if values is None: return MISS"]
        self.static: StaticGuards | None = None
        if not split.static and not static_reads:
            if unread:
                found = {index: f"call[{position}]" for position, (index, _) in enumerate(call_reads)}
                texts = [found.get(index, "None") for index in range(len(reads))]
                self.lines = ["call = check(function, args, kwargs)", "if call is None: return MISS"]
                self.lines += [f"values = [{', '.join(texts)}]", "call = None"]
            return
        positions = [index for index, _ in static_reads]
        accessed = artifact.accessed
        # What is derived from weights, which no step reads or writes, is kept as long as they stay. Gradients never do.
        weights = [
            source for index, source in static_reads if (index in accessed or artifact.derived) and is_lasting(source)
        ]
        self.static = StaticGuards(
            split.static, [each for _, each in static_reads], positions, len(reads), split.others, weights
        )
        self.names |= {
            "static": self.static,
            "compare": compare() if supported() else None,
            "extent": tensor_extent_bytes,
        }
        self.lines = [
            "call = check(function, args, kwargs)",
            "if call is None: return MISS",
            "state = static.state",
            f"if state is None{' or compare(state.address)' if supported() else ' or True'}:",
            "    state = static.refresh(function)",
            "    if state is None: return MISS",
        ]
        for position, _ in enumerate(split.different, len(call_reads)):
            self.lines.append(f"if id(call[{position}]) in state.ids: return MISS")
        own = "".join(f"id(call[{position}]), " for position, _ in enumerate(split.different, len(call_reads)))
        passed = ""
        for position, _ in enumerate(split.disjoint, len(call_reads) + len(split.different)):
            self.lines.append(f"place{position} = (call[{position}].data_ptr(), extent(call[{position}]))")
            self.lines.append(f"if not state.disjoint(*place{position}): return MISS")
            passed += f"place{position}, "
        self.lines.append(f"values = state.values if state.whole else state.now(function, ({passed}), ({own}))")
        self.lines.append("if values is None: return MISS")
        if call_reads:
            self.lines.append("values = values.copy()")
            self.lines += [f"values[{index}] = call[{position}]" for position, (index, _) in enumerate(call_reads)]
            self.lines += ["call = None"] * bool(unread)  # nothing keeps what they were found not to overlap

    def look_ahead(self, function: Callable) -> None:
        """Checks the static guards, so that the first call finds them checked. What fails here fails there again."""
        if self.static is not None:
            with suppress(Exception):
                self.static.refresh(function)

    def holds(self, names: dict[str, Any]) -> Callable[[object, tuple, dict], bool]:
        body = "".join(f"    {line}\n" for line in [*failing_as("guards", self.lines), "return True"])
        source = f"def holds(function, args, kwargs):\n{body}"
        if environment.verify:
            from lampwork.ir.text import verify_text

            verify_text(source, names)
        run_text(source, "<lampwork guards>", names)
        inner = names.pop("holds")
        return lambda function, args, kwargs: inner(function, args, kwargs) is True


def failing_as(stage: str, lines: Sequence[str]) -> list[str]:
    """`lines`, with what goes wrong in them raised as a `Rerun` of that stage."""
    if not lines:
        return []
    inside = [f"    {line}" for line in lines]
    failing = ["except Rerun:", "    raise", "except Exception as error:", f"    raise Rerun({stage!r}) from error"]
    return ["try:", *inside, *failing]


def _runs_again(program: Program) -> bool:
    """Whether a program that has run may run another time, as eager: it wrote and drew nothing, and called nothing that
    may have done so."""
    return not program.written_inputs and not any(
        isinstance(step, Extern)
        and (step.draws or step.mutates or not step.op.startswith(("aten::", "prims::", "lampwork::")))
        for step in program.steps
    )


class Entry:
    """Guards and program of one artifact, ready to run. Immutable; safe to call from many threads at once.

    Raises `LookupError` when this process does not have what the artifact names (a module that is not loaded, a
    function whose code changed).
    """

    def __init__(
        self,
        artifact: Artifact,
        eagerly: Eagerly,
        run: Run | None = None,
        mode: str = "max-autotune-no-cudagraphs",
        break_point: Callable[[Continue], tuple[Callable, Callable | None]] | None = None,
        fell_back: FellBack = lambda diagnostic, seconds: None,
        run_backward: Run | None = None,
        exact: Settings | None = None,
        made_for: Callable | None = None,
    ) -> None:
        """`run`: what runs the graph in place of the artifact's program (a foreign back end, an interpreter), and
        `run_backward` in place of that of its backward pass. `mode`: see `config`.
        `break_point`: for regions that end at a break, as `CompiledFunction.break_point`. `fell_back`: for backward
        passes, as `CompiledFunction.fell_back`. `exact`: with which settings backward programs for other layouts are
        compiled; None: tangents are copied. `made_for`: the function whose call waits for the entry. Its
        static guards are checked while LLVM may still emit the machine code.
        """
        self.fell_back = fell_back
        self.exact = exact
        self.artifact = artifact
        self.host: Host | None = None
        self.backward: Host | None = None
        self.graphs: GraphRunner | TrainingGraphs | SizedGraphs | None = None
        if isinstance(artifact.outcome, RunEagerly):
            self.serve = self._eager_entry(artifact.outcome, eagerly)
            return
        backend_of(artifact.program.device).launching.ready(artifact.program.device)
        templates = sources_of(artifact.objects, artifact.effects, artifact.outcome, artifact.host_calls)
        unread = unread_inputs(artifact, templates) if run is None else frozenset()
        known = {id(source) for source in artifact.inputs}
        reads = (*artifact.inputs, *(source for source in templates if id(source) not in known))
        head = _Head(artifact, reads, unread)
        if made_for is not None:
            head.look_ahead(made_for)
        places = {id(source): f"values[{index}]" for index, source in reversed(list(enumerate(reads)))}
        kept = frozenset(
            index for index, result in enumerate(artifact.program.results) if isinstance(result, FromInput)
        )
        writer = TemplateWriter(artifact.objects, places, kept)
        made, end = writer.write(artifact.effects, artifact.outcome)
        self._holders: list[weakref.ref[Host]] = head.static.holders if head.static is not None else []
        if run is None:
            self.host = self._new_host(artifact)
            run = self.host.call
            when = GRAPHS.get(mode)
            device = graph_device(artifact.program.device) if when is not None else None
            if artifact.backward is not None:
                run = self._differentiated(artifact.backward, run, when, device)
            elif when is not None and device is not None:
                from lampwork.runtime.graphs.cuda_graphs import GraphRunner

                host = self.host
                planned = (host.captured_bytes, host.allocated_bytes)

                def runner() -> GraphRunner:
                    return GraphRunner(
                        artifact, lambda: self._new_host(artifact).call, when, device, *planned, host.release
                    )

                self.graphs = self._graphs(run, runner)
                run = self.graphs.call
        elif artifact.backward is not None:
            from lampwork.runtime.autograd.differentiate import Differentiated

            run = Differentiated(artifact, run, run_backward, self.fell_back).call
        values = "values" if len(reads) == len(artifact.inputs) else f"values[:{len(artifact.inputs)}]"
        generation = ", state.generation" if head.static is not None and self.host is not None else ""
        namespace = {**head.names, "run": run, "MISS": MISS, "Rerun": Rerun, **writer.constants}
        around = OldGradients(artifact, unread, places).around(f"results = run({values}{generation})", namespace)
        if len(around) == 1 and self.host is not None and _runs_again(artifact.program):
            made = failing_as("result", made)
        if artifact.host_calls:
            from lampwork.runtime.launch.host_calls import around_host_calls

            around, made = around_host_calls(artifact, writer, places, [*around, *made]), []
            namespace |= writer.constants
        lines = [*failing_as("guards", head.lines), *around, *made, *end]
        self.source = "def serve(function, args, kwargs):\n" + "".join(f"    {line}\n" for line in lines)
        drive: Callable | None = None
        if isinstance(artifact.outcome, Continue):
            if break_point is None:
                raise LookupError("the entry ends at a break, and nothing goes on from there")
            namespace["leave"], drive = break_point(artifact.outcome)
        elif isinstance(artifact.outcome, Raise):
            from lampwork.runtime.leave.user_frames import raise_it

            namespace["leave"] = raise_it
        if environment.verify:
            from lampwork.ir.text import verify_text

            verify_text(self.source, namespace)
        run_text(self.source, f"<lampwork entry {artifact.name}>", namespace)
        serve = self.serve = namespace["serve"]
        if drive is not None:
            self.serve = functools.partial(drive, serve)
        self.holds = head.holds(namespace)
        if artifact.locks:
            self.serve = under_locks(artifact.locks, self.holds, serve, MISS)

    def _new_host(self, artifact: Artifact) -> Host:
        host = Host(artifact)
        self._holders.append(weakref.ref(host))
        return host

    def _graphs(self, plain: Callable, make: Callable[[], object]) -> Any:
        """CUDA graphs for the program, for each combination of sizes where these vary."""
        if not self.artifact.program.sizes:
            return make()
        from lampwork.runtime.graphs.sized_graphs import SizedGraphs

        return SizedGraphs(self.artifact, plain, make)

    def _differentiated(self, link: Backward, forward: Run, when: When | None, device: CudaDevice | None) -> Run:
        """Runs the forward program with a history that leads to the backward one."""
        from lampwork.runtime.autograd.differentiate import Differentiated

        if link.artifact is not None:
            self.backward = self._new_host(link.artifact)
        backward = self.backward.call if self.backward is not None else None
        graphs: TrainingGraphs | SizedGraphs | None = None
        if when is not None and device is not None and link.joint.outputs:
            from lampwork.runtime.graphs.training_graphs import TrainingGraphs

            assert self.host is not None
            planned = (self.host.captured_bytes, self.backward.captured_bytes if self.backward is not None else 0)
            allocated = self.host.allocated_bytes[1]
            hosts = [host for host in (self.host, self.backward) if host is not None]

            def give_back() -> None:
                for host in hosts:
                    host.release()

            graphs = self.graphs = self._graphs(
                lambda values, generation: (forward(values, generation), None),
                lambda: TrainingGraphs(self.artifact, forward, backward, when, device, planned, allocated, give_back),
            )
        relaid = None
        if self.exact is not None and backward is not None:
            from lampwork.runtime.autograd.relaid import Relaid

            relaid = Relaid(link, self.exact, self.artifact.program.device)
        return Differentiated(self.artifact, forward, backward, self.fell_back, graphs, relaid).call

    def _eager_entry(self, outcome: RunEagerly, eagerly: Eagerly) -> Callable:
        compiled = compile_check(self.artifact.guards, ())

        def check(function: object, args: tuple, kwargs: dict) -> tuple | None:
            try:
                return compiled(function, args, kwargs)
            except Exception as error:
                raise Rerun("guards") from error

        self.holds = lambda function, args, kwargs: check(function, args, kwargs) is not None
        diagnostic = Diagnostic(outcome.id, outcome.reason, outcome.location, outcome.remedy)
        is_break = outcome.is_break

        def serve(function: Callable, args: tuple, kwargs: dict) -> Any:
            if check(function, args, kwargs) is None:
                return MISS
            return eagerly(diagnostic, is_break, args, kwargs)

        return serve

    #: (function, args, kwargs) -> whether every guard holds for this call.
    holds: Callable[[Any, tuple, dict], bool]
    #: (function, args, kwargs) -> the call's result, `MISS` when some guard does not hold.
    serve: Callable[[Any, tuple, dict], Any]

    def why_missed(self, function: Callable, args: tuple, kwargs: dict) -> str:
        """The first guard that does not hold for this call, in words."""
        return explain_failure(self.artifact.guards, function, args, kwargs)

    @property
    def programs(self) -> tuple[Program, ...]:
        """The entry's program, and that of its backward pass where there is one."""
        return self.artifact.programs

    @property
    def kernels(self) -> int:
        return sum(len(program.kernels) for program in self.programs)

    @property
    def launches(self) -> int:
        return sum(isinstance(step, Launch) for program in self.programs for step in program.steps)

    def extern_calls(self) -> Counter[str]:
        """ATen calls of one call, by operator name."""
        return Counter(step.op for program in self.programs for step in program.steps if isinstance(step, Extern))

    def release(self) -> None:
        """Give back memory that is idle."""
        for host in (self.host, self.backward):
            if host is not None:
                host.release()
        if self.graphs is not None:
            self.graphs.release()
