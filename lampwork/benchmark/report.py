"""The tables and the progress line of `lampwork bench`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from lampwork.benchmark.measure import geometric_mean
from lampwork.benchmark.record import Found

if TYPE_CHECKING:
    from lampwork.benchmark.bench import Settings

NAMES = {"eager": "eager", "peer": "torch.compile", "lampwork": "lampwork", "freeze": "lampwork freeze"}


class Progress:
    """A line that says which model, which compiler and which step is running."""

    def __init__(self, settings: Settings) -> None:
        cells = 1 + len(settings.models) * (1 + (len(settings.columns) if settings.start else 0))
        self.bar = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.bar.add_task("starting", total=cells)

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def update(self, model: str, column: str, step: str) -> None:
        self.bar.update(self.task, description=f"[bold]{model}[/bold] {column}: {step}")

    def finished(self, cells: int) -> None:
        self.bar.advance(self.task, cells)


def print_tables(results: Found, console: Console | None = None) -> None:
    """The tables: steady state, start, whether the numbers are right, what runs inside; then overhead, failures."""
    console = console or Console()
    if console.width < 100:
        console = Console(width=150)
    columns = results["settings"]["columns"]
    console.print(heading(results))
    if results.get("load_before", 0.0) > 0.5 * (results.get("cpus") or 1):
        busy = f"load {results['load_before']:.1f} on {results['cpus']} CPUs at the start"
        console.print(f"[yellow]Other programs were running ({busy}): times are too high, ratios uncertain.[/]")
    console.print(steady_table(results["models"], columns))
    if results["settings"]["start"]:
        console.print(start_table(results["models"], columns))
    if set(columns) & {"lampwork", "freeze"}:
        console.print(verdict_table(results["models"], columns))
        console.print(inside_table(results["models"], columns))
    console.print(overhead_line(results["overhead"]))
    for line in eager_calls(results):
        console.print(f"[yellow]{line}[/yellow]", highlight=False, markup=True)
    for line in failures(results):
        console.print(f"[red]{line}[/red]", highlight=False, markup=True)


def heading(results: Found) -> str:
    settings, machine = results["settings"], results.get("environment") or {}
    return (
        f"\n[bold]lampwork bench[/bold] {settings['task']}, {settings['device']} {settings['dtype']}, "
        f"{settings['grad_mode']}, mode {settings['mode'] or 'default'} · torch {machine.get('torch', '?')}, "
        f"Python {machine.get('python', '?')}, {machine.get('threads', '?')} threads, {machine.get('cpu', '?')} "
        f"({machine.get('cpu_capability', '?')})"
    )


def _median(column: Found) -> float | None:
    return column["timing"]["median_ms"] if "timing" in column else None


def speed_ups(models: Found, column: str, over: str) -> list[float]:
    """For each model where both were timed, how many times faster `column` is than `over`."""
    found = []
    for model in models.values():
        ours, theirs = (_median(model["columns"].get(name, {})) for name in (column, over))
        if ours and theirs:
            found.append(theirs / ours)
    return found


def compared_with(column: str, columns: list[str]) -> list[str]:
    """The columns that the table divides by the time of `column`: none for eager, eager for torch.compile."""
    wanted = {"eager": [], "peer": ["eager"]}.get(column, ["eager", "peer"])
    return [other for other in wanted if other in columns]


def steady_table(models: Found, columns: list[str]) -> Table:
    """Median of a call in ms with the quartiles' distance, and how many times faster than eager and torch.compile."""
    table = Table(title="Steady state: median ms a call (spread), times faster than eager / than torch.compile")
    table.add_column("model", style="bold")
    for column in columns:
        table.add_column(NAMES[column], justify="right")
    for name, model in models.items():
        cells = []
        for column in columns:
            found = model["columns"].get(column, {})
            median = _median(found)
            if median is None:
                cells.append("[red]failed[/red]")
                continue
            text = f"{_number(median)} (±{found['timing']['spread'] * 50:.0f}%)"
            others = [_median(model["columns"].get(other, {})) for other in compared_with(column, columns)]
            text += "  " * bool(others) + " / ".join(_ratio(other, median) for other in others)
            cells.append(text)
        table.add_row(name, *cells)
    if len(models) > 1:
        cells = []
        for column in columns:
            over = compared_with(column, columns)
            cells.append(" / ".join(f"{geometric_mean(speed_ups(models, column, other)):.2f}x" for other in over))
        table.add_section()
        table.add_row("geometric mean", *cells)
    return table


def start_table(models: Found, columns: list[str]) -> Table:
    """Seconds to the first result, cold and warm, with the share of torch.compile's."""
    shown = [column for column in columns if column != "eager"]
    table = Table(title="Start: seconds to the first result in a fresh process (share of torch.compile's)")
    table.add_column("model", style="bold")
    for kind in ("cold", "warm"):
        for column in shown:
            table.add_column(f"{kind}\n{NAMES[column]}", justify="right")
    for name, model in models.items():
        cells = []
        for kind in ("cold_seconds", "warm_seconds"):
            peer = model["columns"].get("peer", {}).get(kind)
            for column in shown:
                seconds = model["columns"].get(column, {}).get(kind)
                if seconds is None:
                    cells.append("[red]failed[/red]")
                    continue
                share = f" (1/{peer / seconds:.1f})" if peer and column != "peer" else ""
                cells.append(f"{seconds:.2f}{share}")
        table.add_row(name, *cells)
    return table


