"""What `explain` found as one page of HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from lampwork.debug import text
from lampwork.debug.diagnostics import KINDS
from lampwork.debug.facts import Facts
from lampwork.debug.markup import document, folded, heading, table, words
from lampwork.debug.markup import facts as boxes


def page(facts: Facts, code: Mapping[str, str]) -> str:
    """The whole page. `code`: texts by section name, folded away at the end."""
    name = escape(facts["name"])
    body = [f"<h1>{name}</h1>", f"<p>{escape(text.summary(dict(facts)).splitlines()[0])}</p>", _numbers(facts)]
    for kind, title in KINDS.items():
        found = [each for each in facts["issues"] if each["kind"] == kind]
        if found:
            body.append(heading(title.partition(" ")[2].capitalize() + "s", len(found)))
            body += [_issue(each) for each in found]
    if facts["fusions"]:
        body.append(heading("Refused fusions", len(facts["fusions"])))
        body.append(
            "<p>What is handed on through memory, most bytes first. Times are those of a copy of that size.</p>"
        )
        body += [_fusion(each) for each in facts["fusions"]]
    body += [_kernels(facts["kernels"]), _guards(facts["guards"]), _stages(facts["stages_ms"])]
    if facts["history"] is not None:
        body += [heading("What happened so far"), f"<pre>{escape(text.history(facts['history']))}</pre>"]
    if code:
        body.append(heading("Stages and code"))
        body += [folded(section, f"<pre>{escape(content)}</pre>") for section, content in code.items()]
    return document(facts["name"], body)


def _numbers(facts: Facts) -> str:
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
    if facts["numerics"] == "eager":
        shown["numbers"] = "eager's bits"
    return boxes(shown)


def _issue(each: Facts) -> str:
    parts = [_place(each), f"<p>{escape(each['reason'])} {_id(each)}</p>"]
    if each["remedy"]:
        parts.append(f"<p>What to do: {words(each['remedy'])}</p>")
    parts.append(f'<p class="cost">{escape(text.cost(dict(each)))}</p>')
    if each["then"]:
        parts.append(f"<p>{escape(text.then(each['then']))}</p>")
    return f'<div class="issue">{"".join(parts)}</div>'


def _fusion(each: Facts) -> str:
    title = f"<p><b>{escape(each['producer']['op'])} → {escape(each['consumer']['op'])}</b> {_id(each)}</p>"
    times = f", {each['count']} times" if each["count"] > 1 else ""
    cost = f"{text.size(each['bytes'])} through memory{times}, about {text.milliseconds(each['ms'])}"
    parts = [title, f"<p>{escape(each['reason'])}</p>", _place(each["producer"]), _place(each["consumer"])]
    parts += [f"<p>What to do: {words(each['remedy'])}</p>", f'<p class="cost">{cost}</p>']
    return f'<div class="issue">{"".join(parts)}</div>'


def _place(each: Facts) -> str:
    if not each["file"]:
        return ""
    line = f'<pre class="line">{escape(each["source"])}</pre>' if each["source"] else ""
    return f'<div class="place">{escape(each["file"])}:{each["line"]}</div>{line}'


def _id(each: Facts) -> str:
    return f'<span class="id" title="{escape(each["page"])}">{escape(each["id"])}</span>'


def _kernels(kernels: list[Facts]) -> str:
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
    return heading("Kernels", len(rows)) + table(names, rows, numbers=(1, 2, 3, 4))


def _short(file: str) -> str:
    return "/".join(file.rsplit("/", 2)[-2:])


def _guards(groups: list[Facts]) -> str:
    if not groups:
        return ""
    parts = [heading("Guards", sum(len(group["guards"]) for group in groups))]
    for group in groups:
        lines = "\n".join(
            escape(each["text"]) + (escape(f"    # {each['file']}:{each['line']}") if each["file"] else "")
            for each in group["guards"]
        )
        parts.append(folded(f"{group['about']} ({len(group['guards'])})", f"<pre>{lines}</pre>"))
    return "".join(parts)


def _stages(times_ms: Mapping[str, float]) -> str:
    if not times_ms:
        return ""
    longest = max(times_ms.values()) or 1.0
    rows = [
        [name, text.milliseconds(time), f'<div class="bar" style="width:{100 * time / longest:.1f}%"></div>']
        for name, time in times_ms.items()
    ]
    return heading("Time by stage") + table(["stage", "time", ""], rows, numbers=(1,))
