"""The table of scalar operators: each row is complete, in each back end; and docs/extending.md's recipe for a new one."""

from __future__ import annotations

import math
from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest
import torch

import lampwork
from lampwork.codegen.llvm import arithmetic
from lampwork.codegen.llvm import math as functions
from lampwork.codegen.target import make_target
from lampwork.codegen.triton import expressions
from lampwork.config import Settings
from lampwork.ir.dtype import INTEGRAL
from lampwork.ir.interpret import arrays_of, interpret_nest
from lampwork.ir.kernel_interpret import run_kernel
from lampwork.ir.loops import Compute, Load, LoopNest
from lampwork.ir.scalar_operators import SCALARS, ScalarOperator, guarded
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from lampwork.lower.pointwise import lower_as_one_operator
from lampwork.lower.rules import RULES
from lampwork.schedule import schedule
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import assert_like_eager, program_of, sources
from tests.unit.lower.graphs import functional_graph

BACK_ENDS = {"llvm": (arithmetic, arithmetic.ELSEWHERE), "triton": (expressions, frozenset())}
#: Types of operands by domain. Half types are computed in float32.
TYPES = {
    "float": ("float32", "float64"), "rounding": ("float32", "float64"), "tested": ("float32", "float64"),
    "number": ("float32", "float64", *sorted(INTEGRAL)), "integer": tuple(sorted(INTEGRAL)),
    "bits": ("bool", *sorted(INTEGRAL)), "compared": ("bool", "float32", "float64", *sorted(INTEGRAL)), "special": (),
}  # fmt: skip
#: They are in the interpreters' own code.
BY_TYPE = {"cast", "bitcast"}


@pytest.mark.parametrize("name", SCALARS)
def test_rows_are_complete(name):
    row = SCALARS[name]
    assert row.name == name and row.arity >= 1 and row.cost >= 1
    assert (row.arrays is None) == (row.numbers is None) == (name in BY_TYPE)
    assert not row.divides or "integer" in row.domain or row.domain == "number"
    assert all(f"aten::{each}.default" in RULES for each in row.lowers)
    if row.arity == 1 and row.arrays is not None and not row.gives_bool:
        for dtype in TYPES[row.domain]:
            values = np.array([1, 0, 1], "bool") if dtype == "bool" else np.array([1, 2, 3]).astype(dtype)
            with np.errstate(all="ignore"):
                assert arrays_of(name, [values]).dtype == values.dtype


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("name", SCALARS)
def test_each_back_end_has_it_for_all_types_of_its_domain(name, back_end):
    table, elsewhere = BACK_ENDS[back_end]
    if name in elsewhere:
        return
    missing = [dtype for dtype in TYPES[SCALARS[name].domain] if name not in table.emitters(dtype)]
    assert name in table.WRITTEN or TYPES[SCALARS[name].domain] and not missing, missing


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_back_end_has_no_operator_beside_the_table(back_end):
    table, elsewhere = BACK_ENDS[back_end]
    for dtype in ("float32", "int64", "bool"):
        assert {*table.emitters(dtype), *table.WRITTEN, *elsewhere} <= SCALARS.keys()


# The recipe ----------------------------------------------------------------------------------------------------------


def _entr_of_arrays(a):
    return np.where(a > 0, -a * np.log(a), np.where(a == 0, 0, np.where(np.isnan(a), a, -np.inf))).astype(a.dtype)


def _entr(a):
    return -a * math.log(a) if a > 0 else 0.0 if a == 0 else -math.inf


ROW = ScalarOperator(
    "entr", 1, "float", "-a log(a), 0 at 0", _entr_of_arrays, guarded(_entr), cost=16, long=True,
    lowers=("special_entr",),
)  # fmt: skip


def _entr_in_llvm(self, dtype, a):
    build = self.build
    zero, infinity = build.number(0.0, a.type), build.number(-math.inf, a.type)
    inside = build.fneg(build.fmul(a, functions.log(self, a)))
    outside = build.select(build.compare("fcmp oeq", a, zero), zero, infinity)
    found = build.select(build.compare("fcmp ogt", a, zero), inside, outside)
    return build.select(build.is_nan(a), a, found)


def _entr_in_triton(lines, dtype, a):
    inside = lines.name(f"{lines.name(f'{a} * -1.0')} * {lines.name(f'libdevice.log({a})')}")
    outside = lines.name(f'tl.where({a} == 0, 0.0, float("-inf"))')
    return lines.name(f"tl.where({a} != {a}, {a}, {lines.name(f'tl.where({a} > 0, {inside}, {outside})')})")


@pytest.fixture
def entr():
    """The operator as a row here and in the table of each back end: `torch.special.entr` is one scalar operator."""
    with ExitStack() as stack:
        for table, row in (
            (SCALARS, ROW), (arithmetic.FLOATS, _entr_in_llvm), (expressions.FLOATS, _entr_in_triton)
        ):  # fmt: skip
            stack.enter_context(mock.patch.dict(table, {"entr": row}))
        stack.enter_context(mock.patch.dict(RULES))
        del RULES["aten::special_entr.default"]  # made of other operators
        lower_as_one_operator(ROW)
        yield


def program(x):
    return torch.special.entr(x) * 2


def sample(dtype=torch.float32):
    special = [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 1.0, 1e-30, 3e38]
    return torch.cat([torch.tensor(special, dtype=dtype), torch.linspace(0.01, 5, 68, dtype=dtype)])


def test_a_new_operator_in_nests_and_kernels(entr):
    x = sample(torch.float64)
    lowered = lower(functional_graph(program, [x]), Settings())
    verify_lowered(lowered)
    nests = [item for item in lowered.items if isinstance(item, LoopNest)]
    operators = {part.op for nest in nests for part in nest.parts if isinstance(part, Compute)}
    assert "entr" in operators and "log" not in operators
    arrays = {lowered.inputs[0]: x.numpy()}
    for nest in nests:
        interpret_nest(nest, lowered.buffers, arrays)
    torch.testing.assert_close(torch.from_numpy(arrays[nests[-1].store.buffer]), program(x), equal_nan=True)
    scheduled = schedule(lowered, Settings(), make_target("sse4", 1))
    (kernel,) = scheduled.kernels
    memory = [x.tolist() if each.access == "read" else [0.0] * x.numel() for each in kernel.parameters]
    run_kernel(kernel, memory)
    (found,) = [cells for each, cells in zip(kernel.parameters, memory) if each.access != "read"]
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), program(x), equal_nan=True)
    assert any(isinstance(part, Load) for part in nests[0].parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_new_operator_in_machine_code(entr, dtype):
    x = sample(dtype)
    lampwork.reset()
    compiled = lampwork.compile(program, options={"cache": False})
    torch.testing.assert_close(compiled(x), program(x), equal_nan=True)
    stats = lampwork.stats(compiled)
    assert stats["native_kernels"] == 1 and not stats["fallbacks"]


@pytest.mark.skipif(bool(available()), reason=available())
def test_a_new_operator_on_a_gpu(entr):
    (kernel,) = sources(program_of(program, [sample()]))
    assert "libdevice.log" in kernel.source
    assert_like_eager(program, sample())
