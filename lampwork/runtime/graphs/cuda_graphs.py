"""CUDA graphs that are safe: one program's launches replayed at the cost of one, results valid for as long as held.

    calls 1, 2        run plainly: libraries and kernels are loaded, workspaces made (`auto` measures two more)
    call 3            the program is captured, with memory of its own for inputs that the caller passes and for results
    from then on      inputs copied in, one replay, results handed out

Parameters and buffers are used in place. A result that is handed out is a tensor over the captured result's memory.
Before the next replay the owners of that memory are counted: while the program still holds a result, that capture rests
and another one runs; once `HANDED_OUT` of them are all held, results are copied out of a capture whose memory nobody
ever gets. So a loop that keeps every output has every output, with no call that marks a step. What a training step
returns, its loss, is copied out where it is little: held into the next step, it would cost a second set of gradients.

Captures of one stream, of all programs, share the memory that they use in passing: their replays are in order, and
results lie elsewhere. Streams that may run at once have memory and captures of their own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from lampwork import _torch
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Launch,
    Program,
    Result,
    ViewOfInput,
    raised_inputs,
    step_buffers,
)
from lampwork.ir.size import span
from lampwork.ir.source import is_lasting, is_static
from lampwork.ir.template import CallSetAttribute, TensorValue
from lampwork.runtime.graphs.cuda_capture import CudaDevice, NotCapturable
from lampwork.runtime.graphs.result_pool import shares_what_passes
from lampwork.runtime.launch.host import versioned, view_result

#: Plain calls before the capture.
PLAIN_CALLS = 2
#: Captures whose results are handed out: a caller who drops a result when it has the next needs two.
HANDED_OUT = 2
#: After so many captures for changed weights the program runs plainly.
CAPTURES_FOR_WEIGHTS = 4
#: `auto`: graphs pay where issuing the launches takes at least this share of the time the device needs.
HOST_SHARE = 0.5
#: `auto`: where a graph keeps more than this between calls (results that it hands out, saved tensors), it pays only if
#: the device waits for the host: others could have the memory meanwhile.
LITTLE_BYTES = 256 << 20
#: What a training step gives beside gradients is copied out up to so many tensors of this size.
COPIED_OUT, COPIED_OUT_BYTES = 8, 1 << 20
#: `auto` decides after so many measured calls, which follow the plain ones.
MEASURED_CALLS = 2
#: What copying inputs into a capture's memory costs.
COPIED_BYTES_A_SECOND = 1e12
#: What a replay costs the host, and what each input copied or result handed out adds to it (about, on an H100's host).
REPLAY_SECONDS, REPLAY_SECONDS_A_TENSOR = 8e-6, 5e-6
#: What handing out a tensor over memory that is there adds, and nothing more: gradients.
REPLAY_SECONDS_A_GRADIENT = 1e-6
#: What issuing a program costs it, what each kernel of ours adds, and each call of ATen.
ISSUE_SECONDS, ISSUE_SECONDS_A_KERNEL, ISSUE_SECONDS_A_CALL = 5e-6, 2e-6, 9e-6
#: Said where a graph would not pay.
GAINS_NOTHING = Diagnostic(
    "graph-no-gain", "launching takes less time than the device needs, or than a replay: a graph gains nothing",
    remedy="None is needed; mode='reduce-overhead' replays a graph all the same.",
)  # fmt: skip
#: For what only the host knows.
HOST_REMEDY = "Keep the value on the device: torch.where in place of a branch, the tensor in place of its number."

Call = Callable[..., tuple]


class GraphRunner:
    """Serves calls of one program through CUDA graphs. Safe to use from many threads and streams.

    `make_call()` gives a host function with memory of its own (see `Host.call`). `when`: "always", or "auto": only
    where the next calls show that the device waits for the host. `captured_bytes`, `allocated_bytes` (without results
    and with them): as of the call's `Host`; `give_back` returns memory that only plain runs need. `refused` says why
    calls run plainly, None if they do not.
    """

    def __init__(
        self,
        artifact: Artifact,
        make_call: Callable[[], Call],
        when: Literal["always", "auto"],
        device: CudaDevice,
        captured_bytes: int = 0,
        allocated_bytes: tuple[int, int] = (0, 0),
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.artifact, self.make_call, self.when, self.device = artifact, make_call, when, device
        self.captured_bytes, self.allocated_bytes, self.give_back = captured_bytes, allocated_bytes, give_back
        self.host_share = host_share(result_bytes(artifact.program, range(len(artifact.program.results))))
        self.handed_out = handed_out(artifact)
        #: Nothing but gradients outlives a replay.
        self.hands_out_gradients = bool(self.handed_out) and self.handed_out <= _gradients(artifact)
        self.refused = why_not(artifact) or (why_not_worth_it(artifact) if when == "auto" else None)
        self.captures = 0
        self.replays = 0
        self._plain = make_call()
        self._streams: dict[int, _Stream] = {}
        self._lock = threading.Lock()

    def call(self, values: Sequence[object], generation: object = None) -> tuple:
        if self.refused or self.device.is_capturing():
            return self._plain(values, generation)
        number = self.device.stream()
        stream = self._streams.get(number)
        if stream is None:
            with self._lock:
                stream = self._streams.setdefault(number, _Stream(self))
        with stream.lock:
            return stream.call(values, generation)

    def account(self) -> dict[str, Any]:
        """For `lampwork.stats`: how many captures and replays there were, and why calls run plainly, if they do."""
        return {"captures": self.captures, "replays": self.replays, "refused": self.refused}

    def refuse(self, diagnostic: Diagnostic) -> None:
        self.refused = diagnostic
        self._streams = {}

    def release(self) -> None:
        """Give back captures and their memory; results that the program holds keep theirs."""
        self._streams = {}


def why_not(artifact: Artifact) -> Diagnostic | None:
    """Why the program can never be captured; None if nothing speaks against it."""
    program = artifact.program
    if artifact.bodies:
        reason = "a branch or a loop is run by the host"
        return Diagnostic("graph-host-value", reason, remedy=HOST_REMEDY)
    if program.found:
        return Diagnostic("graph-host-value", "a size depends on the contents of a tensor", remedy=HOST_REMEDY)
    elsewhere = {name for name, buffer in program.buffers.items() if buffer.device}
    for step in program.steps:
        numbers = isinstance(step, Extern) and step.op == _torch.LAUNCH and step.args and step.args[-1]
        if isinstance(step, Extern) and (numbers or step.op.startswith(_torch.GIVEN_NUMBERS)):
            reason = f"{step.op} takes a number that is another on each call"
            return Diagnostic("graph-host-value", reason, step.origin.location, HOST_REMEDY)
        if isinstance(step, Extern) and elsewhere.intersection(step_buffers(step)):
            remedy = "Keep its tensors on the GPU."
            return Diagnostic("graph-cpu-operator", f"{step.op} works on the CPU", step.origin.location, remedy)
        if isinstance(step, Check):
            reason = f"the host checks a condition on the device: {step.message}"
            return Diagnostic("graph-host-check", reason, step.origin.location, HOST_REMEDY)
    return None


def why_not_worth_it(artifact: Artifact) -> Diagnostic | None:
    """Why a replay would cost the host more than the launches do, in so small a program that measuring finds noise."""
    passed = sum(not is_static(source) for source in artifact.inputs) + len(artifact.program.results)
    return GAINS_NOTHING if issue_seconds(artifact.program) < replay_seconds(passed) else None


def host_share(kept_bytes: int) -> float:
    """The share of the device's time that issuing must take for a graph to pay which keeps so much between calls."""
    return HOST_SHARE if kept_bytes <= LITTLE_BYTES else 1.0


