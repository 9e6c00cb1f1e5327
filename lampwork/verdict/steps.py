"""A loop of the user's, assessed while it runs: each step is done once, eagerly or by a candidate, in turns.

The first steps run eagerly and are looked at: which modules are called, what waits for data. Then each candidate takes
a few steps to start, and all take turns until the steps are used up. After that everything is eager again.

A step lasts until the next one begins, so the loading of data is part of it. Where workers load ahead, a candidate
keeps its turn until what was loaded before it is used up, and is measured from there on.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lampwork.ir.record import record
from lampwork.verdict.candidate import Allowed, Candidate, Region, Way, repeated_blocks, tables, ways
from lampwork.verdict.horizon import Measured
from lampwork.verdict.once import Compared
from lampwork.verdict.program import Watched, watching_modules
from lampwork.verdict.search import EAGER, Found, Say, Tried
from lampwork.verdict.starting import Starting

#: Steps that warm eager up, that are looked at, and that a candidate starts with.
WARM, LOOKED_AT, STARTING = 2, 4, 4

#: A module that takes less than this share of all forward passes is not worth compiling (losses, metrics).
WORTH = 0.05

#: Fewer rounds than these say nothing.
LEAST_ROUNDS = 3

#: Whose step it is, and who is told how long it took.
Turn = tuple[Tried, Callable[[float], None]]


@record(frozen=False)
class Clock:
    """Seconds of one step by what they went to; what is left is the program's own Python, and the backward pass."""

    parts: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.parts[name] = self.parts.get(name, 0.0) + seconds


