"""Which tests a fault of a stage has to fail: the stage's own, then those that run whole programs.

In the order in which they are run; the first that fails ends the run: so those come first that are quick and see much. No
list is made for one fault.
"""

from __future__ import annotations

GUARDS = "tests/soundness/test_guards_notice.py"
#: Of the generated programs that write through views, every fifth.
PROGRAMS = [f"tests/fuzz/test_programs.py::test_program_equals_eager[{seed}-no_grad]" for seed in range(0, 200, 5)]
SIZES = "tests/fuzz/test_sized_programs.py"
FUZZ = "tests/fuzz/test_fuzz.py"
STAGES = "tests/validation/test_validation.py"

EFFECTS = "tests/soundness/test_effects_happen.py"
HALVES = "tests/training/test_halves.py"
#: What autograd keeps, as callers see it who write between the passes.
KEPT = "tests/regress/test_writes_between_passes.py"
TWICE = "tests/training/test_twice.py"
LEAVES = "tests/training/test_leaves_made_inside.py"
SETTINGS = "tests/dynamic/test_settings.py"
#: Operators in ways that ordinary samples do not show.
USES, VALUES = "tests/ops/test_uses.py", "tests/ops/test_mixed_values.py"
RUNTIME = [
    f"tests/unit/runtime/{name}.py"
    for name in (
        "guards/test_compile", "leave/test_reconstruction", "launch/test_memory", "launch/test_host",
        "guards/test_native_tensors", "launch/test_prepacked",
    )
]  # fmt: skip

SCHEDULING = [f"tests/unit/schedule/test_{name}.py" for name in ("order", "places", "masks", "horizontal", "in_place")]
LOWERING = [f"tests/unit/lower/test_{name}.py" for name in ("operators", "sizes", "views", "lower")]
LLVM = ["tests/golden/codegen", *(f"tests/unit/codegen/test_{name}.py" for name in ("image", "programs", "accuracy"))]

#: Files whole: of a test and its file, or a file and its folder, pytest runs the larger alone.
TRITON = [f"tests/unit/codegen/triton/test_{name}.py" for name in ("dropout", "programs")]

CHECKS: dict[str, list[str]] = {
    "ir": ["tests/unit/ir", SIZES, "tests/unit/schedule"],
    "fakes": ["tests/unit/fakes/test_layouts.py", "tests/unit/fakes/test_symbolic.py", SIZES, FUZZ, "tests/unit/fakes"],
    "capture": [EFFECTS, GUARDS, KEPT, LEAVES, SETTINGS, "tests/unit/capture", "tests/python/test_changes.py"],
    "graph": [
        "tests/unit/graph/test_passes.py",
        HALVES,
        KEPT,
        TWICE,
        "tests/golden/graph",
        "tests/unit/graph",
        *PROGRAMS,
        STAGES,
        USES,
    ],
    "lower": [*LOWERING, "tests/golden/lower", "tests/unit/lower", SIZES, FUZZ, VALUES],
    "schedule": [*SCHEDULING, "tests/unit/schedule", STAGES],
    "llvm": [*(f"tests/unit/codegen/test_{name}.py" for name in ("memory", "kernels", "operations")), *LLVM, FUZZ],
    "triton": [*TRITON, "tests/unit/codegen/triton"],
    "host": ["tests/unit/runtime/launch/test_host.py", "tests/unit/codegen/test_host_blocks.py", HALVES, FUZZ, STAGES],
    "runtime": [*RUNTIME, HALVES, KEPT, TWICE, GUARDS, EFFECTS, "tests/unit/runtime"],
}
