"""One compile for many sizes: how many compiles serve 50 batch sizes and 50 lengths, and what that costs per call.

    python -m bench.dynamic [MODELS...] [--size full|tiny] [--count 50] [--seconds 4] [--threads N] [--json FILE]

Models are those of the zoo: bert and gpt2 if none is named. Each is compiled with nothing but `lampwork.compile` and
called with `--count` batch sizes from 2 on and, where it takes tokens, as many lengths; every `--judge`th result is
judged against eager's. Then the entry that serves all sizes takes turns with programs compiled for one size alone
(`dynamic=False`), at the sizes of `PROBES`. Ends with 1 if a result was refused, a model took more than three compiles,
or some size of the full models takes more than 1.1 times the fixed program's time, by the medians and by the fastest
calls: where other programs share the machine, medians alone say little.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lampwork.benchmark.measure import measure_interleaved
from lampwork.benchmark.zoo import Workload, build
from lampwork.verdict.verify import compare

COMPILES = 3
SLOWER = 1.10
#: Batch sizes and lengths (None: the model takes images) that are timed.
PROBES: dict[str, list[tuple[int, int | None]]] = {
    "tokens": [(2, 128), (8, 64), (2, 333)],
    "images": [(2, None), (5, None)],
}
TINY_PROBES: dict[str, list[tuple[int, int | None]]] = {"tokens": [(3, 16), (9, 33)], "images": [(3, None)]}
#: Up to which length texts are served; all of a full model's positions would take minutes of products.
LONGEST = {"full": 202, "tiny": 60}


def takes_tokens(workload: Workload) -> bool:
    first = workload.args[0]
    return first.dim() == 2 and not first.is_floating_point()


def arguments(workload: Workload, batch: int, length: int | None) -> tuple[torch.Tensor, ...]:
    """The workload's arguments with another batch size, and another length where the model takes tokens."""
    made = []
    for each in workload.args:
        shape = [batch, *each.shape[1:]]
        if length is not None and each.dim() > 1:
            shape[1] = length
        high = 2 if each.is_floating_point() else int(each.max()) + 1
        made.append(torch.randn(shape, dtype=each.dtype) if each.is_floating_point() else torch.randint(0, high, shape))
    return tuple(made)


def sizes_to_serve(workload: Workload, count: int, size: str) -> Iterator[tuple[int, int | None]]:
    """`count` batch sizes of short texts (or of images), then `count` lengths."""
    if not takes_tokens(workload):
        yield from ((batch, None) for batch in range(2, 2 + count))
        return
    yield from ((batch, 6) for batch in range(2, 2 + count))
    step = max((LONGEST[size] - 2) // count, 1)
    yield from ((2, 2 + step * number) for number in range(count))


def measure_model(name: str, options: argparse.Namespace, show: Any) -> dict[str, Any]:
    """Compiles, refused results, and for each probed size the times of the fixed and the dynamic program."""
    import lampwork

    torch.manual_seed(0)
    size = options.size
    workload = build(name, size=size)
    function = workload.function
    dynamic = lampwork.compile(function, options={"cache": False})
    refused: list[str] = []
    served = 0
    with torch.no_grad():
        for batch, length in sizes_to_serve(workload, options.count, size):
            show(f"{name} {batch}x{length or 'image'}")
            args = arguments(workload, batch, length)
            result = dynamic(*args)
            if served % options.judge == 0:
                verdict = compare(result, function(*args))
                if not verdict.accepted:
                    refused.append(f"{batch}x{length}: {'; '.join(verdict.reasons)}")
            served += 1
        stats = lampwork.stats(dynamic)
        found = {
            "served": served, "compiles": stats["captures"], "refused": refused, "sizes": [],
            "eager": [str(each) for each in (*stats["breaks"], *stats["fallbacks"])],
            "compile_seconds": sum(stats["compile_seconds"].values()),
        }  # fmt: skip
        probes = PROBES if size == "full" else TINY_PROBES
        for batch, length in probes["tokens" if takes_tokens(workload) else "images"]:
            show(f"{name} {batch}x{length or 'image'}: timing")
            args = arguments(workload, batch, length)
            fixed = lampwork.compile(function, dynamic=False, options={"cache": False})
            calls = {"fixed": lambda: fixed(*args), "dynamic": lambda: dynamic(*args)}
            if options.eager:
                calls["eager"] = lambda: function(*args)
            timings = measure_interleaved(calls, seconds=options.seconds, min_rounds=5, warmup_rounds=1)
            row = {column: timing.as_dict() for column, timing in timings.items()}
            ratio = timings["dynamic"].median_ms / timings["fixed"].median_ms
            row["ratio_of_fastest"] = timings["dynamic"].fastest_ms / timings["fixed"].fastest_ms  # type: ignore[assignment]
            found["sizes"].append({"batch": batch, "length": length, **row, "ratio": ratio})
    found["compiles_with_probes"] = lampwork.stats(dynamic)["captures"]
    return found


def print_tables(results: dict[str, dict[str, Any]], console: Console) -> None:
    rows = [row for found in results.values() for row in found["sizes"]]
    table = Table(title="Sizes served by one function")
    for column in ("model", "sizes", "compiles", "seconds", "refused results", "calls not in one graph"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, found in results.items():
        seconds = f"{found['compile_seconds']:.1f}"
        counts = str(len(found["refused"])), str(len(found["eager"]))
        table.add_row(name, str(found["served"]), str(found["compiles"]), seconds, *counts)
    console.print(table)
    table = Table(title="Median ms of a call: compiled for this size alone (fixed), compiled for all sizes (dynamic)")
    columns = [each for each in ("eager", "fixed", "dynamic") if any(each in row for row in rows)]
    for column in ("model", "size", *columns, "dynamic / fixed", "of the fastest"):
        table.add_column(column, justify="left" if column in ("model", "size") else "right")
    for name, found in results.items():
        for row in found["sizes"]:
            size = f"{row['batch']}x{row['length']}" if row["length"] else f"{row['batch']} images"
            cells = [f"{row[column]['median_ms']:.2f} ± {row[column]['spread'] * 50:.0f}%" for column in columns]
            table.add_row(name, size, *cells, f"{row['ratio']:.3f}", f"{row['ratio_of_fastest']:.3f}")
    console.print(table)
    for name, found in results.items():
        for text in (*found["refused"], *found["eager"]):
            console.print(f"{name}: {text}", markup=False, style="red")


def acceptable(found: dict[str, Any], size: str) -> bool:
    slow = size == "full" and any(min(row["ratio"], row["ratio_of_fastest"]) > SLOWER for row in found["sizes"])
    return not (found["refused"] or found["eager"] or found["compiles"] > COMPILES or slow)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dynamic", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["bert", "gpt2"])
    parser.add_argument("--size", default="full", choices=["full", "tiny"], help="full: as published")
    parser.add_argument("--count", type=int, default=50, help="batch sizes, and lengths, that are served (50)")
    parser.add_argument("--judge", type=int, default=5, help="judge every so-manieth result against eager's (5)")
    parser.add_argument("--eager", action="store_true", help="time eager too")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each size that is timed (4)")
    parser.add_argument("--threads", type=int, help="threads of torch and of lampwork (torch's own choice)")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("sizes", total=None)
        for name in options.models:
            show = lambda text: progress.update(task, description=text)
            results[name] = measure_model(name, options, show)
    print_tables(results, Console())
    if options.json:
        Path(options.json).write_text(json.dumps({"threads": torch.get_num_threads(), "models": results}, indent=1))
    return 0 if all(acceptable(found, options.size) for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
