"""Facts as one page of HTML that needs nothing beside it: no scripts, no fonts, no pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from lampwork.debug import text
from lampwork.debug.diagnostics import KINDS

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent);
  --soft: color-mix(in srgb, currentColor 7%, transparent); --accent: #b45309; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h2 small { font-weight: normal; opacity: .7; }
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
"""


def page(facts: Mapping[str, Any], code: Mapping[str, str]) -> str:
    """The whole page. `code`: texts by section name, folded away at the end."""
    name = escape(facts["name"])
    body = [f"<h1>{name}</h1>", f"<p>{escape(text.summary(dict(facts)).splitlines()[0])}</p>", _numbers(facts)]
    for kind, title in KINDS.items():
        found = [each for each in facts["issues"] if each["kind"] == kind]
        if found:
            body.append(_heading(title.partition(" ")[2].capitalize() + "s", len(found)))
            body += [_issue(each) for each in found]
    if facts["fusions"]:
        body.append(_heading("Refused fusions", len(facts["fusions"])))
        body.append(
            "<p>What is handed on through memory, most bytes first. Times are those of a copy of that size.</p>"
        )
        body += [_fusion(each) for each in facts["fusions"]]
    body += [_kernels(facts["kernels"]), _guards(facts["guards"]), _stages(facts["stages_ms"])]
    if facts["history"] is not None:
        body += [_heading("What happened so far"), f"<pre>{escape(text.history(facts['history']))}</pre>"]
    if code:
        body.append(_heading("Stages and code"))
        body += [_folded(section, f"<pre>{escape(content)}</pre>") for section, content in code.items()]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"\n<title>{name}</title>"
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}\n<style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _heading(title: str, count: int | None = None) -> str:
    return f"<h2>{title}{'' if count is None else f' <small>{count}</small>'}</h2>"


def _numbers(facts: Mapping[str, Any]) -> str:
    graphs = [each for each in facts["graphs"] if not each["runs_eagerly"]]
    shown = {
        "graphs": str(len(graphs)),
        "kernels": str(sum(each["kernels"] for each in graphs)),
        "launches": str(sum(each["launches"] for each in graphs)),
        "ATen calls": str(sum(sum(each["aten_calls"].values()) for each in graphs)),
        "moved by kernels": text.size(facts["moved_bytes"]),
        "guards": str(sum(len(group["guards"]) for group in facts["guards"])),
        "guard check": "not measured" if facts["guard_us"] is None else f"{facts['guard_us']:.1f} µs",
        "compiling": text.milliseconds(sum(facts["stages_ms"].values())),
    }
    return (
        '<div class="facts">' + "".join(f"<div>{name}<b>{value}</b></div>" for name, value in shown.items()) + "</div>"
    )


def _issue(each: Mapping[str, Any]) -> str:
    parts = [_place(each), f"<p>{escape(each['reason'])} {_id(each)}</p>"]
    if each["remedy"]:
        parts.append(f"<p>What to do: {_words(each['remedy'])}</p>")
    parts.append(f'<p class="cost">{escape(text.cost(dict(each)))}</p>')
    if each["then"]:
        parts.append(f"<p>{escape(text.then(each['then']))}</p>")
    return f'<div class="issue">{"".join(parts)}</div>'


def _fusion(each: Mapping[str, Any]) -> str:
    title = f"<p><b>{escape(each['producer']['op'])} → {escape(each['consumer']['op'])}</b> {_id(each)}</p>"
    times = f", {each['count']} times" if each["count"] > 1 else ""
    cost = f"{text.size(each['bytes'])} through memory{times}, about {text.milliseconds(each['ms'])}"
    parts = [title, f"<p>{escape(each['reason'])}</p>", _place(each["producer"]), _place(each["consumer"])]
    parts += [f"<p>What to do: {_words(each['remedy'])}</p>", f'<p class="cost">{cost}</p>']
    return f'<div class="issue">{"".join(parts)}</div>'


def _place(each: Mapping[str, Any]) -> str:
    if not each["file"]:
        return ""
    line = f'<pre class="line">{escape(each["source"])}</pre>' if each["source"] else ""
    return f'<div class="place">{escape(each["file"])}:{each["line"]}</div>{line}'


def _id(each: Mapping[str, Any]) -> str:
    return f'<span class="id" title="{escape(each["page"])}">{escape(each["id"])}</span>'


def _words(markdown: str) -> str:
    """Text whose code is between backquotes."""
    parts = escape(markdown).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _kernels(kernels: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"<code>{escape(each['name'])}</code>",
            each["launches"],
            text.size(each["read_bytes"]),
            text.size(each["written_bytes"]),
            text.milliseconds(each["memory_ms"]),
            "<br>".join(
                f'<span class="place">{escape(_short(line["file"]))}:{line["line"]}</span> '
                f"<code>{escape(line['source'])}</code>"
                for line in each["lines"]
                if line["file"]
            ),
        ]
        for each in kernels
    ]
    if not rows:
        return ""
    names = ["kernel", "launches", "reads", "writes", "memory time", "computes"]
    return _heading("Kernels", len(rows)) + _table(names, rows, numbers=(1, 2, 3, 4))


def _short(file: str) -> str:
    return "/".join(file.rsplit("/", 2)[-2:])


def _guards(groups: list[dict[str, Any]]) -> str:
    if not groups:
        return ""
    parts = [_heading("Guards", sum(len(group["guards"]) for group in groups))]
    for group in groups:
        lines = "\n".join(
            escape(each["text"]) + (escape(f"    # {each['file']}:{each['line']}") if each["file"] else "")
            for each in group["guards"]
        )
        parts.append(_folded(f"{group['about']} ({len(group['guards'])})", f"<pre>{lines}</pre>"))
    return "".join(parts)


def _stages(times_ms: Mapping[str, float]) -> str:
    if not times_ms:
        return ""
    longest = max(times_ms.values()) or 1.0
    rows = [
        [name, text.milliseconds(time), f'<div class="bar" style="width:{100 * time / longest:.1f}%"></div>']
        for name, time in times_ms.items()
    ]
    return _heading("Time by stage") + _table(["stage", "time", ""], rows, numbers=(1,))


def _table(names: Iterable[str], rows: Iterable[Iterable[Any]], numbers: tuple[int, ...] = ()) -> str:
    def cell(tag: str, index: int, content: Any) -> str:
        return f"<{tag}{' class=number' if index in numbers else ''}>{content}</{tag}>"

    lines = ["".join(cell("th", index, name) for index, name in enumerate(names))]
    lines += ["".join(cell("td", index, content) for index, content in enumerate(row)) for row in rows]
    return '<div class="scroll"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
