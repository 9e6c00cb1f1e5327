"""Which tests a fault of a stage has to fail: the stage's own, then those that run whole programs.

In the order in which they are run; the first that fails ends the run. No list is made for one fault.
"""

from __future__ import annotations

GUARDS = "tests/soundness/test_guards_notice.py"
PROGRAMS = "tests/fuzz/test_programs.py"
SIZES = "tests/fuzz/test_sized_programs.py"
FUZZ = "tests/fuzz/test_fuzz.py"
STAGES = "tests/validation/test_validation.py"

CHECKS: dict[str, list[str]] = {
    "ir": ["tests/unit/ir", SIZES, "tests/unit/schedule"],
    "fakes": ["tests/unit/fakes/test_symbolic.py", SIZES, FUZZ, "tests/unit/fakes"],
    "capture": [GUARDS, "tests/unit/capture", "tests/python/test_changes.py"],
    "graph": ["tests/unit/graph", "tests/golden/graph", PROGRAMS, STAGES],
    "lower": ["tests/golden/lower", FUZZ, "tests/unit/lower", STAGES],
    "schedule": ["tests/unit/schedule", PROGRAMS, STAGES],
    "codegen": ["tests/golden/codegen", "tests/unit/codegen", FUZZ, STAGES],
    "runtime": [GUARDS, "tests/unit/runtime", PROGRAMS],
}
