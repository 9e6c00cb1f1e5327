"""Which candidate is best for so many calls: tries them one after the other, and drops early what cannot pay.

A candidate is tried from the state that the program was found in: its first calls, with an empty cache, are its cost;
what they leave is compared with eager's. Then all that are still in question and eager take turns, so that drift of the
machine meets all alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import torch

from lampwork._torch import fresh_peer
from lampwork.benchmark.measure import reset_peak_memory, resident_mib, rounds, without_collections
from lampwork.config import use_cache_dir
from lampwork.ir.record import record
from lampwork.verdict.candidate import Allowed, Arm, Candidate, Region, Way, candidates, tables
from lampwork.verdict.horizon import Measured
from lampwork.verdict.program import Outcome, Program
from lampwork.verdict.spread import SEEDS, outside
from lampwork.verdict.starting import Starting, load
from lampwork.verdict.verify import Comparison

#: How many calls belong to a start: CUDA graphs are captured at the third, `freeze` packs weights in the first four.
STARTING_CALLS = 5

#: What a candidate that is not tried yet may reach at best, beside the best that was: (call, cost). A wrong guess here
#: costs the search time or a little speed, never a wrong answer.
SAME_CODE_FASTER = (0.8, 0.9)  # another mode, or frozen weights
PART_OF_WHOLE = (0.97, 0.4)  # a part of what compiled as one graph: there is less to compile
PART_WITHOUT_BREAKS = (0.6, 0.4)  # a part of what breaks may be the part that does not

#: A gain below this share of the whole is not looked for.
NOT_WORTH = 0.01

Say = Callable[[str], None]


@record(frozen=False)
class Tried:
    """What became of one candidate.

    measured    its rounds and its cost with an empty cache, seconds; None where it failed
    warm        seconds that it costs in a new process whose cache is filled
    first       seconds of its very first call
    compared    its results, gradients and state against eager's; None where that cannot be, and `why_not_compared`
    peak_mib    the highest memory within a call; None where it is not known
    fresh_mib   memory that a call asks the system for, page by page: it was given back after the call before
    breaks, fallbacks   how many places divide a call, and how many run eagerly
    failure     why it is out of question; empty where it is not
    """

    candidate: Candidate
    rough: float = math.nan
    start: float = math.nan
    warm: float = 0.0
    first: float = math.nan
    measured: Measured | None = None
    compared: Comparison | None = None
    why_not_compared: str = ""
    peak_mib: float | None = None
    fresh_mib: float = 0.0
    breaks: int = 0
    fallbacks: int = 0
    failure: str = ""
    arm: Arm | None = field(default=None, repr=False)

    def total(self, calls: float) -> float:
        """Seconds that `calls` calls are thought to take; with no end of calls, of one call."""
        return self.rough if math.isinf(calls) else self.start + calls * self.rough


@record(frozen=False)
class Found:
    """What the search knows at its end; `left_out` says why candidates were not tried."""

    eager: Tried
    tried: list[Tried]
    left_out: list[tuple[str, str]]
    seconds: float


EAGER = Candidate(Region(), Way(eager=True))


class Search:
    """`calls` that the user will make (infinite: not known), `restarts` that begin with a filled cache."""

    def __init__(self, program: Program, calls: float, restarts: int, allowed: Allowed, starting: Starting,
                 seconds: float, say: Say) -> None:  # fmt: skip
        self.program, self.calls, self.restarts, self.allowed = program, calls, restarts, allowed
        self.starting, self.say = starting, say
        self.began = time.perf_counter()
        self.deadline = self.began + seconds
        self.device = "cuda" if "cuda" in program.devices() else "cpu"
        self.tried: list[Tried] = []
        self.left_out: list[tuple[str, str]] = []
        self._reference: Outcome | None = None
        self.eager = self._eager()
        self._loaded = False
        #: Seconds by which the first compile of this program took longer than its second: what a process loads and
        #: works out once for it, whichever candidate comes first. None before.
        self._once: float | None = None

    def run(self) -> Found:
        program = self.program
        try:
            for candidate in candidates(program.root, program.task, self.device, self.allowed):
                why = self._why_not(candidate)
                if why:
                    self.left_out.append((candidate.name, why))
                else:
                    self.say(f"trying {candidate.name}")
                    self.tried.append(self._try(candidate))
            self._measure()
        finally:
            program.snapshot.restore()
        return Found(self.eager, self.tried, self.left_out, time.perf_counter() - self.began)

    # ------------------------------------------------------------------------------------------------------------------

    def _eager(self) -> Tried:
        """Eager's own warm-up is over, and its time known roughly."""
        program = self.program
        arm = Arm(EAGER, program.run, program.function, self.device)
        tried = Tried(EAGER, start=0.0, first=0.0, arm=arm)
        times = self._start(arm)
        tried.first, tried.rough = times[0], min(times[1:])
        tried.peak_mib = self._peak(arm)
        program.snapshot.restore()
        return tried

    def _why_not(self, candidate: Candidate) -> str:
        """Why this candidate cannot be the best, from what was measured so far; empty if it can."""
        if self.calls * self.eager.rough <= self.starting.cold:
            return "all calls together are shorter than loading a compiler"
        working = [each for each in self.tried if not each.failure]
        if time.perf_counter() > self.deadline and working:
            return "the time for trying was over"
        if candidate.way.autocast or candidate.way.peer or not working:
            return ""
        whole = next((each for each in self.tried if not each.candidate.region.path), None)
        best = min(working, key=lambda each: each.total(self.calls))
        if candidate.region.path:
            broken = whole is None or whole.failure or whole.breaks or whole.fallbacks
            call, cost = PART_WITHOUT_BREAKS if broken else PART_OF_WHOLE
        else:
            call, cost = SAME_CODE_FASTER
        at_best = best.rough * call
        if not math.isinf(self.calls):
            at_best = self.starting.cold + (best.start - self.starting.cold) * cost + self.calls * at_best
        least = min(best.total(self.calls), self.eager.total(self.calls))
        if at_best >= least * (1 - NOT_WORTH):
            return f"cannot beat {best.candidate.name if least < self.eager.total(self.calls) else 'eager'}"
        return ""

    def _try(self, candidate: Candidate) -> Tried:
        program = self.program
        tried = Tried(candidate)
        if not self._loaded:
            self._loaded = True
            with self._empty_caches(candidate):  # with a filled one no compiler is loaded
                load(self.device)  # what `starting` stands for is not measured again with the first candidate
        try:
            with self._empty_caches(candidate) as folder:
                program.snapshot.restore()
                arm = tried.arm = self._arm(candidate)
                times = self._start(arm)
                tried.first, tried.rough = times[0], min(times[2:])
                tried.start = _cost(times)
                if not candidate.way.peer:
                    tried.start += self.starting.cold + (self._once or 0.0)
                    program.snapshot.restore()
                    with use_cache_dir(folder):
                        tried.warm = self.starting.warm + _cost(self._start(self._arm(candidate)))
                    program.snapshot.restore()
            self._inspect(tried, arm)
            if self._once is None and not candidate.way.peer:
                program.snapshot.restore()
                with self._empty_caches(candidate):
                    again = _cost(self._start(self._arm(candidate)))
                self._once = max(0.0, tried.start - self.starting.cold - again)
        except Exception as error:  # of the program under this compiler: it is reported, and the others are tried
            tried.failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            tried.arm = None
        finally:
            program.snapshot.restore()
        return tried

    @contextlib.contextmanager
    def _empty_caches(self, candidate: Candidate) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="lampwork-assess-") as folder, use_cache_dir(folder):
            with fresh_peer() if candidate.way.peer else contextlib.nullcontext():
                yield folder

    def _arm(self, candidate: Candidate) -> Arm:
        return Arm(candidate, self.program.run, self.program.function, self.device)

    def _start(self, arm: Arm) -> list[float]:
        return [self._timed(arm) for _ in range(STARTING_CALLS)]

    def _inspect(self, tried: Tried, arm: Arm) -> None:
        """Are its numbers right, is it whole, what memory does it take?"""
        for stats in tables(arm.compiled):
            tried.breaks += len(stats["breaks"])
            tried.fallbacks += len(stats["fallbacks"])
        tried.compared, tried.why_not_compared = self._compare(arm)
        if tried.compared is not None and not tried.compared.accepted:
            tried.failure = f"other numbers than eager: {tried.compared.reasons[0]}"
        tried.peak_mib = self._peak(arm)

    def _compare(self, arm: Arm) -> tuple[Comparison | None, str]:
        """Its numbers beside eager's; or None and why they cannot be told from eager's."""
        program = self.program
        eager_way = Way(autocast=arm.candidate.way.autocast, eager=True)
        with eager_way.around(self.device):
            expected = program.outcome(program.function)
        with arm.entered():
            ours = program.outcome(arm.function)
        found = ours.compare(expected)
        if found.accepted:
            return found, ""
        if self._reference is None:
            self._reference = program.reference()
        with eager_way.around(self.device):
            disturbed = program.outcome(program.function, self._rounding(arm.candidate.way))
        found = ours.compare(expected, self._reference, disturbed)
        if found.accepted:
            return found, ""
        with eager_way.around(self.device):
            again, other = program.outcome(program.function), program.outcome(program.function, seed=SEEDS)
        if not again.compare(expected, self._reference, disturbed).accepted:
            return None, "eager's own differ from call to call"
        if other.compare(expected, self._reference, disturbed).accepted:
            return found, ""
        return self._spread(arm, eager_way, found), ""

    def _spread(self, arm: Arm, eager_way: Way, found: Comparison) -> Comparison:
        """Random numbers decide the results, and may be drawn otherwise than eager's."""
        program = self.program
        eager, ours = [], []
        for seed in range(SEEDS):
            with eager_way.around(self.device):
                eager.append(program.outcome(program.function, seed=seed).numbers())
            with arm.entered():
                ours.append(program.outcome(arm.function, seed=SEEDS + seed).numbers())
        reasons = outside(ours, eager)
        return dataclasses.replace(found, accepted=not reasons, reasons=reasons, spread=True)

    def _rounding(self, way: Way) -> float:
        """The share of a number by which it may be rounded where products are computed so."""
        if way.autocast is not None:
            return torch.finfo(way.autocast).eps
        return 2**-10 if self.device == "cuda" else torch.finfo(torch.float32).eps  # TF32

    def _timed(self, arm: Arm) -> float:
        with arm.entered():
            self._synchronize()
            started = time.perf_counter()
            arm.call()
            self._synchronize()
            return time.perf_counter() - started

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _peak(self, arm: Arm) -> float | None:
        with arm.entered():
            if self.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                arm.call()
                torch.cuda.synchronize()
                return torch.cuda.max_memory_allocated() / 2**20
            if not reset_peak_memory():
                return None
            arm.call()
            return resident_mib()[1]

    # ------------------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Eager and the four most promising candidates in turns, for some seconds and at least twelve rounds."""
        working = sorted((each for each in self.tried if not each.failure), key=lambda each: each.total(self.calls))
        arms = {"eager": self.eager, **{each.candidate.name: each for each in working[:4]}}
        if not working:
            return
        for each in working[4:]:
            self.left_out.append((each.candidate.name, f"slower than {working[0].candidate.name} on first sight"))
            self.tried.remove(each)
        fastest = min(each.rough for each in arms.values())
        calls = max(1, min(1000, round(2e-3 / max(fastest, 1e-7))))
        turn = sum(each.rough for each in arms.values()) * calls
        seconds = max(min(10.0, self.deadline - time.perf_counter()), 2.0, 12 * turn)
        samples: dict[str, list[float]] = {name: [] for name in arms}
        pages = dict.fromkeys(arms, 0)
        with without_collections():
            for number, order in enumerate(rounds(list(arms), seconds, 12, 400)):
                self.say(f"measuring {len(arms)} candidates in turns, round {number + 1}")
                for name in order:
                    before = page_faults()
                    samples[name].append(self._sample(arms[name], calls))
                    pages[name] += page_faults() - before
        for name, each in arms.items():
            costs = () if name == "eager" else (each.start + self.restarts * each.warm,)
            each.measured = Measured(tuple(samples[name]), costs)
            each.fresh_mib = pages[name] / (calls * len(samples[name])) * resource.getpagesize() / 2**20

    def _sample(self, tried: Tried, calls: int) -> float:
        arm = tried.arm
        assert arm is not None
        with arm.entered():
            call = arm.call
            self._synchronize()
            started = time.perf_counter()
            for _ in range(calls):
                call()
            self._synchronize()
            return (time.perf_counter() - started) / calls


def page_faults() -> int:
    """Pages that the system has given to this process so far, all of its threads together."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _cost(times: Sequence[float]) -> float:
    """What a start took beyond calls at full speed, which its last ones have."""
    return max(0.0, sum(times) - len(times) * min(times[2:]))


def best(found: Found, calls: float) -> Tried:
    """Of eager and the candidates that were measured, the one of the lowest total; eager if they are level."""
    choice = found.eager
    for each in found.tried:
        if each.measured is None or choice.measured is None:
            continue
        if _total(each.measured, calls) < _total(choice.measured, calls):
            choice = each
    return choice


def _total(measured: Measured, calls: float) -> float:
    return measured.call if math.isinf(calls) else measured.total(calls)
