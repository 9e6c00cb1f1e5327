"""Products taken out of their ATen calls: which may be, and what the loop IR then computes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lampwork.config import Settings
from lampwork.ir.kernel_interpret import run_kernel
from lampwork.ir.loops import Buffer
from lampwork.ir.program import Extern, TensorRef
from lampwork.ir.size import Symbol
from lampwork.lower import lower
from lampwork.schedule import schedule
from lampwork.schedule.products import product_nests
from tests.unit.codegen.triton.programs import TARGET
from tests.unit.lower.graphs import functional_graph

X, W, V, B = torch.empty(96, 64), torch.empty(80, 64), torch.empty(80, 64), torch.empty(80)


def offered(function, *arguments, target=TARGET):
    """The alternatives of each part of the program of `function`, none of which is taken."""
    seen = []

    def choose(parts):
        seen.extend(parts)
        return [0] * len(parts)

    program = schedule(lower(functional_graph(function, arguments), Settings()), Settings(), target, choose)
    plain = schedule(lower(functional_graph(function, arguments), Settings()), Settings(), target)
    assert program == plain  # what is first is what there is without a choice
    return seen


def counts(part):
    return [(len(each.calls), len(each.products)) for each in part]


@pytest.mark.parametrize("name, function, expected", [
    ("bias", lambda x, w, v, b: F.gelu(F.linear(x, w, b)), [(1, 0), (0, 1)]),
    ("gate", lambda x, w, v, b: F.silu(F.linear(x, w)) * F.linear(x, v), [(2, 0), (1, 1), (1, 1), (0, 1)]),
    ("apart", lambda x, w, v, b: (F.linear(x, w).relu(), F.linear(x + 1, v).relu()), [(2, 0), (1, 1), (1, 1), (0, 2)]),
])  # fmt: skip
def test_alternatives(name, function, expected):
    (part,) = offered(function, X, W, V, B)
    assert counts(part) == expected
    for each in part:
        assert len(each.kernels) == len(each.buffers) and len(each.calls) == len(each.results)
        assert set(each.products) <= set(each.kernels)


@pytest.mark.parametrize("name, function", [
    ("nothing follows", lambda x, w, v, b: F.linear(x, w, b)),
    ("a reduction follows", lambda x, w, v, b: F.linear(x, w, b).softmax(-1)),
    ("few results", lambda x, w, v, b: F.linear(x[:8], w).relu()),
    ("a short inner dimension", lambda x, w, v, b: (x[:, :8] @ w[:, :8].t()).relu()),
    ("another type", lambda x, w, v, b: (x.double() @ w.double().t()).relu()),
])  # fmt: skip
def test_nothing_to_choose(name, function):
    assert offered(function, X, W, V, B) == []


def test_a_product_that_a_call_reads_first_stays_one():
    """The first product's result is the second call's factor before any kernel runs."""

    def function(x, w):
        first = x @ w.t()
        return first.relu(), (first @ first.t()).relu()

    parts = offered(function, X, W)
    calls = [call.origin.node for part in parts for each in part for call in each.calls]
    assert set(calls) == {"mm_1"}


def test_sizes_must_be_numbers():
    rows = Symbol("s0", 1, 4096)
    x, w = TensorRef("x", "float32", (rows, 64), (64, 1)), TensorRef("w", "float32", (64, 80), (80, 1))
    call = Extern("aten::mm.default", (x, w), outputs=("y",))
    for extent, found in ((rows, False), (96, True)):
        x = TensorRef("x", "float32", (extent, 64), (64, 1))
        shapes = {"x": (extent, 64), "w": (64, 80), "y": (extent, 80)}
        buffers = {name: Buffer(name, "float32", shape, (shape[1], 1)) for name, shape in shapes.items()}
        call = Extern("aten::mm.default", (x, w), outputs=("y",))
        assert (product_nests(call, buffers) is not None) == found


def test_the_loop_ir_says_what_is_computed():
    """The interpreter of kernels computes the product and what follows it."""
    torch.manual_seed(0)
    x, w, b = torch.randn(64, 16), torch.randn(64, 16), torch.randn(64)

    def function(x, w, b):
        return torch.relu(torch.addmm(b, x, w.t(), beta=2, alpha=0.5))

    lowered = lower(functional_graph(function, (x, w, b)), Settings())
    program = schedule(lowered, Settings(), TARGET, lambda parts: [len(part) - 1 for part in parts])
    (step,) = program.steps
    inputs = dict(zip(program.inputs, (x, w, b)))
    memory = {name: inputs[name].flatten().tolist() if name in inputs else [0.0] * 64 * 64 for name in step.buffers}
    run_kernel(program.kernels[0], [memory[name] for name in step.buffers])
    (result,) = (name for name in step.buffers if name not in inputs)
    torch.testing.assert_close(torch.tensor(memory[result]).view(64, 64), function(x, w, b))
