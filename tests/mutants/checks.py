"""Which tests a fault of a stage has to fail: the stage's own, then those that compare whole programs with eager.

In the order in which they are run; the first that fails ends the run. No list is made for one fault.
"""

from __future__ import annotations

#: Tests of whole programs, by what they exercise. Each list takes well below a minute.
GRAPHS = ["tests/fuzz/test_programs.py"]
SIZES = ["tests/fuzz/test_sized_programs.py"]
GUARDS = ["tests/soundness/test_guards_notice.py"]

CHECKS: dict[str, list[str]] = {
    "ir": ["tests/unit/ir", "tests/unit/schedule", *SIZES],
    "fakes": ["tests/unit/fakes", "tests/fuzz", "tests/ops/test_quick.py"],
    "capture": ["tests/unit/capture", *GUARDS, "tests/python/test_changes.py"],
    "graph": ["tests/unit/graph", "tests/golden/graph", *GRAPHS, "tests/training/test_backward.py"],
    "lower": ["tests/unit/lower", "tests/golden/lower", "tests/ops/test_quick.py"],
    "schedule": ["tests/unit/schedule", "tests/golden/schedule", *GRAPHS, *SIZES],
    "codegen": ["tests/unit/codegen", "tests/golden/codegen", "tests/ops/test_quick.py"],
    "runtime": ["tests/unit/runtime", *GUARDS, *GRAPHS],
}
