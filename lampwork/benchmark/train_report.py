"""The tables of `lampwork bench --task train`, as plain text, and its verdict."""

from __future__ import annotations

from lampwork.benchmark.columns import is_ours
from lampwork.benchmark.record import Found
from lampwork.benchmark.tables import counted, machine, mean_line, number, ratio, stage_lines, table

PEER = "peer"


def text(results: Found) -> str:
    """Everything that was measured, for a terminal."""
    models = results["models"]
    parts = [heading(results), steps_table(models), right_table(models), "\n".join(stage_lines(models))]
    parts += ["\n".join(summary(models)), "\n".join(remarks(models))]
    return "\n\n".join(part for part in parts if part)


def heading(results: Found) -> str:
    plan = results["plan"]
    precision = plan["dtype"] if plan["dtype"] == "float32" else f"autocast {plan['dtype']}"
    return (
        f"lampwork bench train, {precision}, AdamW ({plan['optimizer']}), clipping, mode {plan['mode'] or 'default'}, "
        f"dropout {'on' if plan['dropout'] else 'off'}, on {machine(results)}"
    )


def steps_table(models: Found) -> str:
    rows = []
    for name, model in models.items():
        for column, found in model["columns"].items():
            timing = found.get("timing")
            row = [name, column, "failed" if model["measured"] else "-", "", ""]
            if timing is not None:
                row[2:] = [number(timing["median_ms"]), f"{timing['spread'] * 50:.1f}%"]
                row.append(number((timing["device"] or {}).get("median_ms")))
            else:
                row.append("")
            peer = model["columns"].get(PEER, {})
            row += [number(ratio(model, "eager", column), "{:.2f}x")]
            row += [number(ratio(model, PEER, column), "{:.2f}x")]
            for kind in ("cold_seconds", "warm_seconds"):
                row.append(number(found.get(kind), "{:.2f}"))
                compared = is_ours(column) and kind in found and kind in peer
                row.append(f"1/{peer[kind] / found[kind]:.1f}" if compared else "-")
            row.append(number(found.get("peak_mib"), "{:.0f}"))
            rows.append(row)
    headings = ["case", "column", "ms a step", "+-", "GPU ms", "x eager", "x torch.compile"]
    headings += ["cold s", "share", "warm s", "share", "peak MiB"]
    title = (
        "Training steps: median ms; seconds to the end of the first step in a fresh process, and the share of "
        "torch.compile's; memory in use at the peak of a step"
    )
    return table(title, headings, rows)


def right_table(models: Found) -> str:
    rows = []
    for name, model in models.items():
        for column, found in model["columns"].items():
            if column == "eager" or not model["measured"]:
                continue
            verified, stats = found.get("verified"), found.get("stats") or {}
            cells = [pair(verified, part) for part in ("losses", "first_gradients", "gradients", "parameters")]
            right = "-" if verified is None else "yes" if not wrong(found) else "NO"
            counts = ["-"] * 6
            if stats:
                extern = stats.get("extern_calls") or {}
                counts = [
                    str(stats.get("graphs", "-")),
                    str(len(stats.get("breaks") or ())),
                    str(len(stats.get("fallbacks") or ())),
                    f"{len(stats.get('recompiles') or ())} ({found.get('late_recompiles', '-')} late)",
                    str(stats.get("native_kernels", "-")),
                    str(sum(extern.values())),
                ]
            rows.append([name, column, *cells, right, *counts])
    headings = ["case", "column", "losses", "first gradients", "gradients", "parameters", "right"]
    headings += ["graphs", "breaks", "fall-backs", "recompiles", "kernels", "ATen"]
    title = "Relative errors against the reference (eager's) after some steps, and what runs inside"
    return table(title, headings, rows)


def pair(verified: Found | None, part: str) -> str:
    if verified is None or part not in verified["errors"]:
        return "-"
    ours, eager = verified["errors"][part]
    return f"{ours:.1e} ({eager:.1e})"