def result_bytes(program: Program, results: Iterable[int]) -> int:
    """Memory of these results of the program, as far as sizes are known; what lies in one buffer counts once."""
    found: dict[str, int] = {}
    for index in results:
        result = program.results[index]
        if isinstance(result, FromBuffer):
            sizes = [size for size in result.view.shape if isinstance(size, int)]
            if len(sizes) == len(result.view.shape):
                size_bytes = math.prod(sizes) * ITEM_SIZE_BYTES[result.view.dtype]
                found[result.view.buffer] = max(size_bytes, found.get(result.view.buffer, 0))
    return sum(found.values())


def handed_out(artifact: Artifact) -> frozenset[int]:
    """The results whose memory the caller gets while it is a capture's: those that the program made; of a step that
    leaves gradients, these alone if the others are little."""
    results = artifact.program.results
    made = {index: each.view.buffer for index, each in enumerate(results) if isinstance(each, FromBuffer)}
    buffers = {made[index] for index in _gradients(artifact) if index in made}
    others = [index for index, buffer in made.items() if buffer not in buffers]
    if not buffers or len(others) > COPIED_OUT or result_bytes(artifact.program, others) > COPIED_OUT_BYTES:
        return frozenset(made)
    return frozenset(index for index, buffer in made.items() if buffer in buffers)


