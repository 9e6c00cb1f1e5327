"""The tables of `lampwork bench` with several modes, as plain text, and its verdict."""

from __future__ import annotations

from lampwork.benchmark.columns import is_ours
from lampwork.benchmark.measure import geometric_mean
from lampwork.benchmark.record import Found
from lampwork.benchmark.tables import counted, machine, mean_line, median, number, ratio, stage_lines, table


def text(results: Found) -> str:
    """Everything that was measured, for a terminal."""
    parts = [heading(results)]
    models = results["models"]
    if models:
        parts.append(steady_table(models))
        parts += [start_table(models), "\n".join(stage_lines(models)), inside_table(models)]
        parts.append("\n".join(summary(models)))
    parts.append(overhead_line(results["overhead"]))
    parts.append("\n".join(failures(results)))
    return "\n\n".join(part for part in parts if part)


def heading(results: Found) -> str:
    plan = results["plan"]
    return f"lampwork bench infer, {plan['dtype']}, {plan['grad_mode']}, on {machine(results)}"


def steady_table(models: Found) -> str:
    rows = []
    for name, model in models.items():
        if not model["measured"]:
            continue
        for column, found in model["columns"].items():
            timing, profile = found.get("timing"), found.get("profile") or {}
            if timing is None:
                rows.append([name, column, "failed", *[""] * 6])
                continue
            device = timing["device"]
            rows.append(
                [
                    name,
                    column,
                    number(timing["median_ms"]),
                    f"{timing['spread'] * 50:.1f}%",
                    number(device and device["median_ms"]),
                    number(profile.get("milliseconds")),
                    number(profile.get("launches"), "{:.0f}"),
                    number(ratio(model, "eager", column), "{:.2f}x"),
                    number(ratio(model, same_mode(column), column), "{:.2f}x"),
                ]
            )
    headings = ["case", "column", "ms", "+-", "GPU ms", "kernel ms", "launches", "x eager", "x torch.compile"]
    return table(
        "Steady state: median ms a call by the wall clock and by CUDA events; times faster than eager, and than "
        "torch.compile in the same mode",
        headings,
        rows,
    )


def same_mode(column: str) -> str:
    """The column of torch.compile that a column of ours is divided by."""
    return f"peer:{column.partition(':')[2]}" if is_ours(column) else ""


def start_table(models: Found) -> str:
    rows = []
    for name, model in models.items():
        for column, found in model["columns"].items():
            if "start_error" in found:
                rows.append([name, column, "failed", "", "", ""])
            elif "cold_seconds" in found:
                cells = []
                for kind in ("cold_seconds", "warm_seconds"):
                    peer = first_start(model, kind) if is_ours(column) else None
                    cells += [number(found[kind], "{:.2f}"), number(peer and peer / found[kind], "1/{:.1f}")]
                rows.append([name, column, *cells])
    title = "Start: seconds to the first result in a fresh process, and the share of torch.compile's"
    return table(title, ["case", "column", "cold s", "share", "warm s", "share"], rows)


def first_start(model: Found, kind: str) -> float | None:
    found = [each[kind] for name, each in model["columns"].items() if name.startswith("peer") and kind in each]
    return found[0] if found else None


def inside_table(models: Found) -> str:
    rows = []
    for name, model in models.items():
        for column, found in model["columns"].items():
            if column == "eager" or not model["measured"] or "verified" not in found:
                continue
            verified, stats = found["verified"], found.get("stats") or {}
            extern = stats.get("extern_calls")
            rows.append(
                [
                    name,
                    column,
                    f"{verified['error']:.1e}",
                    f"{verified['reference_error']:.1e} ({verified['eager_reference_error']:.1e})",
                    f"{verified['scale']:.2g}",
                    "yes" if not wrong(found, column) else "NO",
                    "-" if "kept" not in found else "yes" if found["kept"]["right"] else "NO",
                    "-" if not stats else str(stats["captures"] + stats["cache_hits"]),
                    "-" if not stats else f"{len(stats['breaks'])}/{len(stats['fallbacks'])}",
                    str(found.get("kernels", "-")),
                    "-" if extern is None else str(sum(extern.values())),
                    graphs_captured(stats),
                    number(found.get("guard_us")),
                    number(found.get("peak_mib"), "{:.0f}"),
                    number(found.get("held_mib"), "{:.0f}"),
                ]
            )
    headings = ["case", "column", "error", "to reference (eager's)", "largest", "right", "kept right", "graphs"]
    headings += ["breaks/fall-backs", "kernels", "ATen", "CUDA graphs", "guards us", "peak MiB", "held MiB"]
    return table("Right or not, and what runs inside", headings, rows)


