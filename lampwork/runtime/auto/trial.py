"""Which of several ways to run a call is fastest, found on calls that are made anyway. Arithmetic only; no torch.

Ways take turns of some calls each, eager first and last alternately, so that drift of the machine meets all alike. The
first call of a turn is not counted: caches hold what the way before it left. Ways are compared round by round with
eager's turn of the same round; what is not clearly better after `MOST_ROUNDS` is not better.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import field

from lampwork.ir.record import record

EAGER = "eager"

#: Calls of one turn, and rounds of turns: how many at least and at most.
TURN = 3
LEAST_ROUNDS = 5
MOST_ROUNDS = 20
#: A way is better where it takes less than this share of eager's time.
BETTER = 0.98
#: And where so large a share of the rounds says so.
AGREEING = 0.8
#: Ways whose times differ by less than this factor get more rounds.
LEVEL = 1.03
#: A way that took so many times as long as eager in each of two rounds is out.
HOPELESS = 2.0


@record(frozen=False, eq=False)
class _Round:
    """One turn of each of `order`; `times` are those that are known, `open` the calls that are not yet."""

    order: tuple[str, ...]
    issued: int = 0
    open: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)


class Call:
    """One call of a trial: run it by `way`, then say how long it took by `took`; None where it raised."""

    __slots__ = ("way", "_trial", "_round", "_counts")

    def __init__(self, way: str, trial: Trial, round: _Round, counts: bool) -> None:
        self.way, self._trial, self._round, self._counts = way, trial, round, counts

    def took(self, seconds: float | None) -> None:
        each = self._round
        each.open -= 1
        self._trial.spent += seconds or 0.0
        if seconds is not None and self._counts:
            each.times.setdefault(self.way, []).append(seconds)
        if each.issued == TURN * len(each.order) and not each.open:
            self._trial.end_round(each.times)


class Trial:
    """Tries `ways` beside eager: `next` gives the next call to make, until `decision` is the name of a way.

    Calls may be told of late (a GPU's are), but are told of in order.

    spent     seconds of all its calls
    seconds   the shortest typical call of each way
    ratios    of each way, by round: what it took divided by what eager did
    """

    def __init__(self, ways: tuple[str, ...]) -> None:
        self.spent = 0.0
        self.seconds: dict[str, float] = {}
        self.ratios: dict[str, list[float]] = {way: [] for way in ways}
        self.decision: str | None = None
        self._rounds = 0
        self._running = (EAGER, *ways)
        self._round = _Round(self._running)

    def next(self) -> Call:
        each = self._round
        if each.issued == TURN * len(each.order):
            kept = tuple(way for way in reversed(each.order) if way in self._running)
            each = self._round = _Round(kept)
        way, place = each.order[each.issued // TURN], each.issued % TURN
        each.issued += 1
        each.open += 1
        return Call(way, self, each, counts=place > 0)

    def end_round(self, times: dict[str, list[float]]) -> None:
        """All calls of a round are known."""
        if self.decision is not None or EAGER not in times:
            return
        self._rounds += 1
        typical = {way: statistics.median(found) for way, found in times.items()}
        for way, seconds in typical.items():
            self.seconds[way] = min(seconds, self.seconds.get(way, seconds))
            if way != EAGER:
                self.ratios[way].append(seconds / max(typical[EAGER], 1e-9))
        self._running = tuple(way for way in self._running if way == EAGER or not self._hopeless(way))
        ways = [way for way in self._running if way != EAGER]
        if not ways:
            self.decision = EAGER
        elif self._rounds >= LEAST_ROUNDS:
            self._decide({way: statistics.median(self.ratios[way]) for way in ways if self.ratios[way]})

    def _hopeless(self, way: str) -> bool:
        return len(self.ratios[way]) >= 2 and min(self.ratios[way]) >= HOPELESS

    def _decide(self, typical: dict[str, float]) -> None:
        best = min(typical, key=lambda way: typical[way], default=EAGER)
        better = best != EAGER and typical[best] < BETTER and self._agree(best, lambda ratio: ratio < 1)
        worse = all(self._agree(way, lambda ratio: ratio > 1) for way in typical)
        over = self._rounds >= MOST_ROUNDS
        others = [ratio for way, ratio in typical.items() if way != best]
        if better and (over or all(ratio > LEVEL * typical[best] for ratio in others)):
            self.decision = best
        elif worse or over:
            self.decision = EAGER

    def _agree(self, way: str, says: Callable[[float], bool]) -> bool:
        ratios = self.ratios[way]
        return sum(map(says, ratios)) >= AGREEING * len(ratios)
