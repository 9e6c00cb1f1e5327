"""`python -m tests.faults`: every case, two at a time, with a table at the end. Exit status 1 if one went wrong.

python -m tests.faults                      all of them
python -m tests.faults forks folders.links  those of a file, or one
python -m tests.faults --quick              those that run in the ordinary suite
python -m tests.faults --seed 7             other random moments
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.faults.cases import cases
from tests.faults.runner import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Faults around a program.")
    parser.add_argument("names", nargs="*", help="files, or FILE.CASE; all by default")
    parser.add_argument("--quick", action="store_true", help="only the cases of the ordinary suite")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at a time")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--list", action="store_true", help="name the cases and run none")
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs have it ignored, and children too
    known = cases()
    for name in options.names:
        if not any(name in (each.file, each.full_name) for each in known):
            parser.error(f"no case is called {name}")
    chosen = [each for each in known if not options.names or {each.file, each.full_name} & set(options.names)]
    if options.quick:
        chosen = [each for each in chosen if each.quick]
    if options.list:
        for each in chosen:
            print(f"{each.full_name:48} {'quick' if each.quick else '':6} {(each.run.__doc__ or '').splitlines()[0]}")
        return 0
    runs = [(each, options.seed + turn) for each in chosen for turn in range(1 if options.quick else each.times)]
    start = time.monotonic()
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run, each, seed) for each, seed in runs]):
            outcome = done.result()
            outcomes.append(outcome)
            print(f"[{len(outcomes)}/{len(runs)}] {outcome.case.full_name} seed {outcome.seed}: {outcome.verdict} "
                  f"({outcome.seconds:.0f} s)", flush=True)  # fmt: skip
            if outcome.is_bad:
                print("    " + "\n    ".join(outcome.output.splitlines()[-40:]), flush=True)
    table(outcomes)
    bad = sum(each.is_bad for each in outcomes)
    print(f"{len(outcomes)} runs of {len(chosen)} cases in {time.monotonic() - start:.0f} s, {bad} went wrong")
    return 1 if bad else 0


def table(outcomes: list[Outcome]) -> None:
    """Prints a line for each case."""
    print(f"\n{'case':48} {'runs':>5} {'bad':>4} {'s each':>7}")
    for name in dict.fromkeys(each.case.full_name for each in sorted(outcomes, key=lambda each: each.case.full_name)):
        own = [each for each in outcomes if each.case.full_name == name]
        words = sorted({each.verdict for each in own if each.verdict != "passed"})
        mean = sum(each.seconds for each in own) / len(own)
        print(f"{name:48} {len(own):5} {sum(each.is_bad for each in own):4} {mean:7.1f} {' '.join(words)}")


if __name__ == "__main__":
    sys.exit(main())