def graphs_captured(stats: Found) -> str:
    """How many CUDA graphs were captured for a column, or that calls run plainly (`failures` says why)."""
    accounts = stats.get("cuda_graphs")
    if not accounts:
        return "-"
    return "plain" if all(each["refused"] for each in accounts) else str(sum(each["captures"] for each in accounts))


def summary(models: Found) -> list[str]:
    """Geometric means over the cases, and the worst of them: every column, then the best modes against each other."""
    measured = {name: model for name, model in models.items() if model["measured"]}
    lines = []
    columns = list(dict.fromkeys(column for model in measured.values() for column in model["columns"]))
    for column in columns:
        for over in dict.fromkeys(("eager", same_mode(column))):
            found = {name: value for name, model in measured.items() if (value := ratio(model, over, column))}
            lines += mean_line(f"{column} over {over}", found, "{:.3f}x")
    best = {}
    for name, model in measured.items():
        ours = [value for column in columns if is_ours(column) and (value := median(model, column))]
        theirs = [value for column in columns if column.startswith("peer") and (value := median(model, column))]
        if ours and theirs:
            best[name] = min(theirs) / min(ours)
    lines += mean_line("best mode over torch.compile's best", best, "{:.3f}x")
    for kind in ("cold", "warm"):
        shares = {}
        for name, model in models.items():
            peer = first_start(model, f"{kind}_seconds")
            started = [
                each[f"{kind}_seconds"]
                for column, each in model["columns"].items()
                if is_ours(column) and f"{kind}_seconds" in each
            ]
            if peer and started:
                shares[name] = peer / started[0]
        if shares:
            worst = min(shares, key=lambda name: shares[name])
            lines.append(
                f"{kind} start: 1/{geometric_mean(list(shares.values())):.1f} of torch.compile's in geometric mean of "
                f"{len(shares)}, at most 1/{shares[worst]:.1f} ({worst})"
            )
    return lines


def overhead_line(overhead: Found) -> str:
    parts = []
    for column, found in overhead.get("columns", {}).items():
        parts.append(f"{column} " + (f"{found['call_us']:.1f} us" if "call_us" in found else "failed"))
    return "Call of (x + 1) * 2 on 8 elements: " + ", ".join(parts) if parts else ""


def wrong(found: Found, column: str) -> str:
    """Why a measured column is not accepted; nothing if it is. An output that changed counts against ours alone:
    torch.compile documents that its reduce-overhead does that."""
    if "error" in found:
        return found["error"]
    for key in ("verified", "verified_again"):
        if key in found and not found[key]["accepted"]:
            return f"{key}: {'; '.join(found[key]['reasons'][:2])}"
    if is_ours(column) and not found.get("kept", {"right": True})["right"]:
        return f"kept outputs: {found['kept']['why']}"
    return "" if "verified" in found or column == "eager" else "was not measured"


def failures(results: Found) -> list[str]:
    """A line for each column that failed, was refused or ran eagerly; torch.compile's too."""
    lines: dict[str, None] = {}
    for column, found in results["overhead"].get("columns", {}).items():
        if "error" in found:
            lines[f"(x + 1) * 2, {column}: {found['error']}"] = None
    for name, model in results["models"].items():
        for column, found in model["columns"].items():
            if model["measured"] and (why := wrong(found, column)):
                lines[f"{name}, {column}: {why}"] = None
            elif not found.get("kept", {"right": True})["right"]:
                lines[f"{name}, {column}: kept outputs: {found['kept']['why']}"] = None
            lines |= dict.fromkeys(counted(f"{name}, {column}", found))
    return list(lines)


def accepted(results: Found) -> bool:
    """Whether every column of ours of every measured case ran and gave accepted numbers."""
    return all(
        not wrong(found, column)
        for model in results["models"].values()
        if model["measured"]
        for column, found in model["columns"].items()
        if is_ours(column)
    )
