"""What all pages share: one HTML file that needs nothing beside it, with its style; tables, headings, folded parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent);
  --soft: color-mix(in srgb, currentColor 7%, transparent); --accent: #b45309; --other: #2563eb; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --accent: #f59e0b; --other: #7aa2ff; --paper: #121212; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h2 small { font-weight: normal; opacity: .7; }
.answer { font-size: 1.25rem; line-height: 1.4; margin: .6rem 0 1rem; }
.facts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.facts div { background: var(--soft); border-radius: .4rem; padding: .4rem .8rem; }
.facts b { display: block; font-size: 1.15rem; }
.issue { border: 1px solid var(--line); border-left: 4px solid var(--accent); border-radius: .3rem; margin: .6rem 0;
  padding: .6rem .9rem; }
.issue p { margin: .25rem 0; } .place { opacity: .75; font-size: .9em; overflow-wrap: anywhere; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { background: var(--soft); padding: .7rem; overflow-x: auto;
  border-radius: .3rem; margin: .3rem 0; } pre.line { padding: .3rem .7rem; }
.id { font: 12px ui-monospace, monospace; background: var(--soft); padding: .1rem .4rem; border-radius: .3rem; }
.cost { color: var(--accent); font-weight: 600; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; padding: .2rem 0; } .bar { background: var(--accent); height: .6rem; border-radius: .2rem; }
.key { margin-right: 1.2rem; white-space: nowrap; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; background: var(--accent); }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { opacity: .8; margin-top: .3rem; }
svg { width: 100%; min-width: 34rem; height: auto; display: block; font: 12px system-ui, sans-serif; }
svg text { fill: currentColor; } svg .axis, svg .grid { stroke: var(--line); fill: none; }
svg .eager { stroke: var(--other); fill: var(--other); } svg .ours { stroke: var(--accent); fill: var(--accent); }
svg .curve { fill: none; stroke-width: 2.2; } svg .band { stroke: none; opacity: .22; }
svg text.eager, svg text.ours { stroke: none; font-weight: 600; }
"""


def document(title: str, body: Iterable[str]) -> str:
    """The whole file. `body` is HTML, part by part; empty parts are left out."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"\n<title>{escape(title)}</title>"
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}\n<style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def heading(title: str, count: int | None = None) -> str:
    return f"<h2>{title}{'' if count is None else f' <small>{count}</small>'}</h2>"


def table(names: Iterable[str], rows: Iterable[Iterable[Any]], numbers: Sequence[int] = ()) -> str:
    """Cells are HTML; the columns `numbers` are set to the right."""

    def cell(tag: str, index: int, content: Any) -> str:
        return f"<{tag}{' class=number' if index in numbers else ''}>{content}</{tag}>"

    lines = ["".join(cell("th", index, name) for index, name in enumerate(names))]
    lines += ["".join(cell("td", index, content) for index, content in enumerate(row)) for row in rows]
    return '<div class="scroll"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def words(markdown: str) -> str:
    """Text whose code is between backquotes."""
    parts = escape(markdown).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def facts(shown: dict[str, str]) -> str:
    """A row of small boxes: a name, and a number below it."""
    boxes = "".join(f"<div>{escape(name)}<b>{escape(value)}</b></div>" for name, value in shown.items())
    return f'<div class="facts">{boxes}</div>'
