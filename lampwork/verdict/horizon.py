"""Whether a cost that is paid once comes back: the arithmetic of break-even, with intervals.

    total(calls) = cost + calls * time of a call

A compiler pays from the call on at which its total falls below eager's. All of it is uncertain, so all is drawn again
and again from what was measured (Efron, Bootstrap methods, Annals of Statistics 7, 1979): rounds with replacement, each
round as a whole, since its samples met the same machine. Times are in seconds. No torch.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from lampwork.ir.record import record

#: How often measurements are drawn again, and the share of draws that an interval holds.
DRAWS = 400
COVERED = 0.9

#: What one measurement of a cost is trusted to: there is no spread to draw from.
SINGLE_COST_SPREAD = 0.15


@record
class Estimate:
    """A value and the interval that holds `COVERED` of its draws."""

    value: float
    lower: float
    upper: float

    @staticmethod
    def of(draws: Sequence[float]) -> Estimate:
        """Of at least one draw; infinite draws are allowed, and make an end of the interval infinite."""
        ordered = sorted(draws)
        tail = (1 - COVERED) / 2
        return Estimate(_quantile(ordered, 0.5), _quantile(ordered, tail), _quantile(ordered, 1 - tail))


@record
class Measured:
    """What was measured of one way to run a program.

    rounds   seconds of one call in each round, beside the same rounds of the others
    costs    seconds that were spent before calls ran at that speed, beyond what those calls would have taken; none for
             eager
    """

    rounds: tuple[float, ...]
    costs: tuple[float, ...] = ()

    @property
    def call(self) -> float:
        return statistics.median(self.rounds)

    @property
    def cost(self) -> float:
        return statistics.median(self.costs) if self.costs else 0.0

    def total(self, calls: float) -> float:
        return self.cost + calls * self.call


@record
class Payoff:
    """How `ours` compares with `eager` in the long run.

    calls        from which on the cost has come back; infinite where it never does
    speedup      how many times faster a call is
    likelihood   the share of draws in which the total of all calls is lower than eager's; None without a horizon
    saved        seconds that all calls together are shorter, the cost included; None without a horizon
    """

    calls: Estimate
    speedup: Estimate
    likelihood: float | None = None
    saved: Estimate | None = None


def payoff(eager: Measured, ours: Measured, horizon: float | None = None) -> Payoff:
    """Raises ValueError if the two were not measured in the same rounds, or in none."""
    count = len(eager.rounds)
    if count == 0 or len(ours.rounds) != count:
        raise ValueError(f"{len(ours.rounds)} rounds beside {count} of eager: both are measured in the same rounds")
    drawn = random.Random(count)
    calls, speedups, saved = [], [], []
    for _ in range(DRAWS):
        picks = drawn.choices(range(count), k=count)
        slow = statistics.median(eager.rounds[pick] for pick in picks)
        gain = statistics.median(eager.rounds[pick] - ours.rounds[pick] for pick in picks)
        cost = _draw_cost(ours.costs, drawn) - _draw_cost(eager.costs, drawn)
        calls.append(break_even(cost, gain))
        speedups.append(slow / max(slow - gain, 1e-12))
        if horizon is not None:
            saved.append(horizon * gain - cost)
    likelihood = None if horizon is None else sum(each > 0 for each in saved) / len(saved)
    return Payoff(
        Estimate.of(calls), Estimate.of(speedups), likelihood, None if horizon is None else Estimate.of(saved)
    )


def break_even(cost: float, gain: float) -> float:
    """After how many calls `cost` has come back at `gain` a call: 0 where nothing is paid, infinite where never."""
    if cost <= 0:
        return 0.0 if gain >= 0 else math.inf
    return cost / gain if gain > 0 else math.inf


def _draw_cost(costs: Sequence[float], drawn: random.Random) -> float:
    if not costs:
        return 0.0
    if len(costs) > 1:
        return statistics.fmean(drawn.choices(costs, k=len(costs)))
    return costs[0] * (1 + drawn.uniform(-SINGLE_COST_SPREAD, SINGLE_COST_SPREAD))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low, part = int(place), place - int(place)
    if part == 0 or ordered[low] == ordered[low + 1]:
        return ordered[low]
    if ordered[low] == -math.inf and ordered[low + 1] == math.inf:  # nothing lies between
        return ordered[low + round(part)]
    found = ordered[low] * (1 - part) + ordered[low + 1] * part
    return min(max(found, ordered[low]), ordered[low + 1])  # rounding can leave the two