class Forwards:
    """A candidate of a loop: compiled forwards that stand in their modules while it has its turn."""

    def __init__(self, candidate: Candidate) -> None:
        self.way = way = candidate.way
        self.modules = candidate.region.modules
        self.forwards = [way.compile(each.forward) for each in self.modules]
        self.failure = ""
        self.compared = Compared()
        self._before: list[Any] = []

    def install(self, compare: bool) -> None:
        self._before = [vars(each).get("forward") for each in self.modules]
        for module, forward in zip(self.modules, self.forwards):
            eager = module.forward
            compiled = self._or_eager(forward, eager) if self.way.peer else forward
            module.forward = self.compared.beside(module, eager, compiled) if compare else compiled

    def _or_eager(self, compiled: Callable[..., Any], eager: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.compile` may raise where eager does not: the step goes on eagerly, and this candidate is out."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            if not self.failure:
                try:
                    return compiled(*args, **kwargs)
                except Exception as error:
                    self.failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return eager(*args, **kwargs)

        return forward

    def remove(self) -> None:
        for module, before in zip(self.modules, self._before):
            if before is None:
                vars(module).pop("forward", None)
            else:
                module.forward = before
        self._before = []


class Trial:
    """Steps of a loop given to candidates. `begin` is called where a step begins, `end` when the loop is over.

    steps     for how many the trial lasts
    ahead     steps whose data may be loaded before they begin
    """

    def __init__(self, steps: int, calls: float, allowed: Allowed, starting: Callable[[str], Starting], say: Say,
                 ahead: int = 0) -> None:  # fmt: skip
        self.steps, self.calls, self.allowed, self.say, self.ahead = steps, calls, allowed, say, ahead
        self._starting = starting
        self.began = time.perf_counter()
        self.done = 0
        self.over = False
        self.watched = Watched()
        self.clock = Clock()
        self.shares: dict[str, float] = {}
        self.device = "cpu"
        self.eager = Tried(EAGER, start=0.0, first=0.0)
        self.tried: list[Tried] = []
        self.left_out: list[tuple[str, str]] = []
        self._forwards: dict[int, Forwards] = {}
        self._current: Turn | None = None
        self._installed: Forwards | None = None
        self._started = 0.0
        self._plan = self._turns()
        self._looking = contextlib.ExitStack()
        self._hooks = [
            register_optimizer_step_pre_hook(self._stepping), register_optimizer_step_post_hook(self._stepped),
        ]  # fmt: skip
        #: Seconds of a step of each candidate, by id, of every whole round.
        self._rounds: list[dict[int, float]] = []

    def begin(self) -> None:
        """A step begins: the one before has ended, and the next candidate has its turn."""
        if self.over:
            return
        self._finish_step()
        if self.done >= self.steps:
            self.end()
            return
        self._next()

    def end(self) -> None:
        """The loop, or the trial, is over: everything is as it was."""
        if not self.over:
            self.over = True
            self._remove()
            self._looking.close()
            self._plan.close()
            for hook in self._hooks:
                hook.remove()

    def wait(self, seconds: float) -> None:
        """So long the step waited for its data."""
        self.clock.add("waiting for data", seconds)

    # ------------------------------------------------------------------------------------------------------------------

    def _finish_step(self) -> None:
        if self._current is None:
            return
        self._synchronize()
        seconds = time.perf_counter() - self._started
        _, note = self._current
        note(seconds)
        self._current = None
        self.done += 1

    def _next(self) -> None:
        try:
            tried, note = next(self._plan)
        except StopIteration:
            self.end()
            return
        if tried.failure:
            tried = self.eager
        self._install(tried)
        self._current = tried, note
        self.clock = Clock()
        self._synchronize()
        self._started = time.perf_counter()

    def _stepping(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not any(each is optimizer for each in self.watched.optimizers):
            self.watched.optimizers.append(optimizer)
        self._entered = _now()

    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.clock.add("optimizer", _now() - self._entered)

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _install(self, tried: Tried) -> None:
        wanted = self._forwards.get(id(tried))
        if wanted is self._installed and wanted is not None:
            return
        self._remove()
        if wanted is not None:
            wanted.install(compare=tried.compared is None)
            self._installed = wanted

    def _remove(self) -> None:
        if self._installed is not None:
            self._installed.remove()
            self._installed = None

    # ------------------------------------------------------------------------------------------------------------------

    def _turns(self) -> Generator[Turn, None, None]:
        """Whose turn it is, step by step, and who is told how long the step took."""
        self.say("eager steps")
        for _ in range(WARM):
            yield self.eager, _forget
        looked: list[tuple[float, Clock]] = []
        # Hooks of modules are gone before anything is compiled: they would be compiled, too.
        self._looking.enter_context(watching_modules(self.watched, lambda module: None, _now))
        for _ in range(LOOKED_AT):
            self._forward_before = self.watched.forward_seconds
            yield self.eager, lambda seconds: looked.append((seconds, self.clock))
            looked[-1][1].add("forward", self.watched.forward_seconds - self._forward_before)
        self._looking.close()
        self.eager.rough = sorted(seconds for seconds, _ in looked)[len(looked) // 2]
        self.shares = _shares(looked)
        candidates, why = self._candidates()
        if why:
            self.left_out += [(each.name, why) for each in candidates]
            return
        for candidate in candidates:
            tried = Tried(candidate)
            self.tried.append(tried)
            self.say(f"trying {candidate.name}")
            yield from self._start(tried)
        yield from self._take_turns()

    def _candidates(self) -> tuple[list[Candidate], str]:
        """In order of promise, as many as there are steps for; and why none is tried, if so."""
        modules = self.compiled
        self.device = "cuda" if any(p.device.type == "cuda" for m in modules for p in m.parameters()) else "cpu"
        task = "train" if self.watched.optimizers else "infer"
        whole = Region("", tuple(modules))
        found = [Candidate(whole, each) for each in ways(task, self.device, self.allowed) if each.autocast is None]
        blocks = repeated_blocks(modules[0]) if modules else None
        if blocks is not None:
            found.append(Candidate(blocks, Way()))
        if not modules:
            return [Candidate(Region(), Way())], "no module was called"
        self.starting = self._starting(self.device)
        if self.calls * self.eager.rough <= self.starting.cold:
            return found, "all steps together are shorter than loading a compiler"
        room = (self.steps - WARM - LOOKED_AT) // (STARTING + (LEAST_ROUNDS + 3) * (self._turn + 1))
        self.left_out += [(each.name, "there were no steps left for it") for each in found[max(1, room) :]]
        return found[: max(1, room)], ""

    @property
    def compiled(self) -> list[torch.nn.Module]:
        """The modules that are worth compiling, the one that takes longest first."""
        total = self.watched.forward_seconds
        worth = [each for each in self.watched.modules if each.seconds >= WORTH * total]
        return [each.module for each in sorted(worth, key=lambda each: -each.seconds)]

    def _start(self, tried: Tried) -> Iterator[Turn]:
        times: list[float] = []
        made = time.perf_counter()
        self._forwards[id(tried)] = forwards = Forwards(tried.candidate)
        made = time.perf_counter() - made
        for _ in range(STARTING):
            yield tried, times.append
            compared = forwards.compared
            if compared.seconds:
                times[-1] -= compared.seconds  # eager's call beside ours
                compared.seconds = 0.0
            tried.compared = compared.result or tried.compared
            tried.failure = forwards.failure
            if tried.compared is not None and not tried.compared.accepted:
                tried.failure = f"other numbers than eager: {tried.compared.reasons[0]}"
            if forwards is self._installed and compared.done:
                self._remove()
        tried.first, tried.rough = times[0], min(times[2:])
        tried.start = self.starting.cold + made + max(0.0, sum(times) - len(times) * tried.rough)
        for stats in tables(forwards.forwards):
            tried.breaks += len(stats["breaks"])
            tried.fallbacks += len(stats["fallbacks"])

    @property
    def _turn(self) -> int:
        """How many steps a turn lasts: what was loaded ahead, and one that is measured."""
        return self.ahead + 1

    def _take_turns(self) -> Iterator[Turn]:
        entrants = [self.eager, *(each for each in self.tried if not each.failure)]
        number = 0
        while True:
            times: dict[int, float] = {}
            number += 1
            self.say(f"{len(entrants)} candidates in turns, round {number}")
            for offset in range(len(entrants)):
                each = entrants[(number + offset) % len(entrants)]
                for _ in range(self.ahead):
                    yield each, _forget
                yield each, lambda seconds, each=each: times.__setitem__(id(each), seconds)  # type: ignore[misc]
            self._rounds.append(times)

    def why_not_compared(self, tried: Tried) -> str:
        """Why the numbers of a candidate were not compared with eager's; empty where they were."""
        forwards = self._forwards.get(id(tried))
        return "" if tried.compared is not None or forwards is None else forwards.compared.why_not

    def found(self) -> Found:
        """What is known now. Candidates without enough rounds are left out."""
        whole = [each for each in self._rounds if len(each) == 1 + sum(not t.failure for t in self.tried)]
        if len(whole) >= LEAST_ROUNDS:
            for each in [self.eager, *self.tried]:
                if not each.failure:
                    samples = tuple(one[id(each)] for one in whole)
                    each.measured = Measured(samples, () if each is self.eager else (each.start,))
        elif self.tried:
            self.left_out += [(each.candidate.name, "the loop ended too early") for each in self.tried]
            self.tried = []
        return Found(self.eager, self.tried, self.left_out, time.perf_counter() - self.began)


def _forget(seconds: float) -> None:
    """A step that is not measured."""


def _now() -> float:
    """When the device, too, has done what it was given."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _shares(looked: list[tuple[float, Clock]]) -> dict[str, float]:
    """Seconds of a step by part, the medians of what was looked at."""
    names = ("waiting for data", "forward", "optimizer")
    parts = {}
    for name in names:
        ordered = sorted(clock.parts.get(name, 0.0) for _, clock in looked)
        parts[name] = ordered[len(ordered) // 2]
    whole = sorted(seconds for seconds, _ in looked)[len(looked) // 2]
    rest = "backward and the rest" if parts["optimizer"] else "the rest"
    parts[rest] = max(0.0, whole - sum(parts.values()))
    return {name: seconds for name, seconds in parts.items() if seconds > 0 and not math.isnan(seconds)}
