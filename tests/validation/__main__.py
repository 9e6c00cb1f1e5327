"""Validates every stage on all that there is to run it on, and prints what differs.

python -m tests.validation [mechanisms] [generated] [fuzz] [gradients] [operators] [--seeds N] [--samples N] [--only TEXT] [--kind plain|small|gpu]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

os.environ.setdefault("LAMPWORK_STRICT", "1")
os.environ.setdefault("LAMPWORK_VERIFY", "1")
os.environ.setdefault("LAMPWORK_CACHE", "0")

import torch

from tests.validation.mechanisms import mechanism_programs
from tests.validation.sources import (
    DTYPES,
    Program,
    fuzzed_programs,
    generated_programs,
    gradient_programs,
    operator_programs,
)
from tests.validation.validate import Report, validate

SETS = ("mechanisms", "generated", "fuzz", "gradients", "operators")


def programs(options: argparse.Namespace) -> Iterator[Program]:
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = options.sets or SETS
    ops = [op for op in op_db if options.only in op.name]
    if "operators" in chosen:
        for op in ops:
            yield from operator_programs(op, DTYPES, options.samples, ("as it is", "turned", "apart"))
    if "gradients" in chosen:
        for op in ops:
            yield from gradient_programs(op, options.samples)
    seeds = range(options.first, options.first + options.seeds)
    if "generated" in chosen:
        yield from generated_programs(seeds)
        yield from generated_programs(seeds, gradients=True)
    if "fuzz" in chosen:
        for gradients, dynamic in itertools.product((False, True), repeat=2):
            yield from fuzzed_programs(seeds, gradients, dynamic)
    if "mechanisms" in chosen:
        yield from mechanism_programs(False)
        yield from mechanism_programs(True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.validation", description=__doc__)
    parser.add_argument("sets", nargs="*", help=f"what to run, of {', '.join(SETS)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=200, help="generated programs of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--samples", type=int, default=3, help="samples of an operator and type")
    parser.add_argument("--only", default="", help="operators whose name holds this")
    parser.add_argument("--kind", choices=("plain", "small", "gpu"), default="plain", help="as `validate` says")
    options = parser.parse_args()
    start, last = time.perf_counter(), 0.0
    reports: list[Report] = []
    failed: Counter[str] = Counter()
    for program in programs(options):
        try:
            with torch.set_grad_enabled(program.gradients):
                report = validate(program.name, program.function, program.calls, program.settings, kind=options.kind)
        except Exception as error:  # of a stage that makes something
            failed[f"{type(error).__name__}: {str(error)[:110]}"] += 1
            print(f"{program.name}: compile: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        reports.append(report)
        for each in report.differences:
            print(each, flush=True)
        if time.perf_counter() - last > 30:
            last = time.perf_counter()
            print(f"... {len(reports)} programs, {sum(each.stages for each in reports)} stages, "
                  f"{last - start:.0f} s, now {program.name}", file=sys.stderr, flush=True)  # fmt: skip
    differing = Counter(each.stage for report in reports for each in report.differences)
    skipped = Counter(report.skipped for report in reports if report.skipped)
    print(f"\n{len(reports)} programs, {sum(each.stages for each in reports)} stages run, "
          f"{sum(skipped.values())} programs without a graph, "
          f"{sum(each.undecided for each in reports)} of {sum(each.elements for each in reports)} elements undecided, {time.perf_counter() - start:.0f} s")  # fmt: skip
    for title, counts in (("first stage that differs", differing), ("not compiled", failed), ("no graph", skipped)):
        if counts:
            print(f"\n{title}")
            for name, count in counts.most_common(40):
                print(f"{count:6}  {name}")
    return 1 if differing or failed else 0


if __name__ == "__main__":
    sys.exit(main())
