"""The quick cases of `python -m tests.faults`, each in a process of its own."""

from __future__ import annotations

import pytest

from tests.faults.cases import Case, cases
from tests.faults.runner import run


@pytest.mark.parametrize("case", [each for each in cases() if each.quick], ids=lambda each: each.full_name)
def test_case(case: Case) -> None:
    outcome = run(case, 0)
    if outcome.verdict == "skipped":
        pytest.skip(outcome.output.strip().splitlines()[-1])
    assert not outcome.is_bad, f"{outcome.verdict}\n{outcome.output}"
