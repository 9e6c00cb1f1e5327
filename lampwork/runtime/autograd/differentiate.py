"""Ties the forward and the backward program of an entry together with one `torch.autograd.Function`.

    results = Differentiated(artifact, forward, backward).call(values, generation)

Results have a history that eager's engine walks: tensors from outside keep their hooks, their accumulation into `.grad`
and their version checks. What the backward program needs is saved as eager saves it (`save_for_backward`), so hooks on
saved tensors see it, writes to it are noticed, and it is freed with the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch, signals
from lampwork.config import environment
from lampwork.errors import CompileError, Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.differentiation import Checked, Saved, Tangent
from lampwork.ir.size import evaluate, symbols
from lampwork.ir.source import ArrayMemory, Computed, HostInput, Numbers, PlainTensor
from lampwork.runtime.autograd.gradient_layouts import GradientLayouts
from lampwork.runtime.autograd.nodes import Call, LampworkRegion, apply_by_groups, groups_of
from lampwork.runtime.autograd.relaid import Relaid, is_other
from lampwork.runtime.autograd.replay import EagerHalf, Gone, Replayed
from lampwork.runtime.autograd.result_views import ResultViews
from lampwork.runtime.autograd.tangents import flags, laid_out, missing
from lampwork.runtime.launch.host import Rerun

if TYPE_CHECKING:
    from lampwork.runtime.entry import FellBack
    from lampwork.runtime.graphs.sized_graphs import SizedGraphs
    from lampwork.runtime.graphs.training_graphs import TrainingGraphs

#: Runs a program: (values of its inputs, generation) -> its results.
Run = Callable[..., Sequence[Any]]

_TWICE = Diagnostic(
    "double-backward",
    "gradients of a compiled region were taken with create_graph=True; eager computes them, forward included",
    remedy="Take them inside of the compiled function, where second derivatives are part of the graph.",
)

_BATCHED = Diagnostic(
    "double-backward",
    "gradients of a compiled region were taken for a batch of tangents (is_grads_batched, vmap); eager computes them, "
    "forward included",
    remedy="Take them inside of the compiled function.",
)


_ZEROS = Diagnostic(
    "gradient-of-zeros",
    "gradients were taken of results that lead to an input by zeros alone, as rounding does, and not of the results "
    "that it has gradients of; eager computes them, forward included",
    remedy="Take gradients of these results inside of the compiled function, or return them detached.",
)


_RELAID = Diagnostic(
    "tangent-layout",
    "a gradient that is handed in is laid out otherwise than before, and there is no backward program for its layout: "
    "it is copied, and last bits may differ from eager's",
    remedy="Take the loss inside of the compiled function, where layouts are known.",
)


#: Inputs that are no objects of the program's.
_MADE_FOR_CALL = (ArrayMemory, Computed, HostInput, Numbers, PlainTensor)
#: So many sizes are remembered, however many a program is given.
_MOST_PROVEN = 1024


class Differentiated:
    """The programs of an entry whose results require grad. `call` takes and gives what `Host.call` does."""

    def __init__(
        self,
        artifact: Artifact,
        forward: Run,
        backward: Run | None,
        fell_back: FellBack,
        graphs: TrainingGraphs | SizedGraphs | None = None,
        relaid: Relaid | None = None,
    ) -> None:
        """`graphs`: runs the halves by CUDA graphs where it can, and as `forward` and `backward` elsewhere. `relaid`:
        has backward programs for tangents in other layouts; None: these are copied."""
        assert artifact.backward is not None
        link = self.link = artifact.backward
        joint = self.joint = link.joint
        self.forward, self.backward, self.fell_back, self.graphs = forward, backward, fell_back, graphs
        self.relaid = relaid
        #: Graph inputs that second derivatives need and autograd does not keep.
        self.saved_inputs = {
            index: place for place, index in enumerate(link.saved_inputs) if place not in link.unnoticed
        }
        self.kept = tuple(index for index in link.replayed if index not in self.saved_inputs)
        #: The places among them of those that the runtime makes for each call: numbers that vary, arrays as tensors.
        self.made_for_call = frozenset(
            place for place, index in enumerate(self.kept) if isinstance(artifact.inputs[index], _MADE_FOR_CALL)
        )
        self.replayed: Replayed | None = None
        #: The sizes with which the backward program has run to its end: every operator was seen to fit its plan.
        self.proven: set[tuple[int, ...]] = set()
        self.half: EagerHalf | None = None
        self.layouts = GradientLayouts(link)
        self.written = tuple(each.index for each in joint.outputs if each.written)
        #: Graph inputs that the function gets as tensors: those with gradients, then those that are written.
        self.tracked = (*joint.wanted, *(index for index in self.written if index not in joint.wanted))
        self.no_gradients = (None,) * (len(self.tracked) - len(joint.wanted))
        #: Results that are made again above autograd: (result, kind, output or input).
        self.made = tuple((k, each.kind, each.index) for k, each in enumerate(joint.made) if each.kind != "plain")
        self.views = ResultViews(joint.views) if joint.views.calls else None
        #: Results that share memory and no version: the program makes them so.
        self.separate = frozenset(index for index, _ in artifact.program.separate)
        #: Results that are not tied to the history.
        self.untied_results = tuple(
            k for k, each in enumerate(joint.made) if each.kind == "plain" or k in self.separate
        )
        self.device = artifact.program.device
        flags(link.told, joint.outputs, self.device)  # made while nobody captures a CUDA graph
        self.fixed = all(tangent.strides is not None for tangent in link.tangents)
        self.partial = len(joint.outputs) > 1
        self.groups = groups_of(joint)
        #: The tangents that some gradient is computed of with something that is saved; the groups of results with such.
        self.readers = {index for kept in (link.saved, link.checked) for each in kept for index in each.tangents}
        self.readers.update(index for _, zeros in link.zeros for index in zeros)
        named = {name for each in link.saved for size in (*each.shape, *each.strides) for name in symbols(size)}
        if not named.issubset(link.symbols):  # contents decide a size, so nothing can take a saved tensor's place
            self.readers.update(range(len(joint.outputs)))
        self.reading = frozenset(
            group
            for group, members in enumerate(self.groups.results if self.groups is not None else ())
            if not self.readers.isdisjoint(members)
        )
        #: How many of the saved tensors, which come last, are saved for the sake of their versions.
        self.checked = len(link.checked)
        #: Whether a backward pass may come again without `retain_graph`: nothing is saved, by eager neither.
        self.repeats = not (joint.saves or link.saved_inputs or link.saved_results or link.checked)
        #: Which gradients are undefined, by which tangents are.
        self.dead: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.call = self.tied if joint.outputs else self.untied

    def tied(self, values: Sequence[Any], generation: object = None) -> Sequence[Any]:
        run = Call(self, values, generation)
        for index in self.joint.granted:
            values[index].requires_grad_()
        tracked = [values[index] for index in self.tracked]
        if torch.is_grad_enabled():
            outputs = self.apply(run, *tracked)
        else:  # the program enables it itself
            with torch.enable_grad():
                outputs = self.apply(run, *tracked)
        if type(outputs) is not tuple:
            outputs = (outputs,)
        results, run.results = run.results, ()  # the history owns `run`, and must own no result
        return self.finished(results, outputs, values)

    def apply(self, run: Call, *tracked: torch.Tensor) -> Any:
        """The differentiated results, with their history."""
        if self.groups is None:
            return LampworkRegion.apply(run, *tracked)
        return apply_by_groups(run, self.groups, tracked)

    def untied(self, values: Sequence[Any], generation: object = None) -> Sequence[Any]:
        """For results that are views of inputs, and nothing else is differentiated."""
        with torch.no_grad():
            results = self.forward(values, generation)
        for viewed in self.joint.granted:
            values[viewed].requires_grad_()
        return self.finished(results, (), values)

    def to_be_checked(
        self, values: Sequence[Any], results: Sequence[Any], outputs: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """What is saved for the sake of its version: inputs, and results as the caller gets them."""
        shown = {each.index: output for each, output in zip(self.joint.outputs, outputs) if not each.written}
        return [
            shown.get(each.index, results[each.index]) if each.is_result else values[each.index]
            for each in self.link.checked
        ]

    def finished(self, results: Sequence[Any], outputs: Sequence[torch.Tensor], values: Sequence[Any]) -> list[Any]:
        """The region's results, as eager's autograd ties them together."""
        made = list(results[: self.joint.results])
        views = self.views.make(outputs, values) if self.views is not None else ()
        for index in self.untied_results:
            result = made[index]
            if isinstance(result, torch.Tensor) and result._is_view():  # of another one, made where gradients were off
                _torch.track_view(result)
        for index, kind, source in self.made:
            if kind == "output":
                made[index] = outputs[source]
                continue
            if index in self.separate:  # has no tie to autograd
                continue
            if kind == "view":
                made[index] = views[source]
                continue
            plain = made[index]
            base = values[source] if kind.endswith("input") else outputs[source]
            with torch.enable_grad():
                seen = base.as_strided(plain.shape, plain.stride(), plain.storage_offset())
            made[index] = seen.detach() if kind.startswith("detached") else seen
        return made

    def needed(self, ctx: Any, run: Call, tangents: Sequence[Any]) -> list[torch.Tensor] | None:
        """The saved tensors, with zeros for those that were written since and are not needed for the tangents that are
        defined; None where one is."""
        present = {index for index, tangent in enumerate(tangents) if tangent is not None}
        if not run.versions or len(present) == len(tangents):
            return None
        try:
            memory = _torch.saved_memory(ctx)
        except AttributeError:
            return None
        sizes = dict(zip(self.link.symbols, run.sizes))
        read: tuple[Saved | Checked, ...] = (*self.link.saved, *self.link.checked)
        for index, (tensor, version, saved) in enumerate(zip(memory, run.versions, read, strict=True)):
            if tensor._version == version:
                continue
            if not present.isdisjoint(saved.tangents):
                return None
            if isinstance(saved, Checked):
                continue
            memory[index] = _zeros(saved, sizes, tensor.dtype, tensor.device)
        return memory

    def zeros(self, run: Call) -> list[torch.Tensor]:
        """In place of the saved tensors, where no tangent that is defined needs one."""
        sizes = dict(zip(self.link.symbols, run.sizes))
        return [_zeros(saved, sizes, *kind) for saved, kind in zip(self.link.saved, run.kinds, strict=True)]

    def gradients(self, run: Call, saved: list[Any], tangents: Sequence[Any], is_last: bool = True) -> Sequence[Any]:
        """What the backward program returns for tangents, of which None are zeros. `saved` is emptied. `is_last`: no
        other result will be differentiated with it, unless the graph is retained."""
        layouts = self.link.tangents if self.fixed else run.layouts
        inputs = saved[: len(self.link.saved_inputs)]
        memory, backward = run.memory, self.backward
        assert backward is not None
        found: Sequence[Any] | None = self.gradients_of_zeros(run, saved, tangents) if self.link.zeros else None
        if found is not None:
            return found
        token: Sequence[torch.Tensor] = ()  # owns the memory until all that reads it has been launched
        relaid = self.relaid is not None and self.relaid.is_needed(tangents, layouts)
        if memory is not None:
            token = saved[-1:]
            if not relaid:
                may_spend = is_last and not _torch.keeps_graph()
                found = memory.gradients(inputs, run.sizes, tangents, layouts, run.devices, may_spend)
            if found is None:
                saved[len(inputs) :] = memory.saved
        if found is None and relaid:
            found = self.relaid_gradients(run, saved, tangents, layouts)
        if found is None:
            if run.runner is not None:
                backward = run.runner.backward
            found = self.plain_gradients(backward, run, saved, inputs, tangents, layouts)
        del token
        if not self.partial:
            return found
        return self.defined(found, tuple([index for index, tangent in enumerate(tangents) if tangent is None]))

    def gradients_of_zeros(self, run: Call, saved: list[Any], tangents: Sequence[Any]) -> Sequence[Any] | None:
        """`gradients` where some are reached by zeros alone: by eager, which knows the zeros that stay zeros beside
        NaN. None where there are no such gradients, or where eager cannot compute them."""
        present = {index for index, tangent in enumerate(tangents) if tangent is not None}
        if not any(present & {*zeros} and not present & {*computed} for computed, zeros in self.link.zeros):
            return None
        start = time.perf_counter()
        try:
            found = self.replay(run, saved, tangents)
        except Gone:
            return None
        saved.clear()
        self.fell_back(_ZEROS, time.perf_counter() - start)
        return found

    def defined(self, found: Sequence[Any], undefined: tuple[int, ...]) -> Sequence[Any]:
        """The gradients `found`; None for those that depend on tangents which are `undefined` alone."""
        dead = self.dead.get(undefined)
        if dead is None:
            absent = {*undefined}
            dead = tuple(index for index, depends in enumerate(self.joint.depends) if absent.issuperset(depends))
            self.dead[undefined] = dead
        if not dead:
            return found
        defined = list(found)
        for index in dead:
            defined[index] = None
        return defined

    def relaid_gradients(
        self, run: Call, saved: list[Any], tangents: Sequence[Any], layouts: Sequence[Tangent]
    ) -> Sequence[Any] | None:
        """`gradients`, by a program that takes the tangents as they are laid out; None where there is none."""
        assert self.relaid is not None
        values = [*saved, *run.sizes]
        for index, (tangent, layout, kind) in enumerate(zip(tangents, layouts, run.devices, strict=True)):
            if tangent is None and index in self.link.optional:
                values.append(missing(layout, kind))
            else:
                values.append(tangent if is_other(tangent, layout) else laid_out(tangent, layout, kind))
        values += flags(self.link.told, tangents, self.device)
        strides = [each.stride() if isinstance(each, torch.Tensor) else None for each in values]
        first = len(saved) + len(run.sizes)
        strides[first : first + len(layouts)] = [layout.strides for layout in layouts]
        program = self.relaid.program(values, strides)
        if program is None:
            self.fell_back(_RELAID, 0.0)
            return None
        kept = list(values)
        try:
            found = program(values)
        except Rerun as failure:
            if environment.strict:
                raise CompileError("run", f"the backward pass for other layouts: {failure.__cause__}") from failure
            by_eager = self.half_by_eager(kept)
            if by_eager is None:
                return None
            found = by_eager
        saved.clear()
        return found

    def plain_gradients(
        self,
        backward: Run,
        run: Call,
        saved: list[Any],
        inputs: Sequence[torch.Tensor],
        tangents: Sequence[Any],
        layouts: Sequence[Tangent],
    ) -> Sequence[Any]:
        """`gradients` by `backward`, or by eager where that fails. `saved` is emptied."""
        values, saved[:] = [*saved, *run.sizes], ()
        optional = self.link.optional
        for index, (tangent, layout, kind) in enumerate(zip(tangents, layouts, run.devices, strict=True)):
            absent = tangent is None and index in optional
            values.append(missing(layout, kind) if absent else laid_out(tangent, layout, kind))
        values += flags(self.link.told, tangents, self.device)
        # The program frees what it was given. Eager needs that where an operator turns out not to fit.
        kept = None if run.sizes in self.proven or self.link.eager is None else list(values)
        try:
            found = backward(values)
        except Rerun as failure:
            return self.gradients_by_eager(backward, run, inputs, tangents, kept, failure)
        if len(self.proven) == _MOST_PROVEN:
            self.proven.clear()
        self.proven.add(run.sizes)
        return found

    def gradients_by_eager(
        self,
        backward: Run,
        run: Call,
        inputs: Sequence[torch.Tensor],
        tangents: Sequence[Any],
        kept: list[Any] | None,
        failure: Rerun,
    ) -> Sequence[Any]:
        """`gradients`, after the backward program failed: by eager's operators in its place, from the values `kept`,
        else by a replay of the region. Raises what made it fail where that fails, too."""
        cause = failure.__cause__
        assert cause is not None
        if signals.raised_by_handler(cause):
            raise cause
        why = f"the compiled backward pass raised {type(cause).__name__}: {cause}"
        if kept is not None and isinstance(cause, torch.OutOfMemoryError):
            try:
                return backward(kept)  # which frees as it goes
            except Rerun:
                raise cause from None
        if environment.strict:
            raise CompileError("run", why) from cause
        start = time.perf_counter()
        found = self.half_by_eager(kept)
        if found is None:
            try:
                found = self.replay(run, inputs, tangents)
            except Gone:
                raise cause from None
        self.fell_back(Diagnostic("run-failed", why), time.perf_counter() - start)
        return found

    def half_by_eager(self, values: list[Any] | None) -> list[Any] | None:
        """What eager's operators make of the backward program's inputs; None where they cannot."""
        if values is None or self.link.eager is None:
            return None
        try:
            if self.half is None:
                self.half = EagerHalf(self.link.eager)
            return list(self.half.gradients(values))
        except Exception as error:
            if signals.raised_by_handler(error):
                raise
            return None

    def arranged(self, found: Sequence[Any], tangents: Sequence[Any], run: Call, edges: Sequence[Any]) -> Sequence[Any]:
        """The gradients `found` in eager's strides; as they are where these are not found out."""
        try:
            return self.layouts.arranged(found, tangents, run, edges)
        except Exception as error:
            if environment.strict or signals.raised_by_handler(error) or isinstance(error, torch.OutOfMemoryError):
                raise
            why = f"the strides of gradients were not found out: {type(error).__name__}: {error}"
            self.fell_back(Diagnostic("run-failed", why), 0.0)
            return found

    def batched_gradients(self, run: Call, saved: Sequence[torch.Tensor], tangents: Sequence[Any]) -> Sequence[Any]:
        """`gradients` of many tangents at once, which `vmap` wraps: by eager. Raises RuntimeError where it cannot."""
        start = time.perf_counter()
        try:
            found = self.replay(run, saved, tangents, torch.is_grad_enabled())
        except Gone as stop:
            raise RuntimeError(
                f"the gradients of a region that lampwork compiled cannot be taken for a batch of tangents "
                f"[{_BATCHED.id}]: {stop}. {_BATCHED.remedy} See {_BATCHED.page}."
            ) from None
        self.fell_back(_BATCHED, time.perf_counter() - start)
        return found

    def replay(
        self, run: Call, saved: Sequence[torch.Tensor], tangents: Sequence[Any], history: bool = False
    ) -> list[Any]:
        """Gradients (with a `history`) computed by eager from the region's inputs, which what was `saved` begins with.
        Raises `Gone` where it cannot."""
        if self.link.unrepeatable or self.link.replay is None:
            raise Gone(self.link.unrepeatable)
        inputs = dict(zip(self.kept, run.kept.get() if run.kept is not None else (), strict=True))
        inputs.update((index, saved[place]) for index, place in self.saved_inputs.items())
        if self.replayed is None:
            self.replayed = Replayed(self.link.replay)
        found = self.replayed.gradients(inputs, self.joint.wanted, tangents, history)
        for gradient, needed in zip(found, self.joint.depends, strict=True):
            if gradient is None and any(tangents[index] is not None for index in needed):
                raise Gone("run again, it leads to no gradient")
        return found

    def differentiable_gradients(
        self, run: Call, saved: list[Any], tangents: Sequence[Any], leaves: Sequence[torch.Tensor]
    ) -> Sequence[Any]:
        """`gradients` with a history, computed by eager; with one that refuses to be differentiated where it cannot.
        `leaves`: inputs of the region."""
        start = time.perf_counter()
        try:
            found = self.replay(run, saved, tangents, history=True)
            self.fell_back(_TWICE, time.perf_counter() - start)
            return found
        except Gone as stop:
            why = str(stop)
        sources = [*leaves, *saved, *tangents]
        with torch.no_grad():
            plain = self.gradients(run, saved, tangents)
        return _refusing(plain, [each for each in sources if each is not None and each.requires_grad], why)