def _gradients(artifact: Artifact) -> frozenset[int]:
    """The results that become gradients."""
    return frozenset(
        effect.value.index
        for effect in artifact.effects
        if isinstance(effect, CallSetAttribute) and effect.name == "grad" and isinstance(effect.value, TensorValue)
    )


def issue_seconds(program: Program) -> float:
    """What it costs the host to issue the program's launches, about."""
    launches = sum(isinstance(step, Launch) for step in program.steps)
    calls = sum(isinstance(step, Extern) for step in program.steps)
    return ISSUE_SECONDS + launches * ISSUE_SECONDS_A_KERNEL + calls * ISSUE_SECONDS_A_CALL


def replay_seconds(tensors: int, gradients: int = 0) -> float:
    """What a replay costs the host, where so many tensors are copied in or handed out."""
    return REPLAY_SECONDS + tensors * REPLAY_SECONDS_A_TENSOR + gradients * REPLAY_SECONDS_A_GRADIENT


class _Stream:
    """The captures of one program on one stream. Its lock is held during a call."""

    def __init__(self, runner: GraphRunner) -> None:
        self.runner, self.device = runner, runner.device
        self.artifact = runner.artifact
        self.lock = threading.Lock()
        self.host = runner.make_call()
        self.calls = 0
        self.copied = tuple(
            index for index, source in enumerate(self.artifact.inputs) if not is_static(source)
        )  # inputs that may be other tensors on each call
        self.kept = tuple(sorted(self.artifact.accessed - {*self.copied}))
        #: A generation speaks of everything that is kept.
        self.lasting = all(is_lasting(self.artifact.inputs[index]) for index in self.kept)
        self.inputs: dict[int, torch.Tensor] = {}
        self.generation: object = None
        self.places: tuple[int, ...] = ()
        self.captures_left = CAPTURES_FOR_WEIGHTS
        self.gains: list[float] = []
        self.handed_out: list[_Capture] = []
        self.copying: _Capture | None = None

    def call(self, values: Sequence[object], generation: object) -> tuple:
        runner = self.runner
        self.calls += 1
        if self.calls <= PLAIN_CALLS:
            return self.host(values, generation)
        if runner.when == "auto" and len(self.gains) < MEASURED_CALLS and not runner.refused:
            return self._measured(values, generation)
        if runner.refused:  # another stream found out
            return self.host(values, generation)
        try:
            capture = self._capture_for(values, generation)
        except NotCapturable as reason:
            runner.refuse(reason.diagnostic)
            return self.host(values, generation)
        return self._replay(capture, values)

    def _measured(self, values: Sequence[Any], generation: object) -> tuple:
        """A plain call that finds out whether the device waits for the host."""
        host_seconds, device_seconds, results = self.device.measure(lambda: self.host(values, generation))
        passed = sum(values[index].nbytes for index in self.copied if isinstance(values[index], torch.Tensor))
        tensors = len(self.copied) + len(results)
        self.gains.append(min(
            host_seconds - self.runner.host_share * device_seconds - passed / COPIED_BYTES_A_SECOND,
            host_seconds - replay_seconds(tensors),
        ))  # fmt: skip
        # The host's worst times say nothing of the program: a collection of garbage, code loaded on its first use.
        if len(self.gains) == MEASURED_CALLS and min(self.gains) < 0:
            self.runner.refuse(GAINS_NOTHING)
        return results

    # Captures --------------------------------------------------------------------------------------------------------

    def _capture_for(self, values: Sequence[Any], generation: object) -> _Capture:
        """A capture that may be replayed now. Raises `NotCapturable`; nothing has run then."""
        if not self._weights_stay(values, generation):
            self.captures_left -= 1
            if self.captures_left < 0:
                raise NotCapturable(
                    "graph-weights", "parameters or buffers are replaced again and again", "Write into them in place."
                )
            self.handed_out, self.copying = [], None
            self.places = tuple(values[index].data_ptr() for index in self.kept)
            self.generation = generation
        for capture in self.handed_out:
            if capture.is_free():
                return capture
        if len(self.handed_out) < HANDED_OUT and _torch.tensor_layout() is not None:
            capture = self._new_capture(values, generation, hands_out=True)
            self.handed_out.append(capture)
            return capture
        if self.copying is None:
            self.copying = self._new_capture(values, generation, hands_out=False)
        return self.copying

    def _weights_stay(self, values: Sequence[Any], generation: object) -> bool:
        if not self.handed_out and self.copying is None:
            return False
        if self.lasting and generation is not None and generation is self.generation:
            return True
        if self.places != tuple(values[index].data_ptr() for index in self.kept):
            return False
        self.generation = generation
        return True

    def _new_capture(self, values: Sequence[object], generation: object, hands_out: bool) -> _Capture:
        if not self.inputs:
            self.inputs = memory_for_inputs(self.artifact, values, self.copied, self.kept, self.device)
        passed = list(values)
        for index, tensor in self.inputs.items():
            passed[index] = tensor
        program = self.artifact.program
        runner = self.runner
        if not runner.captures:
            runner.give_back()
        run = lambda: self.host(passed, generation)
        if shares_what_passes(program):
            without_results, with_them = runner.allocated_bytes
            # The caller lets go of gradients before the next replay, so they need no memory of their own where they may
            # lie in the pool. Any other result may be held for long, and would hold all of the pool.
            inside = with_them if runner.hands_out_gradients else None
            replay, results = self.device.record(
                run, program.workspace_bytes, self.device.pool(), program, without_results, inside
            )
        else:
            replay, results = self.device.record(run, runner.captured_bytes)
        runner.captures += 1
        fresh = [isinstance(result, FromBuffer) for result in self.artifact.program.results]
        return _Capture(replay, results, fresh, runner.handed_out if hands_out else frozenset())

    # Calls -----------------------------------------------------------------------------------------------------------

    def _replay(self, capture: _Capture, values: Sequence[Any]) -> tuple:
        inputs, written = self.inputs, self.artifact.program.written_inputs
        with _torch.below_autograd():  # what a step is passed may be a leaf that requires grad
            for index, tensor in inputs.items():
                tensor.copy_(values[index])
            capture.replay()
            for index in written:
                if index in inputs:
                    values[index].copy_(inputs[index])
        self.runner.replays += 1
        program = self.artifact.program
        raised = raised_inputs(program)
        if raised:
            _torch.increment_version(*[values[index] for index in raised])
        return versioned(program, results_for_caller(program.results, capture.results, values, capture.giver()))


