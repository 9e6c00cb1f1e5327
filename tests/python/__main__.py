"""`python -m tests.python [FEATURE[/NAME] ...]`: runs programs and prints what was captured, and why the rest was not."""

from __future__ import annotations

import os
import sys
import traceback

os.environ.setdefault("LAMPWORK_STRICT", "1")

from tests.python.harness import CACHED, REMAINING, Outcome, all_programs, run_program
from tests.python.report import is_counted, share_table

#: The share of programs that must be captured without a break.
FLOOR = 0.935


def _chosen(feature: str, name: str, wanted: list[str]) -> bool:
    return not wanted or feature in wanted or f"{feature}/{name}" in wanted


def main(wanted: list[str]) -> int:
    """Prints the table; the exit status is 1 if a program differs from eager, or too few were captured whole."""
    outcomes = []
    for feature, name in all_programs():
        if not _chosen(feature, name, wanted):
            continue
        try:
            outcome = run_program(feature, name)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(place.filename)}:{place.lineno}"
            problem = f"the compiler failed: {type(error).__name__}: {error} ({where})"
            outcome = Outcome(feature, name, problem, ["failed"])
        outcomes.append(outcome)
    for outcome in outcomes:
        label = f"{outcome.feature}/{outcome.name}"
        if outcome.mismatch:
            print(f"DIFFERS  {label}: {outcome.mismatch}")
        elif outcome.reasons:
            print(f"broken   {label}: {'; '.join(outcome.reasons)}")
    print()
    print("\n".join(share_table((each.feature, bool(each.reasons)) for each in outcomes)))
    if CACHED:
        print(f"entries from the on-disk cache: {sum(each.cache_hits for each in outcomes)}")
    wrong = sum(bool(outcome.mismatch) and outcome.name not in REMAINING for outcome in outcomes)
    print(f"different from eager: {wrong} of {len(outcomes)} programs")
    counted = [each for each in outcomes if is_counted(each.feature)]
    if not wanted and sum(each.captured for each in counted) < FLOOR * len(counted):
        print(f"fewer than {FLOOR:.0%} were captured without a break")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
