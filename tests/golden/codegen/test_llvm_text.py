"""What kernels become, as LLVM assembly. Rewritten with --update-golden; review the difference as code."""

from __future__ import annotations

from pathlib import Path

import pytest

from lampwork.codegen.llvm.generate import module_text
from lampwork.ir.loops import Accumulate, Accumulator, Axis, Kernel, Load, Loop, Store
from lampwork.ir.target import LEVELS, Target
from tests.unit.codegen.helpers import constant, f32, local, parameter, program_of, symbol


def row_sum() -> Kernel:
    """A reduction: vector accumulators, their combination, a masked or scalar rest."""
    rows, columns = 8, 100
    i, j = symbol("i0", rows), symbol("i1", columns)
    inner = Loop(Axis("i1", columns), (Accumulate("a0", Load("b0", (i * columns + j,), "float32")),), "vector")
    body = (Accumulator("a0", "sum", "float32"), inner, Store("b1", (i,), local("a0")))
    parameters = (parameter("b0", "float32", rows * columns), parameter("b1", "float32", rows, "write"))
    return Kernel("row_sum", parameters, (Loop(Axis("i0", rows), body, "parallel"),))


def scaled_exp() -> Kernel:
    """A function written inline, and a scalar load hoisted out of the loop."""
    i = symbol("i0", 64)
    value = f32("mul", f32("exp", Load("b0", (i,), "float32")), f32("add", Load("b1", (0,), "float32"), constant(1.0)))
    parameters = (
        parameter("b0", "float32", 64),
        parameter("b1", "float32", 1),
        parameter("b2", "float32", 64, "write"),
    )
    return Kernel("scaled_exp", parameters, (Loop(Axis("i0", 64), (Store("b2", (i,), value),), "vector"),))


@pytest.mark.parametrize("level", ["avx512", "sse4"])
@pytest.mark.parametrize("kernel", [row_sum, scaled_exp])
def test_llvm_text(kernel, level, request):
    target = Target(level, {"avx512": 64, "sse4": 16}[level], 2, features=LEVELS[level])
    text, _, _ = module_text(program_of(kernel()), target)
    functions = [part for part in text.split("\ndefine ") if "@kernel_" in part.partition("(")[0]]
    found = "".join(f"define {part.rstrip()}\n" for part in functions)
    path = Path(__file__).parent / f"{kernel.__name__}_{level}.ll"
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text()
