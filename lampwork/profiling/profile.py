"""`lampwork.profile`: where the time of a call goes, what compiling could gain at most, and what else would help."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch

from lampwork.ir.record import record
from lampwork.profiling import words
from lampwork.profiling.advice import Advice, advise
from lampwork.profiling.machine import machine
from lampwork.profiling.operators import Recording, least
from lampwork.profiling.parts import Parts, parts_of
from lampwork.verdict.assess import busy
from lampwork.verdict.program import Program, loss_of

ROUNDS = 3
CALLS, CALL_SECONDS = 30, 2.0


@record
class Profile:
    """Print it: one sentence, the parts of a call, the operators that take longest, and what else would help.

    name      what was profiled
    unit      what a call is called: "call" or "step"
    parts     seconds by what they go to, and the least that a compiled call could take
    advice    what was tried besides, where it gained something
    notes     what keeps the answer from being more certain
    """

    name: str
    unit: str
    task: str
    parts: Parts
    device: str
    advice: list[Advice] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return words.sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it; times in seconds."""
        return words.as_dict(self)

    def html(self) -> str:
        """One page that needs nothing beside it."""
        from lampwork.profiling.page import page

        return page(self)

    def __str__(self) -> str:
        return words.whole(self)


def profile_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], backward: bool | None
) -> Profile:
    """See `lampwork.profile`."""
    notes = busy()
    program = Program(function, args, kwargs, backward)
    program.observe()
    device = "cuda" if "cuda" in program.devices() else "cpu"
    for _ in range(2):
        program.run(function)
    call = _typical(lambda: program.run(function), device)
    rounds = []
    for number in range(ROUNDS):
        program.snapshot.restore()
        with Recording(device == "cuda", lines=number == 0) as recording:
            program.run(function)
        rounds.append(recording.operators)
    parts = parts_of(call, 0.0, least(rounds), machine(device))

    def run(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        result = function(*args, **kwargs)
        if program.backward:
            loss_of(result).backward()

    restore = program.snapshot.restore
    advice, refused = advise(function, args, kwargs, run, restore, parts, device, program.task == "train")
    return Profile(program.name, "call", program.task, parts, device, advice, (*notes, *refused))


def _typical(call: Callable[[], object], device: str) -> float:
    times: list[float] = []
    end = time.perf_counter() + CALL_SECONDS
    while len(times) < 5 or (len(times) < CALLS and time.perf_counter() < end):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
