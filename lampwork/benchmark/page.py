"""What `lampwork bench` measured as one page of HTML: the answer, bars for calls and starts, then every number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from rich.table import Table
from rich.text import Text

from lampwork.benchmark import report
from lampwork.benchmark.bench import OURS, judge
from lampwork.benchmark.measure import geometric_mean
from lampwork.benchmark.record import Found
from lampwork.debug import markup

WIDTH, LEFT, RIGHT, ROW = 760, 190, 150, 22


def page(results: Found) -> str:
    """The whole file; it needs nothing beside it."""
    settings, models, columns = results["settings"], results["models"], results["settings"]["columns"]
    what = ", ".join(models) if len(models) < 8 else f"{len(models)} models"
    body = [
        f"<h1>{escape(what)}, {escape(settings['dtype'])} on a CPU</h1>",
        f'<p class="answer">{escape(answer(results))}</p>',
        "".join(f'<p class="issue">{escape(_plain(line))}</p>' for line in report.failures(results)),
        "".join(f'<p class="issue">{escape(_plain(line))}</p>' for line in report.eager_calls(results)),
        _busy(results),
        _figure("A call", "Medians; the thin line holds the middle half of the rounds.", models, columns, _call),
    ]
    if settings["start"]:
        told = "Seconds to the first result in a new process, with an empty cache."
        body.append(_figure("First result, empty cache", told, models, columns, _start("cold_seconds")))
        told = "The same with a filled cache."
        body.append(_figure("First result, filled cache", told, models, columns, _start("warm_seconds")))
    body.append(markup.heading("Every number"))
    body += [_table(each) for each in _tables(results)]
    body.append(f"<p>{escape(report.overhead_line(results['overhead']))}</p>")
    body.append(f'<p class="place">{escape(_plain(report.heading(results)))}</p>')
    return markup.document(f"lampwork bench {what}", body)


def answer(results: Found) -> str:
    """How many times as fast, how long a start takes, and whether the numbers are right: in one or two sentences."""
    models, columns = results["models"], results["settings"]["columns"]
    best = max(
        (column for column in OURS if column in columns),
        key=lambda column: _mean(report.speed_ups(models, column, "eager")),
        default="",
    )
    if not best or not report.speed_ups(models, best, "eager"):
        return "Nothing was measured: what failed is told below."
    name = report.NAMES[best]
    words = f"{name} is {_mean(report.speed_ups(models, best, 'eager')):.2f} times as fast as eager"
    peer = report.speed_ups(models, best, "peer")
    words += f" and {_mean(peer):.2f} times as fast as torch.compile" if peer else ""
    words += " in geometric mean" if len(models) > 1 else ""
    starts = [each["columns"].get(best, {}).get("cold_seconds") for each in models.values()]
    if None not in starts:
        words += f"; its first result comes after {_seconds(_mean(starts))}"
        theirs = [each["columns"].get("peer", {}).get("cold_seconds") for each in models.values()]
        words += f", torch.compile's after {_seconds(_mean(theirs))}" if None not in theirs else ""
    wrong = [
        f"{model} ({report.NAMES[column]})"
        for model, found in models.items()
        for column in OURS
        if column in columns and not judge(found["columns"].get(column, {}))[0]
    ]
    numbers = "All numbers are accepted." if not wrong else f"Not accepted: {', '.join(wrong)}."
    return f"{words}. {numbers}"


def _mean(values: Iterable[Any]) -> float:
    found = [each for each in values if each]
    return geometric_mean(found) if found else math.nan


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def _busy(results: Found) -> str:
    if results.get("load_before", 0.0) <= 0.5 * (results.get("cpus") or 1):
        return ""
    return '<p class="issue">Other programs were running: times are too high, and ratios uncertain.</p>'


# Bars -----------------------------------------------------------------------------------------------------------------


def _call(column: Found) -> tuple[float, float, float] | None:
    """Seconds: lower quartile, median, upper quartile."""
    timing = column.get("timing")
    if timing is None:
        return None
    return timing["lower_ms"] / 1e3, timing["median_ms"] / 1e3, timing["upper_ms"] / 1e3


def _start(kind: str) -> Any:
    def read(column: Found) -> tuple[float, float, float] | None:
        value = column.get(kind)
        return None if value is None else (value, value, value)

    return read


def _figure(title: str, caption: str, models: Mapping[str, Found], columns: list[str], read: Any) -> str:
    """A group of bars for each model: one for each column, as long as its share of the group's slowest."""
    parts, y = [], 6
    for model, found in models.items():
        rows = [(column, read(found["columns"].get(column, {}))) for column in columns]
        known = [each for _, each in rows if each is not None]
        if not known:
            continue
        most = max(upper for _, _, upper in known)
        parts.append(f'<text x="0" y="{y + 14}" font-weight="600">{escape(model)}</text>')
        y += ROW
        for column, value in rows:
            parts += _bar(report.NAMES[column], value, most, y, "ours" if column in OURS else "eager")
            y += ROW
        y += 8
    if not parts:
        return ""
    drawn = f'<svg viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f"{markup.heading(title)}<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def _bar(name: str, value: tuple[float, float, float] | None, most: float, y: int, style: str) -> list[str]:
    parts = [f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>']
    if value is None:
        return [*parts, f'<text x="{LEFT}" y="{y + 14}" opacity=".7">not measured</text>']
    low, middle, high = (each / most * (WIDTH - LEFT - RIGHT) for each in value)
    box = f'x="{LEFT}" y="{y + 3}" width="{max(1.0, middle):.1f}" height="15"'
    parts.append(f'<rect class="{style}" stroke="none" opacity=".75" {box}/>')
    if high - low > 1:
        parts.append(f'<path class="axis" d="M{LEFT + low:.1f} {y + 10}H{LEFT + high:.1f}" stroke-width="2"/>')
    parts.append(f'<text x="{LEFT + high + 6:.1f}" y="{y + 14}">{escape(_duration(value[1]))}</text>')
    return parts


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError


# Tables ---------------------------------------------------------------------------------------------------------------


def _tables(results: Found) -> list[Table]:
    models, columns = results["models"], results["settings"]["columns"]
    found = [report.steady_table(models, columns)]
    if results["settings"]["start"]:
        found.append(report.start_table(models, columns))
    if set(columns) & set(OURS):
        found += [report.verdict_table(models, columns), report.inside_table(models, columns)]
    return found


def _table(table: Table) -> str:
    """A table of the terminal as one of the page."""
    headings = [escape(_plain(str(column.header))) for column in table.columns]
    rows = zip(*([escape(_plain(str(cell))) for cell in column.cells] for column in table.columns))
    numbers = [index for index, column in enumerate(table.columns) if column.justify == "right"]
    return f"<h3>{escape(_plain(str(table.title)))}</h3>" + markup.table(headings, rows, numbers)


def _plain(marked: str) -> str:
    """Text without the terminal's colours."""
    return Text.from_markup(marked).plain
