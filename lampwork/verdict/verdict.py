"""The answer: whether compiling pays for so many calls, from when on, what to write, and why."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from lampwork.ir.record import record
from lampwork.verdict import words
from lampwork.verdict.horizon import Payoff, payoff
from lampwork.verdict.search import Found, Tried, best

#: A gain of less than this share is none that anyone should write code for.
LEVEL = 0.01


@record
class Verdict:
    """Print it: one sentence, what to write, and the reasons.

    name             what was assessed
    variables        what the user's code is thought to call it, or the modules that are compiled in a loop
    holder           what it is thought to call the module whose parts are compiled; empty: the first of `variables`
    unit             what a call is called: "call" or "step"
    task             "infer" or "train"
    calls            how many will be made; None: not known
    found            all that was tried
    choice           what is best for these calls; eager's own entry where nothing is better
    payoff           of the choice beside eager, or of the best compiled one where that is eager; None where none ran
    shares           where the time of a step goes, seconds by name; empty for single calls
    price            of an hour, in any currency
    seconds          that the assessment took, the loading of a compiler measured on the side included
    notes            what keeps the answer from being more certain
    """

    name: str
    variables: tuple[str, ...]
    unit: str
    task: str
    calls: int | None
    found: Found
    choice: Tried
    payoff: Payoff | None
    seconds: float
    holder: str = ""
    price: float | None = None
    restarts: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def pays(self) -> bool:
        """Whether something compiled is the better choice for these calls."""
        return self.choice is not self.found.eager

    @property
    def subject(self) -> Tried | None:
        """The compiled way that the answer is about: the choice, or the best of those that do not pay."""
        if self.pays:
            return self.choice
        working = [each for each in self.found.tried if each.measured is not None]
        return min(working, key=lambda each: each.total(self.horizon), default=None)

    @property
    def horizon(self) -> float:
        return math.inf if self.calls is None else float(self.calls)

    @property
    def speedup(self) -> float:
        """How many times faster all calls together are with the choice, costs included; without a horizon, one call."""
        eager, ours = self.found.eager.measured, self.choice.measured
        if eager is None or ours is None or not self.pays:
            return 1.0
        if self.calls is None:
            return eager.call / ours.call
        return eager.total(self.calls) / ours.total(self.calls)

    @property
    def code(self) -> str:
        """What to write; empty where nothing is to be changed."""
        return self.choice.candidate.code(self.variables, self.holder) if self.pays else ""

    @property
    def sentence(self) -> str:
        return words.sentence(self)

    @property
    def reasons(self) -> list[str]:
        return words.reasons(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it: times in seconds, memory in MiB; None for what is not known or infinite."""
        return words.as_dict(self)

    def html(self) -> str:
        """One page that needs nothing beside it: the answer, what to write, pictures, and what was tried."""
        from lampwork.verdict.page import page

        return page(self)

    def __str__(self) -> str:
        return words.whole(self)


def judge(found: Found, calls: int | None, **about: Any) -> Verdict:
    """The verdict on what a search found."""
    horizon = math.inf if calls is None else float(calls)
    choice = best(found, horizon)
    eager = found.eager
    about = {"calls": calls, "found": found, **about}
    if choice is eager:
        made = Verdict(choice=eager, payoff=None, **about)
        subject = made.subject
        if subject is None or subject.measured is None or eager.measured is None:
            return made
        return Verdict(choice=eager, payoff=payoff(eager.measured, subject.measured, calls), **about)
    assert eager.measured is not None and choice.measured is not None  # or it would not be the choice
    paid = payoff(eager.measured, choice.measured, calls)
    gain = 1 - 1 / paid.speedup.value if calls is None else _share_saved(eager, choice, calls)
    if gain < LEVEL or (calls is None and paid.speedup.lower <= 1):
        return Verdict(choice=eager, payoff=paid, **about)
    return Verdict(choice=choice, payoff=paid, **about)


def _share_saved(eager: Tried, ours: Tried, calls: int) -> float:
    assert eager.measured is not None and ours.measured is not None
    return 1 - ours.measured.total(calls) / eager.measured.total(calls)
