"""`python -m tests.mutation.stored`: entries that one process stores and another, with one thing changed, loads.

Each case is a small program and a change of it (see `stored_programs.py`). One process compiles the program and stores
an entry; the text is changed, or a setting; a second process runs the compiled program. It may find the entry or not, but
its results must be those of eager in a third process. Processes are forked from one that has imported PyTorch and the
compiler, so that a case takes a fraction of a second.

    --sample N --seed S    N cases, chosen by S (all by default)
    --name TEXT            cases whose names contain TEXT
    --quick                those that were stale once, and a few of the rest
    --control              also run without the change, and count how often the entry is found then
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutation.stored_programs import Case, all_cases, quick_cases

#: A child that takes longer hangs.
TIMEOUT_SECONDS = 120


@dataclass
class Report:
    """What was found. `served`: cases whose entries were found after the change as well."""

    cases: int = 0
    served: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, text: str) -> None:
        """Notes that a case is "stale", "failed" or (its entry) "not found", and prints it."""
        self.found[kind] += 1
        print(f"{kind}: {text}", flush=True)


def run_cases(cases: Sequence[Case], control: bool = False, verbose: bool = False) -> Report:
    """Runs each case in processes of its own."""
    _import_everything()
    report = Report()
    for case in cases:
        report.cases += 1
        folder = Path(tempfile.mkdtemp(prefix="lampwork-stored-"))
        try:
            _run_case(case, folder, control, report)
        finally:
            shutil.rmtree(folder)
        if verbose:
            print(f"{report.cases} {case.name}", flush=True)
    return report


def _run_case(case: Case, folder: Path, control: bool, report: Report) -> None:
    _write(folder, case.before)
    stored = _in_child(folder, "", compiled=True)
    if "error" in stored:
        report.add("failed", f"{case.name}: {stored['error']}")
        return
    if control:
        again = _in_child(folder, "", compiled=True)
        if not again.get("hits"):
            notes = "; ".join(dict.fromkeys([*stored["notes"][1:], *again.get("notes", ())]))
            report.add("not found", f"{case.name}: {notes}")
    _write(folder, case.after)
    eager = _in_child(folder, case.setting, compiled=False)
    loaded = _in_child(folder, case.setting, compiled=True)
    if loaded.get("hits"):
        report.served += 1
    if eager.get("error") != loaded.get("error"):
        report.add("failed", f"{case.name}: {loaded.get('error')}, in eager {eager.get('error')}")
    elif not _same(eager.get("value"), loaded.get("value")):
        report.add("stale", f"{case.name}: {loaded['value']} instead of {eager['value']}, {loaded['hits']} found")


def _write(folder: Path, texts: tuple[str, str]) -> None:
    for name, text in zip(("main.py", "other.py"), texts):
        (folder / name).write_text(text)


def _import_everything() -> None:
    """What a child would spend seconds on. Nothing here starts a thread."""
    import torch

    torch.set_num_threads(1)
    import lampwork.pipeline
    import lampwork.runtime.cache.entries
    import lampwork.runtime.entry  # noqa: F401


def _in_child(folder: Path, setting: str, compiled: bool) -> dict[str, Any]:
    """What the program in `folder` gives in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            found = _result(folder, setting, compiled)
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        try:
            os.write(write, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process died"}


def _result(folder: Path, setting: str, compiled: bool) -> dict[str, Any]:
    import signal

    import torch

    import lampwork
    from lampwork.config import environment

    signal.alarm(TIMEOUT_SECONDS)
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode = True
    environment.__dict__.update(cache_dir=str(folder / "cache"), cache=True, strict=True)
    sys.path.insert(0, str(folder))
    exec(setting, {"torch": torch, "os": os, "sys": sys, "lampwork": lampwork})
    import main

    function, args = main.make()
    if not compiled:
        return {"value": _plain(function(*args))}
    fast = lampwork.compile(function)
    value = _plain(fast(*args))
    counted = lampwork.stats(fast)
    return {
        "value": value,
        "hits": counted["cache_hits"],
        "captures": counted["captures"],
        "notes": list(counted["cache_notes"]),
    }


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), value.detach().double().tolist()]
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(_plain, value)]
    return repr(value)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(left) and math.isnan(right))
    return left == right


def main(arguments: Sequence[str]) -> int:
    """Prints what was found; 1 if an entry was stale or a program failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args(arguments)
    cases = [case for case in all_cases() if chosen.name in case.name]
    if chosen.quick:
        cases = quick_cases()
    if chosen.sample:
        cases = random.Random(chosen.seed).sample(cases, min(chosen.sample, len(cases)))
    start = time.perf_counter()
    report = run_cases(cases, chosen.control, chosen.verbose)
    print(
        f"{report.cases} cases, {report.found['stale']} stale, {report.found['failed']} failed, {report.served} served"
        f" after the change, {time.perf_counter() - start:.0f} s"
    )
    return 1 if report.found["stale"] or report.found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