def memory_for_inputs(
    artifact: Artifact, values: Sequence[object], copied: Iterable[int], kept: Iterable[int], device: CudaDevice
) -> dict[int, torch.Tensor]:
    """Memory of a graph's own for the inputs that are `copied` into it. Raises `NotCapturable` where one of `values`,
    or one that is `kept` where it is, cannot be in a graph.
    """
    written, kept, copied = set(artifact.program.written_inputs), set(kept), set(copied)
    ranges: list[tuple[int, int, int]] = []
    made: dict[int, torch.Tensor] = {}
    for index, value in enumerate(values[: len(artifact.inputs)]):
        if value is None or (index not in kept and index not in copied):
            continue
        if not isinstance(value, torch.Tensor):
            raise NotCapturable("graph-input", "an input is not a tensor")
        if not device.holds(value):
            raise NotCapturable("graph-input", "an input is not on the program's device", "Move it there first.")
        start = value.data_ptr()
        ranges.append((start, start + span(value.shape, value.stride()) * value.element_size(), index))
        if index in copied:
            if _overlaps_itself(value):
                raise NotCapturable(
                    "graph-input", "an input has several elements in one place (it was expanded)",
                    "Call contiguous() on it first.",
                )  # fmt: skip
            with torch.inference_mode(False):
                made[index] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    ranges.sort()
    for (_, end, one), (start, _, other) in zip(ranges, ranges[1:]):
        if start < end and {one, other} & written:
            raise NotCapturable("graph-input", "an input that is written shares memory with another one")
    return made


