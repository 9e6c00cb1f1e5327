"""What the reports of benchmarks share: tables as plain text, ratios, and lines about a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lampwork.benchmark.measure import geometric_mean
from lampwork.benchmark.record import Found


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, the first two to the left; rows of one first cell are kept together."""
    if not rows:
        return ""
    widths = [max(len(row[index]) for row in [headings, *rows]) for index in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths))
        ]
        return "  ".join(padded).rstrip()

    lines = [title, line(headings), "-" * (sum(widths) + 2 * len(widths) - 2)]
    before = None
    for row in rows:
        lines.append(line([row[0] if row[0] != before else "", *row[1:]]))
        before = row[0]
    return "\n".join(lines)


def number(value: float | None, form: str = "") -> str:
    if value is None:
        return "-"
    if form:
        return form.format(value)
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.2f}"


def machine(results: Found) -> str:
    """What the run was measured on, and with which versions."""
    found = results.get("environment") or {}
    where = found.get("gpu") or f"{found.get('cpu', '?')}, {found.get('threads', '?')} threads"
    versions = [f"torch {found.get('torch', '?')}", f"Python {found.get('python', '?')}"]
    versions += [f"Triton {found['triton']}"] if "triton" in found else []
    return f"{where} ({', '.join(versions)})"


def median(model: Found, column: str) -> float | None:
    timing = model["columns"].get(column, {}).get("timing")
    return timing["median_ms"] if timing else None


def ratio(model: Found, over: str, column: str) -> float | None:
    """How many times faster `column` is than `over`; None if one of them was not timed, or they are the same."""
    ours, theirs = median(model, column), median(model, over)
    return None if column == over or not ours or not theirs else theirs / ours


def mean_line(what: str, found: dict[str, float], form: str, note: str = "") -> list[str]:
    """The geometric mean over cases, and the worst of them; nothing without any."""
    if not found:
        return []
    worst = min(found, key=lambda name: found[name])
    mean, least = (form.format(value) for value in (geometric_mean(list(found.values())), found[worst]))
    return [f"{what}: {mean} in geometric mean of {len(found)}, least {least} ({worst}){note}"]


def stage_lines(models: Found) -> list[str]:
    """Where a cold start of ours spends its time: milliseconds by stage, from `lampwork.stats`."""
    lines = []
    for name, model in models.items():
        for column, found in model["columns"].items():
            stages = found.get("stages") or {}
            told = [f"{stage} {seconds * 1e3:.0f}" for stage, seconds in stages.items() if seconds >= 0.0005]
            if told:
                lines.append(f"{name}, {column}, ms by stage: {', '.join(told)}")
    return lines


def counted(name: str, found: Found) -> Iterator[str]:
    """A line for each thing that failed in a column beside its numbers, that ran eagerly or without a CUDA graph."""
    for key in ("start_error", "profile_error", "stats_error", "guard_error"):
        if key in found:
            yield f"{name}, {key.replace('_', ' ')}: {found[key]}"
    stats = found.get("stats") or {}
    for reason in stats.get("fallbacks") or ():
        yield f"{name}, ran eagerly: {reason}"
    for account in stats.get("cuda_graphs") or ():
        if account["refused"]:
            yield f"{name}, no CUDA graph: {account['refused']}"
