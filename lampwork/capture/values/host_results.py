"""Numbers that a call of the host gives anew each time: `random.random()`, `time.time()`.

    scale = 0.5 + random.random()          host 0: random(generator);  host 1: add(0.5, host 0)
    return x * scale, scale                an input of the graph: host 1;  and what the program returns

Such a number is an `Element` whose value is there before the graph runs: the entry makes the call after its
guards (`ir.template.HostCall`), in the program's order and once, so the state of a generator is afterwards what eager
leaves. What Python's functions make of such numbers is computed there, too. Beside tensors the number is an input of
the graph. A branch on it breaks: which way the program goes is known on no call before it is made.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.record.fake import Fake
from lampwork.fakes.fake import DataDependent, TensorSpec, make_fake
from lampwork.ir.record import record
from lampwork.ir.reference import ObjectRef
from lampwork.ir.source import HostInput
from lampwork.ir.template import HostCall, HostValue, Template

_CPU = torch.device("cpu")
_DTYPES = {float: torch.float64, int: torch.int64, bool: torch.bool}


@record
class HostResult:
    """What host call `index` gives. `calls`: those of the capture."""

    calls: HostCalls
    index: int

    def tensor(self, kind: type, device: torch.device = _CPU) -> Fake:
        """The number, of class `kind`, as an input of the graph: a tensor of no dimensions on `device`."""
        return self.calls.number_input(self.index, kind, device)


@record(frozen=False)
class _Call:
    """`function(*args, **kwargs)`. `changes`: it is made whether its result is used or not."""

    function: Any
    args: tuple
    kwargs: dict[str, Any]
    changes: bool


class HostCalls:
    """The host calls of one capture. They take plain data, objects from outside, sizes, and results of earlier ones."""

    def __init__(self, recorder: Any, tensors: Any) -> None:
        self.recorder = recorder
        self.tensors = tensors
        self.calls: list[_Call] = []
        #: Numbers that are read, in this order, when the graph has run, whether they are used or not.
        self.late: list[Any] = []
        self._inputs: dict[tuple[int, torch.device], Fake] = {}
        self._used: set[int] = set()
        self._tensors: dict[int, tuple[Fake, HostResult]] = {}

    def make(
        self, function: Any, args: tuple, kwargs: dict[str, Any] | None = None, changes: bool = True
    ) -> HostResult:
        """Enters a call. `function` has an importable name, or is the reference of one that the entry's process has."""
        self.calls.append(_Call(function, args, kwargs or {}, changes))
        return HostResult(self, len(self.calls) - 1)

    def number_input(self, index: int, kind: type, device: torch.device) -> Fake:
        found = self._inputs.get((index, device))
        if found is None:
            if kind not in _DTYPES:
                raise DataDependent("what is done with what the host gives")
            dtype = _DTYPES[kind]
            on = "" if device == _CPU else str(device)
            with self.recorder._paused():
                found = make_fake(TensorSpec((), (), dtype, device))
            source = HostInput(index, str(dtype).removeprefix("torch."), on)
            self._inputs[index, device] = self._enter(index, found, source)
        return found

    def array_input(self, result: HostResult, example: Any) -> Fake:
        """The memory of an array that a call gives, of the type and sizes of `example`, as an input of the graph."""
        with self.recorder._paused():
            like = torch.from_numpy(example)
            found = make_fake(TensorSpec(tuple(like.shape), like.stride(), like.dtype))
        return self._enter(result.index, found, HostInput(result.index, ""))

    def tensor_input(self, result: HostResult, spec: TensorSpec) -> Fake:
        """The tensor that a call gives, with such metadata, as an input of the graph."""
        with self.recorder._paused():
            found = make_fake(spec)
        made = self._enter(result.index, found, HostInput(result.index, ""))
        self._tensors[id(made)] = made, result
        return made

    def result_in(self, tensor: Any) -> HostResult | None:
        """The call whose result a tensor is, to which nothing was written; None for any other."""
        _, result = self._tensors.get(id(tensor), (None, None))
        return result if result is None or _torch.storage_key(tensor) not in self.recorder.written else None

    def _enter(self, index: int, fake: Fake, source: HostInput) -> Fake:
        self._used.add(index)
        self.recorder.placeholder(fake)
        self.tensors.inputs.append(source)
        self.tensors.fakes.append(fake)
        return fake

    def template(self, result: HostResult) -> Template:
        self._used.add(result.index)
        return HostValue(result.index)

    def finish(self, templates: Any) -> tuple[HostCall, ...]:
        """The calls that the entry makes: all that change something, and those whose results are used."""
        made = []
        for index in range(len(self.calls) - 1, -1, -1):
            call = self.calls[index]
            if call.changes or index in self._used:
                kwargs = tuple((name, templates.template(each)) for name, each in call.kwargs.items())
                function = call.function
                if not isinstance(function, ObjectRef):
                    function = templates.loader.guards.reference(function)
                made.append(HostCall(index, function, templates.items(call.args), kwargs))
        return tuple(reversed(made))
