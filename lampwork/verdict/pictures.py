"""Drawings of a verdict as SVG: totals over the number of calls, times of a call, shares of a step.

Both axes of the first are logarithmic, since costs and calls span decades.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from lampwork.benchmark.measure import summarise
from lampwork.ir.record import record
from lampwork.verdict.horizon import Measured, Payoff
from lampwork.verdict.words import count, duration

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 14, 40


@record
class _Axes:
    """Logarithmic axes over `x` and `y`, each (lowest, highest)."""

    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        return LEFT + _place(value, self.x) * (WIDTH - LEFT - RIGHT)

    def up(self, value: float) -> float:
        return HEIGHT - BOTTOM - _place(value, self.y) * (HEIGHT - TOP - BOTTOM)

    def frame(self, unit: str) -> list[str]:
        """Lines and labels of the decades."""
        parts = []
        for value in _decades(self.x):
            at = self.across(value)
            parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
            parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{count(value)}</text>')
        for value in _decades(self.y):
            at = self.up(value)
            parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{duration(value)}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 4}" text-anchor="middle">{escape(unit)}s</text>')
        return parts

    def curve(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.across(x):.1f} {self.up(y):.1f}" for x, y in points)


def break_even(eager: Measured, ours: Measured, paid: Payoff, calls: float | None, unit: str, name: str) -> str:
    """What all calls take, over their number: where the lines cross, the cost has come back."""
    after = paid.calls.value
    most = max([100.0, *([calls * 2] if calls else []), *([after * 10] if math.isfinite(after) else [])])
    most = min(most, 1e9)
    steps = [most ** (each / 80) for each in range(81)]
    lowest = min(eager.call, ours.total(1))
    axes = _Axes((1.0, most), (lowest, max(eager.total(most), ours.total(most))))
    parts = axes.frame(unit)
    if math.isfinite(after) and after >= 1:
        left, right = (axes.across(min(max(1.0, each), most)) for each in (paid.calls.lower, paid.calls.upper))
        parts.append(
            f'<rect class="band ours" x="{left:.1f}" y="{TOP}" width="{max(1.0, right - left):.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"><title>pays after {count(after)}</title></rect>'
        )
        at = axes.across(after)
        parts.append(f'<text class="ours" x="{at:.1f}" y="{TOP + 12}" text-anchor="middle">{count(after)}</text>')
    if calls:
        at = axes.across(calls)
        parts.append(f'<path class="axis" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{at + 4:.1f}" y="{HEIGHT - BOTTOM - 6}">yours</text>')
    for style, measured in (("eager", eager), ("ours", ours)):
        parts.append(f'<path class="curve {style}" d="{axes.curve((n, measured.total(n)) for n in steps)}"/>')
    ends = sorted((axes.up(each.total(most)), style, label) for style, label, each in
                  (("eager", "eager", eager), ("ours", name, ours)))  # fmt: skip
    for (at, style, label), gap in zip(ends, (0.0, max(0.0, 14 - (ends[1][0] - ends[0][0])))):
        parts.append(f'<text class="{style}" x="{WIDTH - RIGHT + 6}" y="{at + gap + 4:.1f}">{escape(label)}</text>')
    return _svg(HEIGHT, parts, f"Total time over the number of {unit}s")


def call_times(rows: Sequence[tuple[str, Measured]]) -> str:
    """A row for each candidate: every round as a dot, the quartiles as a box, the median as a line."""
    most = max(_high(each) for _, each in rows) * 1.05
    left, row = min(300, 20 + 7 * max(len(name) for name, _ in rows)), 26

    def across(value: float) -> float:
        return left + min(value, most) / most * (WIDTH - left - 90)

    parts = []
    for number, (name, measured) in enumerate(rows):
        y = 8 + number * row
        style = "eager" if name == "eager" else "ours"
        timing = summarise([each * 1e3 for each in measured.rounds])
        low, middle, high = (each / 1e3 for each in (timing.lower_ms, timing.median_ms, timing.upper_ms))
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        width = max(1.0, across(high) - across(low))
        parts.append(f'<rect class="band {style}" x="{across(low):.1f}" y="{y + 3}" width="{width:.1f}" height="15"/>')
        for each in measured.rounds[:200]:
            if each <= most:
                parts.append(f'<circle class="{style}" cx="{across(each):.1f}" cy="{y + 10}" r="1.6" opacity=".45"/>')
        parts.append(f'<path class="curve {style}" d="M{across(middle):.1f} {y + 1}v19"/>')
        parts.append(f'<text x="{WIDTH - 84}" y="{y + 14}">{duration(middle)}</text>')
    return _svg(len(rows) * row + 14, parts, "Times of a call")


def shares(parts_seconds: dict[str, float]) -> str:
    """One bar, divided by what a step's time goes to."""
    total = sum(parts_seconds.values())
    x, parts = 0.0, []
    for number, (name, seconds) in enumerate(parts_seconds.items()):
        width = seconds / total * WIDTH
        label = f"{name}: {seconds / total:.0%}"
        parts.append(
            f'<rect class="ours" stroke="none" opacity="{opacity(number)}" x="{x:.1f}" y="4" '
            f'width="{width:.1f}" height="26"><title>{escape(label)}, {duration(seconds)}</title></rect>'
        )
        x += width
    return _svg(34, parts, "Where the time of a step goes")


def shares_with_key(parts_seconds: dict[str, float]) -> str:
    """The same as a figure, with the names of its parts below."""
    total = sum(parts_seconds.values())
    keys = [
        f'<span class="key"><i style="opacity:{opacity(number)}"></i>{escape(name)} {seconds / total:.0%}</span>'
        for number, (name, seconds) in enumerate(parts_seconds.items())
    ]
    return f"<figure>{shares(parts_seconds)}<figcaption>{' '.join(keys)}</figcaption></figure>"


def opacity(number: int) -> str:
    """How strong the colour of a part of `shares` is."""
    return f"{0.9 - 0.17 * (number % 5):.2f}"


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{inner}</svg>'


def _place(value: float, limits: tuple[float, float]) -> float:
    low, high = (math.log10(max(each, 1e-12)) for each in limits)
    return 0.0 if high <= low else (math.log10(max(value, 1e-12)) - low) / (high - low)


def _decades(limits: tuple[float, float]) -> list[float]:
    """Powers of ten within the limits, not more than six of them."""
    low, high = math.ceil(math.log10(limits[0]) - 1e-9), math.floor(math.log10(limits[1]) + 1e-9)
    step = max(1, math.ceil((high - low + 1) / 6))
    return [10.0**each for each in range(low, high + 1, step)]


def _high(measured: Measured) -> float:
    """Beyond this lie outliers, which would press all else together."""
    timing = summarise(list(measured.rounds))
    return max(timing.upper_ms + 2 * (timing.upper_ms - timing.lower_ms), timing.median_ms * 1.1)
