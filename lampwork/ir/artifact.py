"""`Artifact`: everything the runtime needs to serve calls of one captured region, without any compiler stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from lampwork.ir.differentiation import Backward
from lampwork.ir.guard import Guard
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.record import record
from lampwork.ir.region import Outcome
from lampwork.ir.source import Source
from lampwork.ir.template import Effect, HostCall, NewThing

if TYPE_CHECKING:
    from lampwork.errors import Diagnostic

FORMAT = 2


@record
class InitialState:
    """An optimizer's state that was made before the program ran: for the parameters at `positions` of its parameter
    group `group`, which had none (see `capture/natives/optimizers.py`). `optimizer`: where it is found."""

    optimizer: Source
    group: int
    positions: tuple[int, ...]


@record
class CompiledBody:
    """A graph that an operator of the program's runs (`ir/body.py`): an artifact that has a program only. `strides`: of
    what it takes; None for row-major tensors whose sizes vary."""

    artifact: Artifact
    strides: tuple[tuple[int, ...] | None, ...]


@record
class Artifact:
    """Stored where it is `portable`; a field that is added needs a line in `runtime/cache/schema.py`.

    `host_source`: Python text of the host function (see `codegen/host.py`).
    `varied`: the sizes and integers that had differed between calls when it was compiled, so that they are symbols.
    `specialised`: sizes that would have been symbols, had the program not needed them as numbers.
    `initial_states`: those that a call must make which finds none, so that the guards hold.
    `locks`: those that whoever serves a call holds meanwhile, in the order in which they are taken.
    `host_calls`: see Region.
    `derived`: see FunctionalGraph. `versions`: Lampwork, torch, Python, machine features it was made for;
    `backward`: how results are differentiated, None where none requires grad. `compile_seconds`: by stage.
    `operators`: what was asked of operators that other libraries brought, see `runtime/cache/operators.py`.
    `libraries`: digests of those whose functions ran natively, see `runtime/cache/libraries.py`.
    `unaccessed`: inputs whose memory no step of the program reads or writes, and which no result is.
    `bodies`: the graphs that operators of the program run, by digest.
    `report`: texts by stage for `explain`, filled only on request.
    """

    name: str
    guards: tuple[Guard, ...]
    inputs: tuple[Source, ...]
    objects: tuple[NewThing, ...]
    effects: tuple[Effect, ...]
    outcome: Outcome
    program: Program
    native: NativeCode
    host_source: str
    derived: tuple[tuple[str, tuple[int, ...], tuple[Any, ...]], ...] = ()
    code_digests: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    compile_seconds: Mapping[str, float] = field(default_factory=dict)
    backward: Backward | None = None
    specialised: tuple[Diagnostic, ...] = ()
    varied: frozenset[tuple[Source, str, int]] = frozenset()
    portable: bool = True
    unaccessed: frozenset[int] = frozenset()
    initial_states: tuple[InitialState, ...] = ()
    locks: tuple[Source, ...] = ()
    host_calls: tuple[HostCall, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, CompiledBody] = field(default_factory=dict)
    report: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def accessed(self) -> set[int]:
        """Inputs whose memory is in the graph. Of others nothing but that they are there counts: gradients that a step
        drops are other tensors each time. (A stored program does not tell: its steps have lost what they read.)"""
        return set(range(len(self.inputs))) - self.unaccessed

    @property
    def programs(self) -> tuple[Program, ...]:
        """The program, that of the backward pass where there is one, and those of the graphs that they run."""
        return tuple(each.program for each in self.parts)

    @property
    def parts(self) -> tuple[Artifact, ...]:
        """The artifacts of all these programs."""
        own = [self] if self.backward is None or self.backward.artifact is None else [self, self.backward.artifact]
        return (*own, *(part for each in own for body in each.bodies.values() for part in body.artifact.parts))
