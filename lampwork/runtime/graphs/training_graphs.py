"""CUDA graphs for a program with a backward pass, each half a graph of its own, tied by autograd as without graphs.

    forward    inputs copied in, one replay, results copied out          memory: what the backward pass reads
    backward   tangents copied in, one replay, gradients handed out      reads it where the forward graph left it

What a forward pass saves stays in memory that it shares with its backward pass, and autograd saves one small token in
its place. While the token has another owner than the capture, a backward pass may still come (or come again:
`retain_graph`), and no other forward pass runs into this memory. That is so where two forward passes come before a
backward one: micro-batches, a GAN. Such calls run plainly, which is counted, and from the second time on they get
memory and graphs of their own.

Results are copied out: a caller holds them for as long as he likes, at times into the next forward pass, and a second
set of everything that is saved would cost more than a copy of what is returned. Gradients are handed out like the
results of `GraphRunner`: autograd takes them as they are where there is no `.grad`, and drops them once they are added
to one. While the caller holds the gradients of two captures, a third backward pass runs plainly.

The memory of a forward pass is used as a plain run would use it: what lay in it in passing is free for what comes
later, and what was saved is so from the last step of the backward pass on that reads it. Where autograd may ask for it
again (`retain_graph`), and where the caller holds the gradients of that graph, another one runs which leaves what was
saved as it is. Gradients lie outside of the memory, which the next forward pass writes to.

The graphs of both halves see what the plain halves see. Where autograd's saved tensors are hooked, under a transform
of `torch.func`, and on another stream than the forward pass's, the halves run plainly.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch

from lampwork import _torch
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.differentiation import Tangent
from lampwork.ir.program import FromBuffer, Program, raised_inputs
from lampwork.ir.source import is_lasting, is_static
from lampwork.runtime.graphs.borrowed_tensors import Lender
from lampwork.runtime.graphs.cuda_capture import CudaDevice, NotCapturable, Pool
from lampwork.runtime.graphs.cuda_graphs import (
    CAPTURES_FOR_WEIGHTS,
    COPIED_BYTES_A_SECOND,
    GAINS_NOTHING,
    HANDED_OUT,
    MEASURED_CALLS,
    PLAIN_CALLS,
    copier,
    host_share,
    issue_seconds,
    memory_for_inputs,
    owners_alone,
    replay_seconds,
    result_bytes,
    results_for_caller,
    why_not,
)
from lampwork.runtime.graphs.gradient_memory import Gradients
from lampwork.runtime.graphs.result_pool import known_sizes
from lampwork.runtime.launch.host import versioned

#: Runs a half: (values of its inputs, generation) -> its results.
Run = Callable[..., Sequence[Any]]

#: Forward passes of one program whose backward pass may be due at once, with graphs.
MEMORIES = 4
#: So many times all memory must have been in use before there is more.
WANTED = 2
#: All that is kept for forward passes takes at most this share of the device's memory, but for each program's first.
KEPT_SHARE = 1 / 8

#: Everything that is kept for forward passes in this process.
_memories: weakref.WeakSet[Memory] = weakref.WeakSet()


class Passed(NamedTuple):
    """What a forward pass leaves for its backward one: `memory` holds what it saved for as long as `token` is owned.
    Without them it ran plainly."""

    runner: TrainingGraphs
    memory: Memory | None = None
    token: torch.Tensor | None = None


class TrainingGraphs:
    """Serves the calls of a program with a backward pass. Safe to use from many threads and streams.

    `forward` and `backward` run the halves plainly (see `Host.call`), `captured_bytes` are as of their `Host`s,
    `allocated_bytes` what a forward pass allocates with its results; `give_back` returns memory that only plain runs
    need. `when` and `refused` as in `GraphRunner`; `backward_refused` says why the backward pass alone runs plainly.
    """

    def __init__(
        self,
        artifact: Artifact,
        forward: Run,
        backward: Run | None,
        when: Literal["always", "auto"],
        device: CudaDevice,
        captured_bytes: tuple[int, int] = (0, 0),
        allocated_bytes: int = 0,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        assert artifact.backward is not None
        self.artifact, self.link, self.when, self.device = artifact, artifact.backward, when, device
        self.forward, self.plain_backward, self.give_back = forward, backward, give_back
        self.captured_bytes, self.allocated_bytes = captured_bytes, allocated_bytes
        #: The results that are the caller's; what is saved comes after them.
        self.shown = self.link.joint.results + self.link.joint.hidden
        #: Inputs that may be other tensors on each call, and those that are used where they are.
        self.copied = tuple(index for index, source in enumerate(artifact.inputs) if not is_static(source))
        in_place = (artifact.accessed | {*self.link.saved_inputs}) - {*self.copied}
        self.kept = tuple(sorted(in_place))
        #: A generation speaks of everything that is kept.
        self.lasting = all(is_lasting(artifact.inputs[index]) for index in self.kept)
        programs = [artifact.program, *([self.link.artifact.program] if self.link.artifact is not None else ())]
        #: Both halves share memory, where all sizes in them are known.
        self.shares = _torch.can_lend() and all(map(known_sizes, programs))
        self.host_share = host_share(result_bytes(artifact.program, self.link.saved_results))
        self.refused = self._why_not()
        half = self.link.artifact
        self.backward_refused = _of_backward(why_not(half)) if half is not None else None
        self.forward_captures = self.backward_captures = self.forward_replays = self.backward_replays = 0
        self.in_use = 0
        self._streams: dict[int, _Stream] = {}
        self._lock = threading.Lock()

    def _why_not(self) -> Diagnostic | None:
        if _torch.tensor_layout() is None:
            return Diagnostic("graph-failed", "who owns memory cannot be told with this build of PyTorch")
        return why_not(self.artifact) or (self._why_not_worth_it() if self.when == "auto" else None)

    def _why_not_worth_it(self) -> Diagnostic | None:
        """As `cuda_graphs.why_not_worth_it`, for both halves together."""
        issue, replay = issue_seconds(self.artifact.program), replay_seconds(len(self.copied) + self.shown)
        if self.link.artifact is not None:
            issue += issue_seconds(self.link.artifact.program)
            replay += replay_seconds(self.passed_back, len(self.link.joint.wanted))
        return GAINS_NOTHING if issue < replay else None

    @property
    def passed_back(self) -> int:
        """How many tensors are copied into the backward graph."""
        return len(self.link.tangents) + len({*self.link.saved_inputs} & {*self.copied})

    # Calls -----------------------------------------------------------------------------------------------------------

    def call(self, values: Sequence[object], generation: object = None) -> tuple[Sequence[Any], Passed]:
        """The forward program's results, without what is saved where a graph keeps that, and what was passed.

        Whoever takes the token decides for how long what was saved is kept; nothing else must own it.
        """
        if self.refused or self.device.is_capturing():
            return self.forward(values, generation), Passed(self)
        stream = self._stream()
        with stream.lock:
            return stream.forward(values, generation)

    def backward(self, values: list[object]) -> Sequence[Any]:
        """A plain backward pass; `values` is emptied."""
        assert self.plain_backward is not None
        if self.refused or self.device.is_capturing():
            return self.plain_backward(values)
        return self._stream().backward(values)

    def _stream(self) -> _Stream:
        number = self.device.stream()
        stream = self._streams.get(number)
        if stream is None:
            with self._lock:
                stream = self._streams.setdefault(number, _Stream(self, number))
        return stream

    def account(self) -> dict[str, Any]:
        """For `lampwork.stats`: as `GraphRunner`'s, and how often all memory for graphs was in use."""
        return {
            "captures": self.forward_captures + self.backward_captures,
            "replays": self.forward_replays + self.backward_replays,
            "backward_captures": self.backward_captures,
            "backward_replays": self.backward_replays,
            "in_use": self.in_use,
            "refused": self.refused or self.backward_refused,
        }

    def refuse(self, diagnostic: Diagnostic) -> None:
        self.refused = diagnostic
        self.release()

    def release(self) -> None:
        """Give back captures and their memory; what backward passes still need is kept for them."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.memories = []


class _Stream:
    """The captures of one program on one stream. Its lock is held during a forward pass, and a graph's backward."""

    def __init__(self, graphs: TrainingGraphs, number: int) -> None:
        self.graphs, self.number = graphs, number
        self.lock = threading.Lock()
        self.forwards = self.backwards = 0
        self.gains: tuple[list[tuple[float, float]], ...] = ([], [])  # of forward and of backward passes
        #: Memory of the graphs' own for inputs that are copied, and for tangents: every replay fills it anew.
        self.inputs: dict[int, torch.Tensor] = {}
        self.tangents: list[torch.Tensor] = []
        self.zeros: set[int] = set()  # tangents that are undefined as in the pass before
        self.given: dict[int, torch.Tensor] = {}  # whether there are those that the backward program is told of
        self.memories: list[Memory] = []
        self.generation: object = None
        self.places: tuple[int, ...] = ()
        self.captures_left = CAPTURES_FOR_WEIGHTS
        self.wanted = 0
        self.decided = graphs.when == "always"

    # Plain and measured passes ---------------------------------------------------------------------------------------

    def forward(self, values: Sequence[Any], generation: object) -> tuple[Sequence[Any], Passed]:
        graphs = self.graphs
        self.forwards += 1
        memory = None
        if self.forwards > PLAIN_CALLS and not graphs.refused:
            if self._measures(0):
                passed = sum(values[index].nbytes for index in graphs.copied if isinstance(values[index], torch.Tensor))
                replay = replay_seconds(len(graphs.copied) + graphs.shown)
                results = self._measured(0, lambda: graphs.forward(values, generation), passed, replay)
                return results, Passed(graphs)
            if self.decided or self._gains():
                try:
                    memory = self._memory(values, generation)
                except NotCapturable as reason:
                    graphs.refuse(reason.diagnostic)
        if memory is None:
            return graphs.forward(values, generation), Passed(graphs)
        return memory.forward(values)

    def backward(self, values: list[Any]) -> Sequence[Any]:
        graphs = self.graphs
        assert graphs.plain_backward is not None
        plain_backward = graphs.plain_backward
        self.backwards += 1
        if self.backwards <= PLAIN_CALLS or graphs.refused or not self._measures(1):
            return plain_backward(values)
        count = len(graphs.link.tangents)
        passed = sum(tangent.nbytes for tangent in values[len(values) - count :])
        replay = replay_seconds(graphs.passed_back, len(graphs.link.joint.wanted))
        return self._measured(1, lambda: plain_backward(values), passed, replay)

    def _measures(self, half: int) -> bool:
        return self.graphs.when == "auto" and len(self.gains[half]) < MEASURED_CALLS

    def _measured(self, half: int, run: Callable[[], Sequence[Any]], passed_bytes: int, replay: float) -> Sequence[Any]:
        """A plain pass that finds out whether the device waits for the host."""
        host_seconds, device_seconds, results = self.graphs.device.measure(run)
        self.gains[half].append((
            host_seconds - self.graphs.host_share * device_seconds - passed_bytes / COPIED_BYTES_A_SECOND,
            host_seconds - replay,
        ))  # fmt: skip
        return results

    def _gains(self) -> bool:
        """Whether both halves together gain by graphs; while that is not known, they run plainly."""
        halves = self.gains if self.graphs.plain_backward is not None else self.gains[:1]
        if any(len(half) < MEASURED_CALLS for half in halves):
            return False
        # The host runs ahead from one half into the other, so what counts is their sum; of each the least gain, as the
        # host's worst times say nothing of the program.
        if min(sum(min(gains) for gains in column) for column in zip(*(zip(*half) for half in halves))) < 0:
            self.graphs.refuse(GAINS_NOTHING)
            return False
        self.decided = True
        return True

    # Captures --------------------------------------------------------------------------------------------------------

    def _memory(self, values: Sequence[Any], generation: object) -> Memory | None:
        """Memory that a forward pass may write to now; None if all is in use. Raises `NotCapturable`."""
        if self.memories and not self._weights_stay(values, generation):
            self.captures_left -= 1
            if self.captures_left < 0:
                raise NotCapturable(
                    "graph-weights", "parameters or buffers are replaced again and again", "Write into them in place."
                )
            self.memories = []
        for memory in self.memories:
            if memory.is_free():
                return memory
        if self.memories:
            self.graphs.in_use += 1
            self.wanted += 1
            if self.wanted <= WANTED or len(self.memories) >= MEMORIES:
                return None
        if not self._may_keep():
            return None
        if not self.memories:
            self.places = tuple(values[index].data_ptr() for index in self.graphs.kept)
            self.generation = generation
        memory = self._new_memory(values, generation)
        self.memories.append(memory)
        _memories.add(memory)
        return memory

    def _may_keep(self) -> bool:
        """Whether another forward pass's memory is within the limit on all of them."""
        device, artifact = self.graphs.device, self.graphs.artifact
        there = [memory for memory in tuple(_memories) if memory.graphs.device is device]
        like = [memory.size_bytes for memory in there if memory.graphs.artifact is artifact]
        if not like:
            return True
        return sum(memory.size_bytes for memory in there) + max(like) <= KEPT_SHARE * device.memory_bytes()

    def _weights_stay(self, values: Sequence[Any], generation: object) -> bool:
        if self.graphs.lasting and generation is not None and generation is self.generation:
            return True
        if self.places != tuple(values[index].data_ptr() for index in self.graphs.kept):
            return False
        self.generation = generation
        return True

    def _new_memory(self, values: Sequence[object], generation: object) -> Memory:
        graphs = self.graphs
        if not self.inputs:
            self.inputs = memory_for_inputs(graphs.artifact, values, graphs.copied, graphs.kept, graphs.device)
        passed = list(values)
        for index, tensor in self.inputs.items():
            passed[index] = tensor
        pool = Pool() if graphs.shares else None
        planned = graphs.captured_bytes[0] if pool is None else graphs.artifact.program.workspace_bytes
        replay, results = graphs.device.record(
            lambda: graphs.forward(passed, generation), planned, pool, None, graphs.allocated_bytes
        )
        own = {_torch.storage_address(tensor) for tensor in self.inputs.values()}
        if any(_torch.storage_address(results[index]) in own for index in graphs.link.saved_results):
            raise NotCapturable("graph-input", "an input is saved for the backward pass as it is")
        graphs.forward_captures += 1
        read = {_torch.storage_address(value) for value in passed if isinstance(value, torch.Tensor)}
        return Memory(self, replay, results, pool, read)

    def fill_tangents(self, tangents: Sequence[torch.Tensor | None]) -> None:
        for index, (memory, tangent) in enumerate(zip(self.tangents, tangents)):
            if tangent is not None:
                memory.copy_(tangent)
                if index in self.zeros:
                    self.zeros.discard(index)
                    self._tell(index, True)
            elif index not in self.zeros:
                memory.zero_()
                self.zeros.add(index)
                self._tell(index, False)

    def _tell(self, index: int, given: bool) -> None:
        if index in self.given:
            self.given[index].fill_(given)