def verdict_table(models: Found, columns: list[str]) -> Table:
    """Whether lampwork's numbers are accepted, and whether the whole model was captured."""
    from lampwork.benchmark.bench import judge

    table = Table(title="Right or not: largest error against eager and against float64 (eager's own error)")
    for heading in ("model", "column"):
        table.add_column(heading, no_wrap=True)
    for heading in ("error", "to float64", "largest value", "accepted", "graphs", "breaks", "fall-backs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, column, found in _ours(models, columns):
        verified, stats = found.get("verified"), found.get("stats") or {}
        right, _ = judge(found)
        table.add_row(
            name,
            column,
            "-" if verified is None else f"{verified['error']:.1e}",
            "-" if verified is None else _reference(verified),
            "-" if verified is None else f"{verified['scale']:.2g}",
            "[green]yes[/green]" if right else "[red]NO[/red]",
            _graphs(stats),
            count(stats.get("breaks")),
            count(stats.get("fallbacks")),
        )
    return table


def inside_table(models: Found, columns: list[str]) -> Table:
    """What runs inside a call: kernels of our own, calls of ATen, guards; and resident memory at its peak.

    `fused share`: the part of eager's time that became part of the vendor's products; the native share is of the rest.
    """
    table = Table(title="Inside: native share is of eager's time outside products, convolutions and attention")
    for heading in ("model", "column"):
        table.add_column(heading, no_wrap=True)
    for heading in (
        "native\nkernels",
        "ATen\ncalls",
        "native\nshare",
        "fused\nshare",
        "guards µs",
        "torch.compile\nguards µs",
        "peak MiB",
        "eager\npeak MiB",
        "torch.compile\npeak MiB",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, column, found in _ours(models, columns):
        stats, others = found.get("stats") or {}, models[name]["columns"]
        extern = stats.get("extern_calls")
        table.add_row(
            name,
            column,
            count(found.get("kernels", stats.get("native_kernels"))),
            "-" if extern is None else str(sum(extern.values())),
            *(_percent(found.get("native", {}).get(key)) for key in ("share", "fused_share")),
            _number(found.get("guard_us")),
            _number(others.get("peer", {}).get("guard_us")),
            *(_whole(each.get("peak_mib")) for each in (found, others.get("eager", {}), others.get("peer", {}))),
        )
    return table


def _ours(models: Found, columns: list[str]) -> Iterator[tuple[str, str, Found]]:
    """Model, column and measurements of each lampwork column, in the order of the tables."""
    for name, model in models.items():
        for column in ("lampwork", "freeze"):
            if column in columns:
                yield name, column, model["columns"].get(column, {})


def _reference(verified: Found) -> str:
    if not verified["reference_error"] and not verified["eager_reference_error"]:
        return "-"
    return f"{verified['reference_error']:.1e} ({verified['eager_reference_error']:.1e})"


def overhead_line(overhead: Found) -> str:
    """One line with the call overhead of every column."""
    parts = []
    for column, found in overhead.get("columns", {}).items():
        if "call_us" not in found:
            parts.append(f"{NAMES[column]} failed ({found.get('error', 'not measured')})")
            continue
        guard = f", guards {found['guard_us']:.2f}" if found.get("guard_us") else ""
        parts.append(f"{NAMES[column]} {found['call_us']:.2f} µs{guard}")
    return "Call of (x + 1) * 2 on 8 elements: " + " · ".join(parts)


def failures(results: Found) -> list[str]:
    """A line for each column that failed or was not accepted, torch.compile's failures too."""
    from lampwork.benchmark.bench import judge

    lines = []
    for name, model in results["models"].items():
        for column, found in model["columns"].items():
            right, why = judge(found)
            if not right:
                lines.append(f"{name}, {NAMES[column]}: {why}".replace("[", r"\["))
            if "start_error" in found:
                lines.append(f"{name}, {NAMES[column]}, start: {found['start_error']}".replace("[", r"\["))
    return lines


def eager_calls(results: Found) -> list[str]:
    """A line for each reason why calls of a lampwork column ran eagerly, under either grad mode."""
    lines: dict[str, None] = {}
    for name, column, found in _ours(results["models"], results["settings"]["columns"]):
        for part in (found, found.get("no_grad", {}), found.get("inference_mode", {})):
            for reason in (part.get("stats") or {}).get("fallbacks") or ():
                lines[f"{name}, {NAMES[column]}, ran eagerly: {reason}".replace("[", r"\[")] = None
    return list(lines)


def count(value: object) -> str:
    """A count that is a number or the length of a sequence; - if unknown."""
    if value is None:
        return "-"
    return str(len(value)) if isinstance(value, list | tuple | dict) else str(value)


def _ratio(other: float | None, median: float) -> str:
    if other is None:
        return "-"
    ratio = other / median
    colour = "green" if ratio >= 1.0 else "yellow" if ratio >= 0.95 else "red"
    return f"[{colour}]{ratio:.2f}x[/{colour}]"


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _graphs(stats: Found) -> str:
    """Graphs captured for the measured calls, or found stored. Others in the cache that do not fit the process (the
    start-up processes leave theirs there, and `torch.compile` changes what they were made for) have no part in them."""
    if "captures" not in stats or "cache_hits" not in stats:
        return "-"
    return str(stats["captures"] + stats["cache_hits"])
