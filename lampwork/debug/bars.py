"""A drawing that explains where something goes: named bars as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, NAMES, NUMBERS, STEP = 760, 260, 90, 22


def bars(rows: Sequence[tuple[str, float, str]], caption: str, most: int = 12) -> str:
    """`rows`: name, length, and the length in words. Beyond the `most` longest they are one bar."""
    ordered = sorted(rows, key=lambda row: -row[1])
    shown, rest = (ordered[:most], ordered[most:]) if len(rows) > most else (rows, [])
    longest = max([each[1] for each in shown] + [sum(each[1] for each in rest)], default=0.0)
    if longest <= 0:
        return ""
    parts = []
    for index, (name, length, words) in enumerate(shown):
        parts += _bar(index, _cut(name), name, length / longest, words, "ours")
    if rest:
        total = sum(each[1] for each in rest)
        share = f"{100 * total / sum(each[1] for each in rows):.0f}% of all"
        parts += _bar(len(shown), f"{len(rest)} others", "", total / longest, share, "eager")
    height = STEP * (len(shown) + bool(rest)) + 4
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(caption)}">{"".join(parts)}</svg>'
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _bar(index: int, label: str, name: str, share: float, words: str, style: str) -> list[str]:
    top = index * STEP
    width = max(1.0, share * (WIDTH - NAMES - NUMBERS))
    title = f"<title>{escape(name)}</title>" if name else ""
    return [
        f'<text x="{NAMES - 8}" y="{top + 15}" text-anchor="end">{escape(label)}{title}</text>',
        f'<rect class="{style}" x="{NAMES}" y="{top + 4}" width="{width:.1f}" height="{STEP - 8}"/>',
        f'<text x="{NAMES + width + 6:.1f}" y="{top + 15}">{escape(words)}</text>',
    ]


def _cut(name: str, most: int = 32) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
