"""`lampwork record`: what was compiled in a run that LAMPWORK_RECORD watched, and what another run did otherwise."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lampwork.records.record import Event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork record`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="what was compiled")
    show.add_argument("record", type=Path, metavar="RECORD", help="a record; of a folder, its newest one")
    diff = actions.add_parser("diff", help="what differs between two runs; exit status 1 if anything but times does")
    diff.add_argument("record", type=Path, metavar="FIRST")
    diff.add_argument("second", type=Path, metavar="SECOND")
    rerun = actions.add_parser("rerun", help="run the same command again, in its folder, and tell what differs")
    rerun.add_argument("record", type=Path, metavar="RECORD")


def run(arguments: argparse.Namespace) -> int:
    """Print it; 2 with a message where there is no such record."""
    from lampwork.records.record import read

    try:
        events = read(arguments.record)
        if arguments.action == "show":
            print(text(events))
            return 0
        if arguments.action == "diff":
            return tell_differences(events, read(arguments.second))
        return _rerun(events)
    except (OSError, ValueError) as error:
        print(f"lampwork record: {error}", file=sys.stderr)
        return 2


def _rerun(events: list[Event]) -> int:
    """The status is the command's own where it fails, else that of `diff`."""
    from lampwork.records.record import read

    run = events[0]
    with tempfile.TemporaryDirectory(prefix="lampwork-record-") as folder:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("LAMPWORK_")}
        environment = {**variables, **run["variables"], "LAMPWORK_RECORD": folder}
        if not any(event["event"] == "loaded" for event in events):
            environment["LAMPWORK_CACHE_DIR"] = os.path.join(folder, "cache")  # as the recorded run: nothing was there
            environment["LAMPWORK_CACHE_URL"] = ""
        print(f"running {' '.join(run['command'])} in {run['folder']}", file=sys.stderr)
        done = subprocess.run(run["command"], cwd=run["folder"], env=environment, check=False)
        if done.returncode:
            print(f"lampwork record: the command ended with status {done.returncode}", file=sys.stderr)
            return done.returncode
        return tell_differences(events, read(Path(folder)))


def tell_differences(first: list[Event], second: list[Event]) -> int:
    from lampwork.records.differences import differences, times

    lines = differences(first, second)
    print("\n".join(lines) if lines else "nothing differs")
    for line in times(first, second):
        print(line)
    return 1 if lines else 0


def text(events: list[Event]) -> str:
    """A record as people read it."""
    from lampwork.benchmark.tables import table

    run = events[0]
    lines = [
        f"{' '.join(run['command'])}",
        f"in {run['folder']}, {run['time']}, on {run['machine']['host']} ({run['machine']['system']})",
        "versions: " + ", ".join(f"{name} {value}" for name, value in run["versions"].items() if len(value) < 40),
    ]
    lines += [f"{name}={value}" for name, value in run["variables"].items()]
    rows = []
    for event in events[1:]:
        if event["event"] in ("compiled", "loaded"):
            seconds = event.get("seconds", {}).get("all")
            graph = event["graph"]
            rows.append([
                event["function"], event["event"], event["digest"], str(graph["guards"]), str(graph["kernels"]),
                str(graph["launches"]), str(sum(graph["aten_calls"].values())), str(len(event.get("refused", ()))),
                "" if seconds is None else f"{seconds:.2f} s",
            ])  # fmt: skip
    headings = ("function", "", "digest", "guards", "kernels", "launches", "ATen calls", "refused fusions", "took")
    lines += ["", table("Entries", headings, rows) or "Nothing was compiled."]
    notes = [event for event in events[1:] if event["event"] in ("recompiled", "fell back")]
    if notes:
        lines.append("")
        lines += [f"{each['function']} {each['event']}: {each['reason']} {each['line']}".rstrip() for each in notes]
    return "\n".join(lines)