def results_for_caller(
    results: Sequence[Result], made: Sequence[Any], values: Sequence[Any], give: Callable[[torch.Tensor], torch.Tensor]
) -> list[Any]:
    """`results` of a call on `values`, where the captured run `made` these; `give` says what is seen of a tensor that
    the program made."""
    out: list[Any] = []
    for result, each in zip(results, made):
        if isinstance(result, FromInput):
            out.append(values[result.input])
        elif isinstance(result, ViewOfInput):
            dtype = getattr(torch, result.dtype)
            seen = view_result(values[result.input], dtype, result.shape, result.strides, result.offset)  # type: ignore
            out.append(seen.conj() if result.conjugate else seen)
        elif isinstance(result, FromBuffer):
            tensor = give(each)
            out.append(tensor.conj() if result.conjugate else tensor)
        else:
            out.append(each)
    return out


class _Capture:
    """One graph with its results' memory.

    `results` are what the captured run returned; those that the program made (`fresh`) are kept as long as the capture.
    The caller gets the memory of those `handed_out`, and copies of the others.
    """

    def __init__(
        self, replay: Callable[[], None], results: tuple, fresh: Sequence[bool], handed_out: frozenset[int]
    ) -> None:
        self.replay = replay
        self.results = tuple(owners_alone(results, fresh))
        self._whole: dict[int, torch.Tensor] = {}  # result -> its storage from the first element on, contiguous
        self._owners: dict[int, int] = {}  # storage -> how many of our own tensors own it
        if handed_out:
            ours = {id(made): made for index, made in enumerate(self.results) if index in handed_out}
            # Never through `untyped_storage()`: that Python object would be one more owner, now and then.
            with torch.inference_mode(False), _torch.below_autograd():
                for key, made in ours.items():
                    self._whole[key] = made.as_strided((_end(made),), (1,), 0)
            for made in (*ours.values(), *self._whole.values()):
                address = _torch.storage_address(made)
                self._owners[address] = self._owners.get(address, 0) + 1

    def is_free(self) -> bool:
        """Nobody but us owns memory of the results."""
        return all(_torch.storage_use_count_at(address) <= count for address, count in self._owners.items())

    def giver(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """What the caller sees of each result of one call."""
        copy = copier()
        return lambda made: self.alias(made) if id(made) in self._whole else copy(made)

    def alias(self, made: torch.Tensor) -> torch.Tensor:
        """A fresh tensor over the memory of `made`, with no tie to autograd; in the caller's inference mode."""
        empty = torch.empty(0, dtype=made.dtype, device=made.device)
        return empty.set_(self._whole[id(made)], made.storage_offset(), made.shape, made.stride())


def copier() -> Callable[[torch.Tensor], torch.Tensor]:
    """Gives tensors in memory of their own; those that are views of one storage stay views of one storage."""
    copies: dict[int, torch.Tensor] = {}

    def copy(made: torch.Tensor) -> torch.Tensor:
        address = made.untyped_storage().data_ptr()
        base = copies.get(address)
        if base is None:
            whole = torch.empty(0, dtype=torch.uint8, device=made.device).set_(made.untyped_storage())
            base = copies[address] = whole.clone()
        empty = torch.empty(0, dtype=made.dtype, device=made.device)
        return empty.set_(base.untyped_storage(), made.storage_offset(), made.shape, made.stride())

    return copy


def owners_alone(made: Sequence[Any], fresh: Sequence[bool]) -> list[Any]:
    """`made`, where it is `fresh` by tensors that own its memory and nothing else; one is still one.

    A view owns what it is a view of, too, and owners are counted. What is lazily conjugated is taken as it lies there.
    """
    alone: dict[int, Any] = {}
    with _torch.below_autograd():
        for each, own in zip(made, fresh):
            if own and id(each) not in alone:
                alone[id(each)] = (each.conj() if each.is_conj() else each).detach()
    return [alone.get(id(each), each) for each in made]


def _end(tensor: torch.Tensor) -> int:
    """Elements from the start of the storage to the tensor's last."""
    return tensor.storage_offset() + span(tensor.shape, tensor.stride())


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory: strides, smallest first, do not step over what is inside."""
    span = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride < span:
            return True
        span = stride * (size - 1) + span
    return False
