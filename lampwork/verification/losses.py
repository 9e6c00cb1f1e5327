"""Loss curves: eager's, ours, the one in float64, and how far eager is from itself over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lampwork.ir.record import record
from lampwork.verification.judge import OWN

#: Roundings that a loss may be off by where nothing else differs.
EPS = 16 * 2.0**-23


@record
class Losses:
    """Losses of each step. `rounded`: of eager runs with every result off by a rounding, one for each seed; `seeds`: of
    eager runs with other random numbers, where the program draws any.

    A loss is inside eager's noise if it is off by no more than `OWN` times what any run of eager's with the same random
    numbers, or float64, was off by up to this step.
    """

    ours: Sequence[float]
    eager: Sequence[float]
    wide: Sequence[float]
    rounded: Sequence[Sequence[float]]
    seeds: Sequence[Sequence[float]] = ()

    @property
    def noise(self) -> list[float]:
        """For each step, how far eager is from itself up to there."""
        found, largest = [], 0.0
        for step, loss in enumerate(self.eager):
            runs = [curve[step] for curve in (self.wide, *self.rounded) if step < len(curve)]
            largest = max([largest, *(abs(each - loss) for each in runs if math.isfinite(each))])
            found.append(largest)
        return found

    @property
    def outside(self) -> list[int]:
        """The steps whose loss is outside eager's noise."""
        found = []
        for step, (loss, noise) in enumerate(zip(self.eager, self.noise)):
            ours = self.ours[step] if step < len(self.ours) else math.nan
            allowed = OWN * noise + EPS * abs(loss)
            if not (abs(ours - loss) <= allowed or ours == loss or (math.isnan(ours) and math.isnan(loss))):
                found.append(step)
        return found

    @property
    def inside(self) -> bool:
        """Whether the whole curve is inside eager's noise."""
        return not self.outside

    @property
    def inside_seeds(self) -> bool:
        """Whether every loss lies between those of eager's runs with other random numbers and its own."""
        curves = [self.eager, *self.seeds]
        columns = list(zip(*curves))
        if not self.seeds or len(self.ours) < len(columns):
            return False
        return all(min(column) <= loss <= max(column) for column, loss in zip(columns, self.ours))

    def sentence(self) -> str:
        steps = len(self.eager)
        if self.inside:
            return f"The loss curve of {steps} steps is inside eager's noise."
        first = self.outside[0]
        over = "inside" if self.inside_seeds else "outside"
        count = len(self.seeds) + 1
        seeds = f" It is {over} eager's spread over {count} seeds of random numbers." if self.seeds else ""
        ours = f"{self.ours[first]:.9g}" if first < len(self.ours) else "none"
        return (
            f"The loss curve is not inside eager's noise: {len(self.outside)} of {steps} steps are outside, the first "
            f"is step {first}: {ours}, eager has {self.eager[first]:.9g} and is off by {self.noise[first]:.3g}.{seeds}"
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "ours": list(self.ours), "eager": list(self.eager), "float64": list(self.wide),
            "rounded": [list(each) for each in self.rounded], "seeds": [list(each) for each in self.seeds],
            "noise": self.noise, "inside": self.inside, "outside": self.outside,
        }  # fmt: skip