class Memory:
    """What one forward pass saves, where its capture put it, and the captured backward passes that read it there."""

    def __init__(
        self,
        stream: _Stream,
        replay: Callable[[], None],
        results: Sequence[Any],
        pool: Pool | None,
        read: set[int],
    ) -> None:
        """`results`: of the run that was captured with memory from `pool`, on values in the storages `read`."""
        self.stream, self.graphs, self._replay, self._pool = stream, stream.graphs, replay, pool
        link = self.graphs.link
        with _torch.below_autograd():
            self.saved = [results[index].detach() for index in link.saved_results]
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in self.saved}
        self.size_bytes = sum(storages.values())
        shown = range(self.graphs.shown)
        #: Results that are saved as they are returned: autograd must notice when the caller writes to them.
        first = len(link.saved_inputs)
        saved = {id(results[index]) for k, index in enumerate(link.saved_results) if first + k not in link.unnoticed}
        self.watched = tuple(index for index in shown if id(results[index]) in saved)
        fresh = [isinstance(each, FromBuffer) for each in self.graphs.artifact.program.results]
        self._shown = owners_alone(results[: len(shown)], fresh)
        #: What was saved, by tensors that own its memory, until a backward pass is captured that lets go of it.
        self._owned: dict[int, torch.Tensor] = {}
        if pool is not None:
            self._lend(results, read)
        #: What comes after: saved tensors, and sizes.
        self._rest = [None if isinstance(each, torch.Tensor) else each for each in results[len(shown) :]]
        tensors = [each for each, own in zip(self._shown, fresh) if own]
        places = [each.untyped_storage().data_ptr() for each in tensors]
        single = [each for each, place in zip(tensors, places) if places.count(place) == 1]
        self._alone = {id(each) for each in single if _is_all_of_its_storage(each)}
        with torch.inference_mode(False):
            self._marker = torch.empty(1, dtype=torch.uint8)
        self._marker_storage = _torch.storage_address(self._marker)
        self.captures: list[Gradients] = []
        #: Where the inputs were that the captured backward passes read in place.
        self.places: list[int] = []
        self.in_place = [place for place, index in enumerate(link.saved_inputs) if index in self.graphs.kept]

    def _lend(self, results: Sequence[Any], read: set[int]) -> None:
        """From now on nothing owns memory from the pool but what is `_owned`; the captures keep the pool."""
        program, link = self.graphs.artifact.program, self.graphs.link

        def is_lent(index: int) -> bool:
            result, made = program.results[index], results[index]
            if not isinstance(result, FromBuffer) or _torch.storage_address(made) in read:
                return False
            return not made.is_conj() and not made.is_neg()  # which are more than their memory

        lender = Lender()
        for position, index in enumerate(link.saved_results):
            if is_lent(index):
                self._owned[position], self.saved[position] = self.saved[position], lender.lent(self.saved[position])
        self._shown = [lender.lent(each) if is_lent(index) else each for index, each in enumerate(self._shown)]

    def is_free(self) -> bool:
        """No backward pass can come for what is saved here."""
        return _torch.storage_use_count_at(self._marker_storage) == 1

    def forward(self, values: Sequence[Any]) -> tuple[Sequence[Any], Passed]:
        inputs, program = self.stream.inputs, self.graphs.artifact.program
        with _torch.below_autograd():
            for index, tensor in inputs.items():
                tensor.copy_(values[index])
            self._replay()
            for index in program.written_inputs:
                if index in inputs:
                    values[index].copy_(inputs[index])
            count = self.graphs.shown
            results = results_for_caller(program.results[:count], self._shown, values, self._copier())
            token = self._marker.detach()
        raised = raised_inputs(program)
        if raised:
            _torch.increment_version(*[values[index] for index in raised])
        results = list(versioned(program, results))
        self.graphs.forward_replays += 1
        return [*results, *self._rest], Passed(self.graphs, self, token)

    def _copier(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Gives results in memory of their own; those that are views of one storage stay views of one storage."""
        several = copier()
        return lambda made: made.clone() if id(made) in self._alone else several(made)

    def gradients(
        self,
        inputs: Sequence[torch.Tensor],
        numbers: Sequence[int],
        tangents: Sequence[torch.Tensor | None],
        layouts: Sequence[Tangent],
        kinds: Sequence[tuple[torch.dtype, torch.device]],
        may_spend: bool,
    ) -> Sequence[Any] | None:
        """What the backward program returns, by a graph; None where it has to run plainly this time.

        `inputs`: the graph's inputs that are saved. `layouts` and `kinds`: of the tangents that the program reads.
        `may_spend`: nobody will ask for what was saved again.
        """
        graphs, stream = self.graphs, self.stream
        if graphs.refused or graphs.backward_refused or stream.backwards < PLAIN_CALLS:
            return None
        device = graphs.device
        if device.is_capturing() or device.stream() != stream.number or _torch.active_transforms():
            return None
        with stream.lock:
            try:
                capture = self._capture(inputs, numbers, layouts, kinds, may_spend)
            except NotCapturable as reason:
                graphs.backward_refused = _of_backward(reason.diagnostic)
                return None
            if capture is None:
                graphs.in_use += 1
                return None
            with _torch.below_autograd():
                for index, tensor in zip(graphs.link.saved_inputs, inputs):
                    memory = stream.inputs.get(index)
                    if memory is not None:
                        memory.copy_(tensor)
                stream.fill_tangents(tangents)
                capture.replay()
                graphs.backward_replays += 1
                return capture.hand_out()

    def _capture(
        self,
        inputs: Sequence[torch.Tensor],
        numbers: Sequence[int],
        layouts: Sequence[Tangent],
        kinds: Sequence[tuple[torch.dtype, torch.device]],
        may_spend: bool,
    ) -> Gradients | None:
        """A captured backward pass whose gradients nobody holds; None where there is none for these inputs.

        `may_spend`: nobody will ask for what was saved again.
        """
        places = [inputs[place].data_ptr() for place in self.in_place]
        if self.captures:
            laid_out = [tuple(memory.stride()) for memory in self.stream.tangents]
            if places != self.places or laid_out != [layout.strides for layout in layouts]:
                return None
            for capture in self.captures:
                if capture.is_free() and (may_spend or not capture.spends):
                    return capture
        # One that spends, where there may be, and one that does not.
        spends = may_spend and self._pool is not None and not any(capture.spends for capture in self.captures)
        alike = sum(capture.spends == spends for capture in self.captures)
        if alike >= (HANDED_OUT if self._pool is None else 1):
            return None
        stream, graphs = self.stream, self.graphs
        if not stream.tangents:
            for layout, (dtype, device) in zip(layouts, kinds):
                assert layout.shape is not None and layout.strides is not None
                with torch.inference_mode(False):
                    memory = torch.empty_strided(layout.shape, layout.strides, dtype=dtype, device=device)
                stream.tangents.append(memory)
            with torch.inference_mode(False):
                kind = {"dtype": torch.bool, "device": graphs.artifact.program.device}
                stream.given = {index: torch.ones((), **kind) for index in graphs.link.told}
        read = [stream.inputs.get(index, each) for index, each in zip(graphs.link.saved_inputs, inputs)]
        given = [*stream.given.values()]
        half, run = graphs.link.artifact, graphs.plain_backward
        assert half is not None and run is not None
        for value in (*read, *stream.tangents):
            if not graphs.device.holds(value):
                raise NotCapturable("graph-input", "an input is not on the program's device", "Move it there first.")
        following = [*numbers, *stream.tangents, *given]
        owned, lent = self._owned, self.saved
        tensors = [each for each in (*read, *lent, *owned.values(), *following) if isinstance(each, torch.Tensor)]
        passed = {_torch.storage_address(each) for each in tensors}
        del tensors

        def values() -> list[Any]:
            """Of all inputs; of what is saved by owners, if these are to let go of it."""
            saved = [owned.pop(index, each) if spends else each for index, each in enumerate(lent)]
            return [*read, *saved, *following]

        memory_of: tuple[int, Pool | None, Program | None] = (graphs.captured_bytes[1], None, None)
        if self._pool is not None:
            pool = self._pool if spends else graphs.device.pool()
            memory_of = (half.program.workspace_bytes, pool, half.program)
        replay, results = graphs.device.record(lambda: run(values()), *memory_of)
        capture = Gradients(half, replay, results, passed, spends)
        if not graphs.backward_captures:
            graphs.give_back()
        graphs.backward_captures += 1
        self.places = places
        self.captures.append(capture)
        return capture


def _is_all_of_its_storage(tensor: torch.Tensor) -> bool:
    """Whether `clone()` gives the same strides and a storage of the same size."""
    dense = torch.empty_like(tensor, device="meta").stride() == tensor.stride()
    return dense and tensor.untyped_storage().nbytes() == tensor.nbytes


def _of_backward(diagnostic: Diagnostic | None) -> Diagnostic | None:
    if diagnostic is None:
        return None
    return replace(diagnostic, reason=f"the backward pass alone: {diagnostic.reason}")
