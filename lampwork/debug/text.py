"""Facts as text: one section for each question a user has."""

from __future__ import annotations

from collections.abc import Iterable

from lampwork.debug.diagnostics import KINDS, asks_for_nothing
from lampwork.debug.facts import Facts


def summary(facts: Facts) -> str:
    lines = [f"{facts['name']}: {_verdict(facts)}"]
    if facts["numerics"] == "eager":
        lines.append("numbers are eager's bit by bit: what kernels would round otherwise is an ATen call")
    for each in facts["graphs"]:
        lines.append("")
        lines.append(f"graph {each['name']}, compiled in {milliseconds(each['compile_ms'])}")
        if each["runs_eagerly"]:
            lines.append("    runs eagerly; see breaks and fall-backs")
            continue
        lines.append(
            f"    {each['guards']} guards, {each['inputs']} inputs, {each['effects']} effects, on {each['device']}"
        )
        lines.append(
            f"    {each['kernels']} kernels, {each['launches']} launches, workspace of {each['workspace_bytes']} bytes"
        )
        calls = each["aten_calls"]
        lines.append(f"    {sum(calls.values())} ATen calls" + (": " if calls else ""))
        lines += [f"        {count} x {name}" for name, count in calls.items()]
    if facts["guard_us"] is not None:
        lines += ["", f"guards are checked in {facts['guard_us']:.2f} us"]
    if facts["moved_bytes"]:
        lines.append(f"kernels move {size(facts['moved_bytes'])} a call")
    return "\n".join(lines)


def answer(facts: Facts) -> str:
    """How it compiles, and whether there is anything to do, in a few sentences."""
    graphs = [each for each in facts["graphs"] if not each["runs_eagerly"]]
    kinds = [each["kind"] for each in facts["issues"]]
    found = [_counted(kinds.count(kind), title.partition(" ")[2]) for kind, title in KINDS.items() if kind in kinds]
    if not graphs:
        told = "Nothing is compiled"
    else:
        launches = _counted(sum(each["launches"] for each in graphs), "kernel launch", "kernel launches")
        calls = _counted(sum(sum(each["aten_calls"].values()) for each in graphs), "ATen call")
        told = f"{_counted(len(graphs), 'graph').capitalize()} with {launches} and {calls}"
        told += f"; {', '.join(found)}" if found else ", no breaks"
    known = [each["total_ms"] for each in facts["issues"] if each["total_ms"] is not None]
    told += f", {milliseconds(sum(known))} of the calls so far." if known else "."
    issues, fusions = to_do(facts)
    count = len(issues) + len(fusions)
    if not count:
        return f"{told} Nothing to do."
    return f"{told} {_counted(count, 'thing')} to do, the most expensive first."


def to_do(facts: Facts) -> tuple[list[Facts], list[Facts]]:
    """The issues and the refused fusions with a remedy, the most expensive first."""
    issues = [each for each in facts["issues"] if not asks_for_nothing(each["remedy"])]
    fusions = [each for each in facts["fusions"] if not asks_for_nothing(each["remedy"])]
    return sorted(issues, key=lambda each: -(each["total_ms"] or 0.0)), sorted(fusions, key=lambda each: -each["ms"])


def _counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _verdict(facts: Facts) -> str:
    kinds = [each["kind"] for each in facts["issues"]]
    counts = [f"{kinds.count(kind)} x {title.partition(' ')[2]}" for kind, title in KINDS.items() if kind in kinds]
    if facts["fusions"]:
        counts.append(f"{len(facts['fusions'])} x refused fusion")
    return ", ".join(counts) if counts else "one graph, nothing refused"


def memory(points: Iterable[Facts]) -> str:
    """One line for each budget."""
    lines = [f"{each['budget']:4.1f}  {size(each['bytes']):>10s}  {each['ms']:8.2f} ms more" for each in points]
    return "\n".join(["memory_budget, memory kept, estimated time", *lines]) if lines else ""


def issues(found: Iterable[Facts]) -> str:
    return "\n\n".join(_issue(each) for each in found)


