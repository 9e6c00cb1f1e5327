"""What a call costs before any work: a tiny function, and one check of a model's guards.

    python -m bench.overhead [MODELS...] [--json FILE] [--no-peer]

Prints microseconds for `(x + 1) * 2` on 8 elements through eager, torch.compile and lampwork, and of the guards of each
model named (bert if none is). Runs in processes of its own, as `lampwork bench` does.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lampwork.benchmark import bench, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["bert"])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--no-peer", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    columns = ("eager", "lampwork") if options.no_peer else ("eager", "peer", "lampwork")
    settings = bench.Settings(
        models=tuple(options.models), columns=columns, seconds=4.0, min_rounds=5, start=False, size="full"
    )
    with report.Progress(settings) as progress:
        results = bench.measure_all(settings, progress.update, progress.finished)
    console = Console()
    console.print(report.overhead_line(results["overhead"]))
    table = Table(title="One check of all guards, µs")
    table.add_column("model")
    for column in columns[1:]:
        table.add_column(report.NAMES[column], justify="right")
    for name, model in results["models"].items():
        cells = []
        for column in columns[1:]:
            found = model["columns"][column]
            measured = found.get("guard_us")
            told = found.get("error") or found.get("guard_error") or "not offered"
            cells.append(told if measured is None else f"{measured:.1f}")
        table.add_row(name, *cells)
    console.print(table)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))
    return 0 if bench.accepted(results) else 1


if __name__ == "__main__":
    sys.exit(main())