def summary(models: Found) -> list[str]:
    """Geometric means over the cases and the worst of them. Columns that ran eagerly are counted, and said to be."""
    measured = {name: model for name, model in models.items() if model["measured"]}
    lines = []
    for column in dict.fromkeys(column for model in measured.values() for column in model["columns"]):
        eagerly = sum(ran_eagerly(model["columns"].get(column, {})) for model in measured.values())
        note = f"; {eagerly} of them ran eagerly" if eagerly else ""
        for over in ("eager", PEER):
            found = {name: value for name, model in measured.items() if (value := ratio(model, over, column))}
            lines += mean_line(f"{column} over {over}", found, "{:.3f}x", note)
    for kind in ("cold", "warm"):
        for column in ("lampwork:module", "lampwork:step"):
            shares = {}
            for name, model in models.items():
                ours, peer = (model["columns"].get(each, {}).get(f"{kind}_seconds") for each in (column, PEER))
                if ours and peer:
                    shares[name] = peer / ours
            eagerly = sum(ran_eagerly(model["columns"].get(column, {})) for model in measured.values())
            note = f"; {eagerly} of them ran eagerly" if eagerly else ""
            lines += mean_line(f"{kind} start of {column}, torch.compile's divided by it", shares, "{:.1f}", note)
    for column in ("lampwork:module", "lampwork:step"):
        shares = {}
        for name, model in models.items():
            ours, peer = (model["columns"].get(each, {}).get("peak_mib") for each in (column, PEER))
            if ours and peer:
                shares[name] = peer / ours
        lines += mean_line(f"peak memory of {column}, torch.compile's divided by it", shares, "{:.3f}", "")
    return lines


def ran_eagerly(found: Found) -> bool:
    """Whether nothing of a column of ours was compiled."""
    stats = found.get("stats") or {}
    return bool(stats) and not stats.get("graphs")


def wrong(found: Found) -> str:
    """Why a measured column is not accepted; nothing if it is."""
    if "error" in found:
        return found["error"]
    verified = found.get("verified")
    if verified is not None and not verified["accepted"]:
        return "; ".join(verified["reasons"][:3])
    return "" if "timing" in found else "was not measured"


def told_by_more(verified: Found) -> list[str]:
    """What a verdict rests on besides one run of eager and of the column."""
    notes = []
    if (runs := verified.get("eager_runs", 1)) > 1:
        notes.append(f"eager's errors are the largest of {runs} runs, {runs - 1} from parameters a last bit away")
    if in_double := verified.get("float64"):
        ours, eager = in_double["errors"]["first_gradients"]
        usual = verified["errors"]["first_gradients"][1]
        notes.append(
            f"eager's own first gradients err by {usual:.1e}, so it was trained in float64, too: "
            f"{ours:.1e} (eager a last bit away: {eager:.1e}), {'right' if in_double['accepted'] else 'wrong'}"
        )
    return notes


def remarks(models: Found) -> list[str]:
    """A line for each column that failed, is wrong, broke, ran eagerly or was compiled again in the timed steps."""
    lines: dict[str, None] = {}
    for name, model in models.items():
        for column, found in model["columns"].items():
            if model["measured"] and (why := wrong(found)):
                lines[f"{name}, {column}: {why}"] = None
            lines |= dict.fromkeys(counted(f"{name}, {column}", found))
            lines |= dict.fromkeys(f"{name}, {column}: {note}" for note in told_by_more(found.get("verified") or {}))
            for record in (found.get("stats") or {}).get("breaks") or ():
                lines[f"{name}, {column}, broke: {record}"] = None
            if found.get("late_recompiles"):
                lines[f"{name}, {column}: captured {found['late_recompiles']} times in the timed steps"] = None
    return list(lines)


def accepted(results: Found) -> bool:
    """Whether every column of ours of every measured case ran and trains as eager does."""
    return all(
        not wrong(found)
        for model in results["models"].values()
        if model["measured"]
        for column, found in model["columns"].items()
        if is_ours(column)
    )