def _issue(each: Facts) -> str:
    lines = [f"{where(each)}"] if each["file"] else []
    lines.append(f"    {each['reason']} [{each['id']}]")
    if each["remedy"]:
        lines.append(f"    what to do: {each['remedy']}")
    lines.append(f"    cost: {cost(each)}")
    if each["then"]:
        lines.append(f"          {then(each['then'])}")
    lines.append(f"    see {each['page']}")
    return "\n".join(lines)


def cost(each: Facts) -> str:
    """`3 times, 1.2 ms each (compiling)`; what the milliseconds are depends on the kind."""
    if each["kind"] == "specialised":
        return "a compile for each other size"
    if each["total_ms"] is None:
        return "not measured" + ("" if each["count"] else ": the call was compiled, not run")
    what = {"break": "run natively", "fallback": "run eagerly", "recompile": "compiling"}.get(each["kind"], "")
    times = f"{each['count']} times, {milliseconds(each['each_ms'])} each"
    if each["count"] == 1:
        times = f"once, {milliseconds(each['each_ms'])}"
    return times + (f" ({what})" if what else "")


def then(found: Facts) -> str:
    """What a break adds besides its native call."""
    graphs = "1 graph" if len(found["graphs"]) == 1 else f"{len(found['graphs'])} graphs"
    return (
        f"then {graphs}, compiled in {milliseconds(found['compile_ms'])}: "
        f"{found['guards']} guards checked in about {found['guard_us']:.1f} us, {found['launches']} launches"
    )


def where(each: Facts) -> str:
    text = f": {each['source']}" if each["source"] else ""
    return f"{each['file']}:{each['line']}{text}" if each["file"] else ""


def fusions(found: Iterable[Facts]) -> str:
    blocks = []
    for each in found:
        times = f", {each['count']} times" if each["count"] > 1 else ""
        lines = [
            f"{each['producer']['op']} -> {each['consumer']['op']}: {each['reason']} [{each['id']}]",
            *(f"    {role}: {where(each[role])}" for role in ("producer", "consumer") if each[role]["file"]),
            f"    cost: {size(each['bytes'])} through memory{times}, about {milliseconds(each['ms'])}",
            f"    what to do: {each['remedy']}",
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def guards(groups: Iterable[Facts]) -> str:
    lines = []
    for group in groups:
        lines.append(f"{group['about']} ({len(group['guards'])})")
        for each in group["guards"]:
            lines.append(f"    {each['text']}" + (f"    # {each['file']}:{each['line']}" if each["file"] else ""))
    return "\n".join(lines)


def kernel_heading(each: Facts) -> str:
    """Comment lines above a kernel's text."""
    moved = f"reads {size(each['read_bytes'])}, writes {size(each['written_bytes'])}"
    lines = [f"# launched {each['launches']} times, {moved}: about {milliseconds(each['memory_ms'])} a launch"]
    lines += [f"# {where(line)}" for line in each["lines"] if line["file"]]
    return "\n".join(lines)


def history(found: Facts) -> str:
    lines = [
        f"{found['calls']} calls, {found['entries']} entries, {found['captures']} captures, "
        f"{found['cache_hits']} entries from caches, files and equal modules"
    ]
    if found["compile_ms"]:
        lines.append(f"compiling took {milliseconds(sum(found['compile_ms'].values()))}: {stages(found['compile_ms'])}")
    lines += [f"on-disk cache: {note}" for note in found["cache_notes"]]
    return "\n".join(lines)


def stages(times_ms: dict[str, float]) -> str:
    return ", ".join(f"{name} {milliseconds(time)}" for name, time in times_ms.items())


def milliseconds(value: float) -> str:
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.2f} ms" if value >= 0.1 else f"{value * 1000:.2f} us"


def size(count: int) -> str:
    """`12 bytes`, `3.4 KiB`, `5.6 MiB`."""
    if count < 1024:
        return f"{count} bytes"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return f"{value:.1f} {unit}"
