"""Captures a program, changes one thing, calls it again beside eager, takes the change back; and so on.

While the changes are made nothing is compiled: a call that misses the entries runs eagerly. So what differs from eager
was served by an entry whose guards hold though they should not. Before each change an unchanged call is made, which must
be served: else the world has drifted, and both sides are made anew.
"""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import lampwork
from lampwork.errors import Diagnostic, LampworkError
from lampwork.runtime import function as function_module
from lampwork.runtime.function import CompiledFunction
from tests.mutation.changes import Change, Inapplicable, changes
from tests.mutation.process import process_changes
from tests.mutation.subjects import Subject, root_of
from tests.python.compare import Comparison, Mismatch

_FROZEN = Diagnostic("frozen", "no entry holds, and this test compiles none")


@dataclass
class Finding:
    """A change that an entry did not notice. `difference`: how it showed."""

    subject: Subject
    change: Change
    difference: str

    @property
    def key(self) -> tuple[str, str]:
        return self.subject.name, str(self.change)


@dataclass
class Report:
    """What came of some changes: how many were made, missed by the guards, served; and findings."""

    made: int = 0
    missed: int = 0
    served: int = 0
    inapplicable: int = 0
    subjects: int = 0
    passed_over: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Report) -> None:
        for name in ("made", "missed", "served", "inapplicable", "subjects", "passed_over"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.findings += other.findings


class Misses:
    count = 0


@contextlib.contextmanager
def nothing_compiles() -> Iterator[Misses]:
    """Calls that miss run eagerly, and are counted."""
    misses = Misses()
    plain = CompiledFunction._serving

    def serving(self: CompiledFunction, args: tuple, kwargs: dict, states: Any, beside: bool) -> Any:
        for serve in self.serves:
            if self._entries[serve].holds(self.function, args, kwargs):
                return serve
        misses.count += 1
        return _FROZEN

    active = function_module.CompiledFunction
    active._serving = serving  # type: ignore[method-assign]
    try:
        yield misses
    finally:
        active._serving = plain  # type: ignore[method-assign]


class Pair:
    """A subject in both worlds, captured."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.eager, self.compiled = subject.side(False), subject.side(True)
        self.misses: Misses | None = None

    def fresh(self) -> None:
        for side in (self.eager, self.compiled):
            side.arguments[0] = side.program.arguments(0)

    def call(self) -> str:
        """How the two sides differ; empty where they agree."""
        expected = self.eager.call(0, 1)
        found = self.compiled.call(0, 1)
        try:
            Comparison(self.eager.module.__name__).compare(expected, found)
        except Mismatch as difference:
            return str(difference)
        return ""

    def changes(self) -> list[Change]:
        self.fresh()
        root = root_of(self.eager)
        return [*changes(root), *process_changes(root)]

    def steady(self) -> bool:
        """Whether an unchanged call is served, and equals eager."""
        assert self.misses is not None
        before = self.misses.count
        self.fresh()
        return not self.call() and self.misses.count == before


def captured(subject: Subject) -> Pair | None:
    """Both worlds after calls that captured; None where nothing is captured, or the two differ."""
    pair = Pair(subject)
    for _ in range(2):
        pair.fresh()
        if pair.call():
            return None
    stats = lampwork.stats(pair.compiled.function)
    if not stats["entries"] or any(each.id != "exception" for each in stats["fallbacks"]):
        return None
    return pair


def try_change(pair: Pair, change: Change, report: Report) -> bool:
    """Makes the change in both worlds, calls, takes it back. Whether the worlds are as they were."""
    assert pair.misses is not None
    pair.fresh()
    undo = []
    process = change.where == "process" or "patched" in change.kind
    clean = True
    try:
        for side in (pair.eager, pair.compiled)[: 1 if process else 2]:
            try:
                undo.append(change.apply(root_of(side)))
            except Exception:  # it cannot be done to this object
                report.inapplicable += 1
                return not undo
        before = pair.misses.count
        try:
            difference = pair.call()
        except LampworkError:
            difference = "raised " + traceback.format_exc(limit=-3)
        report.made += 1
        served = pair.misses.count == before
        report.served += served
        report.missed += not served
        if difference:
            report.findings.append(Finding(pair.subject, change, ("" if served else "(missed) ") + difference))
            clean = False
    finally:
        for take_back in reversed(undo):
            try:
                take_back()
            except Exception:
                clean = False
    return clean


def run_subject(subject: Subject, count: int, draw: random.Random, only: str | None = None) -> Report:
    """Up to `count` changes of one program, drawn evenly over their kinds."""
    report = Report()
    try:
        with _state_kept():
            pair = captured(subject)
    except Exception:
        pair = None
    if pair is None:
        report.passed_over = 1
        return report
    report.subjects = 1
    with nothing_compiles() as misses, _state_kept():
        pair.misses = misses
        if not pair.steady():
            report.subjects, report.passed_over = 0, 1
            return report
        for change in drawn(pair.changes(), count, draw, only):
            if not try_change(pair, change, report) or not pair.steady():
                again = _again(subject, misses)
                if again is None:
                    break
                pair = again
    return report


def _again(subject: Subject, misses: Misses) -> Pair | None:
    serving = CompiledFunction._serving
    CompiledFunction._serving = _plain_serving  # type: ignore[method-assign]
    try:
        pair = captured(subject)
    except Exception:
        return None
    finally:
        CompiledFunction._serving = serving  # type: ignore[method-assign]
    if pair is not None:
        pair.misses = misses
        if not pair.steady():
            return None
    return pair


_plain_serving = CompiledFunction._serving


def drawn(found: list[Change], count: int, draw: random.Random, only: str | None) -> list[Change]:
    if only is not None:
        return [each for each in found if str(each) == only or each.kind == only]
    kinds: dict[str, list[Change]] = {}
    for each in found:
        kinds.setdefault(each.kind, []).append(each)
    for each in kinds.values():  # type: ignore[assignment]
        draw.shuffle(each)  # type: ignore[arg-type]
    chosen: list[Change] = []
    names = list(kinds)
    while names and len(chosen) < count:
        draw.shuffle(names)
        for name in list(names):
            chosen.append(kinds[name].pop())
            if not kinds[name]:
                names.remove(name)
    return chosen[:count]


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """The process's settings, however the calls leave them. PyTorch's warnings are given each time: those that it gives
    once in a process, eager's call would have had."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    dtype, grad, rng = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_warn_always(always)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_rng_state(rng)
        torch.use_deterministic_algorithms(deterministic)


__all__ = ["Change", "Finding", "Inapplicable", "Report", "run_subject"]
