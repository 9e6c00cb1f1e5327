"""python -m tests.mutation --changes 5000 [--seed S] [--subject NAME [--change TEXT]]: prints what stayed stale, classed.

Exits with 1 where an entry did not notice a change of a class that is not in known.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

os.environ.setdefault("LAMPWORK_STRICT", "1")

import random
import warnings

from tests.mutation.known import class_of
from tests.mutation.run import Report, run_subject
from tests.mutation.subjects import Subject, generated, written


def subjects(draw: random.Random):
    """Programs without end: written and generated ones in turn."""
    there: list[Subject] = []
    while True:
        if not there:
            there = written()
            draw.shuffle(there)
        yield there.pop()
        yield generated(draw.randrange(1 << 30))
        yield generated(draw.randrange(1 << 30))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--changes", type=int, default=5000)
    parser.add_argument("--each", type=int, default=25, help="changes of one program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", help="feature/name, or generated/seed")
    parser.add_argument("--change", help="its kind, or all of its text")
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    draw = random.Random(options.seed)
    total, start = Report(), time.monotonic()
    if options.subject:
        feature, _, name = options.subject.partition("/")
        subject = generated(int(name)) if feature == "generated" else Subject(options.subject)
        total = run_subject(subject, options.changes, draw, options.change)
        if subject.text:
            print(subject.text.rpartition("def program")[2])
    else:
        from rich.progress import Progress

        with Progress(disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("changes", total=options.changes)
            for subject in subjects(draw):
                total.add(run_subject(subject, options.each, draw))
                progress.update(task, completed=total.made)
                if total.made >= options.changes or time.monotonic() - start > 60 * options.minutes:
                    break
    fresh = [each for each in total.findings if class_of(each) is None]
    for each in fresh:
        print(f"STALE {each.subject.name}: {each.change}\n    {each.difference.splitlines()[0][:200]}")
    print(f"{total.made} changes of {total.subjects} programs ({total.passed_over} passed over, "
          f"{total.inapplicable} changes inapplicable): {total.missed} missed, {total.served} served, "
          f"{len(total.findings)} stale, {len(fresh)} of them not known; {time.monotonic() - start:.0f} s")  # fmt: skip
    for name, count in Counter(class_of(each) or f"new: {each.change.kind}" for each in total.findings).most_common():
        print(f"{count:5}  {name}")
    return 1 if fresh else 0


if __name__ == "__main__":
    sys.exit(main())