def _zeros(saved: Saved, sizes: dict[str, int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A saved tensor that is not there."""
    shape, strides = ([evaluate(each, sizes) for each in each_of] for each_of in (saved.shape, saved.strides))
    with torch.no_grad():
        return torch.empty_strided(shape, strides, dtype=dtype, device=device).fill_(saved.least)


class _Refusing(torch.autograd.Function):
    """Gradients that cannot be differentiated. What they were computed from is an argument, so that asking for its
    gradient raises instead of finding that nothing depends on it."""

    @staticmethod
    @_torch.hide_from_peer
    def forward(ctx: Any, why: str, count: int, *tensors: torch.Tensor) -> Any:
        ctx.why = why
        return tuple([each.detach() for each in tensors[:count]])

    @staticmethod
    @_torch.hide_from_peer
    def backward(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(
            f"the gradients of a region that lampwork compiled cannot be differentiated again [{_TWICE.id}]: "
            f"{ctx.why}. "
            f"{_TWICE.remedy} See {_TWICE.page}."
        )


def _refusing(gradients: Sequence[Any], sources: Sequence[torch.Tensor], why: str) -> list[Any]:
    """The gradients, with a history that leads to `sources` and refuses to be differentiated."""
    present = [each.detach().requires_grad_() for each in gradients if each is not None]
    refusing = iter(_Refusing.apply(why, len(present), *present, *sources) if present else ())
    return [None if each is None else next(refusing) for each in gradients]
