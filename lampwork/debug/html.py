"""What `explain` found as one page of HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from lampwork.debug import text
from lampwork.debug.bars import bars
from lampwork.debug.diagnostics import KINDS
from lampwork.debug.facts import Facts
from lampwork.debug.markup import document, folded, heading, table, words
from lampwork.debug.markup import facts as boxes

#: The end of a kernel's name, which tells it from others of the same operators.
_DIGEST = re.compile(r"_[0-9a-f]{12}$")


def page(facts: Facts, code: Mapping[str, str]) -> str:
    """The whole page: the answer, what to do, where memory goes, then the evidence. `code`: texts by section name,
    folded away at the end."""
    body = [f"<h1>{escape(facts['name'])}</h1>", f'<p class="answer">{escape(text.answer(facts))}</p>', _numbers(facts)]
    issues, fusions = text.to_do(facts)
    if issues or fusions:
        body.append(heading("What to do", len(issues) + len(fusions)))
        body += [_issue(each) for each in issues] + [_fusion(each) for each in fusions]
    body += [_traffic(facts["kernels"]), _kernels(facts["kernels"])]
    others = [each for each in facts["issues"] if each not in issues]
    if others:
        body.append(heading("Other findings", len(others)))
        body += [_issue(each) for each in others]
    body.append(_accepted_fusions([each for each in facts["fusions"] if each not in fusions]))
    body += [_guards(facts["guards"]), _stages(facts["stages_ms"])]
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
    kind = KINDS[each["kind"]].partition(" ")[2].capitalize()
    parts = [f"<p><b>{kind}</b> {_id(each)}</p>", _place(each), f"<p>{escape(each['reason'])}</p>"]
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


def _accepted_fusions(fusions: list[Facts]) -> str:
    """Refused fusions without a remedy: a table, folded away."""
    if not fusions:
        return ""
    rows = [
        [
            f"{escape(each['producer']['op'])} → {escape(each['consumer']['op'])} {_id(each)}",
            escape(each["reason"]),
            each["count"],
            text.size(each["bytes"]),
            text.milliseconds(each["ms"]),
        ]
        for each in fusions
    ]
    told = "<p>These operators run best in separate kernels. Times are those of a copy of that size.</p>"
    names = ["operators", "why", "times", "bytes", "memory time"]
    content = told + table(names, rows, numbers=(2, 3, 4))
    return heading("Refused fusions without a remedy", len(fusions)) + folded("Show them", content)


def _place(each: Facts) -> str:
    if not each["file"]:
        return ""
    line = f'<pre class="line">{escape(each["source"])}</pre>' if each["source"] else ""
    return f'<div class="place">{escape(each["file"])}:{each["line"]}</div>{line}'


def _id(each: Facts) -> str:
    return f'<span class="id" title="{escape(each["page"])}">{escape(each["id"])}</span>'


def _traffic(kernels: list[Facts]) -> str:
    moved = [(each, (each["read_bytes"] + each["written_bytes"]) * each["launches"]) for each in kernels]
    moved.sort(key=lambda pair: -pair[1])
    rows = [(_DIGEST.sub("", each["name"]), float(count), text.size(count)) for each, count in moved]
    if len(rows) < 2:
        return ""
    return heading("Where memory traffic goes") + bars(rows, "Bytes that the kernels of a call read and write")


def _kernels(kernels: list[Facts]) -> str:
    """Most memory time first."""
    kernels = sorted(kernels, key=lambda each: -each["launches"] * each["memory_ms"])
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
    rows = [(name, time, text.milliseconds(time)) for name, time in times_ms.items()]
    return heading("Time by stage") + bars(rows, "What compiling took, in the order in which it happened")
