"""Attention's derivatives: what is one item, what it means, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from lampwork.debug.interpret.steps import run_program
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.ir.loops import Compute, Constant, Index, Load
from lampwork.ir.masked_keys import Block, KeyRange, kept_parts, needed_keys, nonzero_of, without_masks
from lampwork.ir.print import lowered_text
from lampwork.ir.program import Extern
from lampwork.ir.size import Symbol, add
from lampwork.ir.verify import verify_lowered
from lampwork.ir.weighted_sums import PRODUCTS, WeightedSums, read_sums, sums_body
from lampwork.schedule import attention as stage
from lampwork.schedule import weighted_sums
from lampwork.schedule.weighted_sums import fuse_weighted_sums
from tests.unit.codegen.triton.attentions import causal, factors, flex
from tests.unit.codegen.triton.programs import TARGET, scheduled
from tests.unit.codegen.triton.trained_attentions import PROGRAMS, Trained, eager, tangents_of, trained


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.manual_seed(0)
    for each in (stage, weighted_sums):
        monkeypatch.setattr(each, "FEWEST_SCORES", 1)
        monkeypatch.setattr(each, "FEWEST_ROWS", 1)
        monkeypatch.setattr(each, "_skips_keys", lambda item: True)


def fused(lowered):
    found, refused = fuse_weighted_sums(lowered, TARGET)
    verify_lowered(found)
    return found, [each.reason for each in refused]


def items_of(lowered, kind):
    return [item for item in lowered.items if isinstance(item, kind)]


def interpreted(lowered, inputs):
    return interpret_lowered(fused(lowered)[0], inputs)


def small(name):
    """A program on few rows: the interpreter runs each element."""
    if name in ("causal", "plain", "statistics"):
        return PROGRAMS[name][0], factors(rows=20, keys=24, inner=8, column=6)
    return PROGRAMS[name][0], factors(heads=4, rows=12, keys=20, inner=8, column=8)


@pytest.mark.parametrize("name", ["causal", "statistics", "grouped"])
def test_items_mean_what_the_products_meant(name):
    function, arguments = small(name)
    arguments = trained(*arguments)
    made = Trained(function, arguments)
    found, refused = fused(made.backward)
    assert not refused and not [item for item in items_of(found, Extern) if "bmm" in item.op]
    assert [len(item.sums) for item in items_of(found, WeightedSums)] == [1, 2]
    tangents = tangents_of(eager(function, arguments)[0])
    _, gradients = made.run(interpreted, arguments, tangents)
    _, expected = eager(function, arguments, tangents)
    for place, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[place], rtol=0.1, atol=0.1)


def test_the_printed_item():
    made = Trained(flex(causal), trained(*factors()))
    text = lowered_text(fused(made.backward)[0])
    assert "for b0<2, i<100: weighted sums; a0 = sum(d0<32) input_1[0, b0, i, d0] * input_2[0, b0, j, d0]; " in text
    assert "a1 = sum(d1<32) tangent_1[0, b0, i, d1] * input_3[0, b0, j, d1]; " in text


def test_kernels_are_read_back_and_mean_what_items_mean():
    made = Trained(flex(causal), trained(*factors(rows=10, keys=10, inner=4, column=4, dtype=torch.float32)))
    program = scheduled(made.backward)
    kernels = [each for each in program.kernels if each.name.startswith("weighted_sums_")]
    assert len(kernels) == 2
    for kernel in kernels:
        item = read_sums(kernel)
        body = kernel.body
        for _ in (*item.batch, item.row):
            body = body[0].body
        inner = sums_body(item)
        for _ in (*item.batch, item.row):
            inner = inner[0].body
        assert inner == body
        loop = replace(kernel.body[0], body=(replace(kernel.body[0].body[0], body=(*body, body[0].body[2])),))
        assert read_sums(replace(kernel, body=(loop,))) is None
    arguments = trained(*factors(rows=10, keys=10, inner=4, column=4, dtype=torch.float32))
    tangents = tangents_of(eager(flex(causal), arguments)[0])
    _, expected = eager(flex(causal), arguments, tangents)
    _, found = made.run(lambda lowered, inputs: run_program(scheduled(lowered), inputs), arguments, tangents)
    for place, gradient in found.items():
        torch.testing.assert_close(gradient, expected[place])


@pytest.mark.parametrize("wanted", [(True, False, False), (False, False, True), (False, True, True)], ids=str)
def test_some_gradients(wanted):
    arguments = [each.requires_grad_(flag) for each, flag in zip(factors(), wanted)]
    made = Trained(flex(causal), arguments)
    items = items_of(fused(made.backward)[0], WeightedSums)
    assert sum(len(item.sums) for item in items) == sum(wanted)


def test_gradients_of_statistics_alone():
    arguments = trained(*factors(rows=20, keys=24, inner=8, column=6, dtype=torch.float32))
    function = lambda q, k, v: flex_attention(q, k, v, return_lse=True)[1]
    made = Trained(function, arguments)
    tangents = tangents_of(eager(function, arguments)[0])
    _, gradients = made.run(interpreted, arguments, tangents)
    _, expected = eager(function, arguments, tangents)
    for place in range(3):
        torch.testing.assert_close(gradients[place], expected[place])


def test_a_bias_that_is_learnt_is_refused():
    function, make = PROGRAMS["given_bias"]
    made = Trained(function, trained(*make(), wanted=4))
    found, refused = fused(made.backward)
    assert not items_of(found, WeightedSums)
    assert refused == ["the scores, or what is made of them, are read elsewhere"]


def test_not_on_a_cpu():
    made = Trained(flex(causal), trained(*factors()))
    assert fuse_weighted_sums(made.backward, replace(TARGET, device="cpu")) == (made.backward, [])


def test_few_scores_stay_apart(monkeypatch):
    monkeypatch.undo()
    made = Trained(flex(causal), trained(*factors()))
    assert fused(made.backward)[1] == ["the scores are few"]


def test_layers_are_no_attention():
    def layers(x, first, second, third):
        return torch.bmm(torch.nn.functional.silu(torch.bmm(x, first)) * torch.bmm(x, second), third)

    shapes = ((2, 40, 16), (2, 16, 48), (2, 16, 48), (2, 48, 16))
    made = Trained(layers, [torch.randn(shape, requires_grad=True) for shape in shapes])
    for half in (made.forward, made.backward):
        assert not items_of(fused(half)[0], WeightedSums)


# -- What masks say of weights ----------------------------------------------------------------------------------------

ROW, KEY, FIRST = Symbol("i", 0, 63), Symbol("j", 0, 63), Symbol("first", 0, 63)
BELOW = Compute("ge", (Index(ROW), Index(KEY)), "bool")
LOWEST, ZERO = Constant(-float("inf"), "float32"), Constant(0.0, "float32")
BLOCK = Block("i", "j", FIRST, add(FIRST, 7))


def test_masks_of_weights():
    score = Compute("where", (BELOW, PRODUCTS[0], LOWEST), "float32")
    power = Compute("exp", (Compute("sub", (score, Load("lse", (ROW,), "float32")), "float32"),), "float32")
    guarded = Compute("where", (Compute("eq", (PRODUCTS[1], LOWEST), "bool"), ZERO, power), "float32")
    weight = Compute("mul", (guarded, PRODUCTS[1]), "float32")
    assert needed_keys(nonzero_of(weight), BLOCK) == KeyRange(end=add(FIRST, 8))
    assert nonzero_of(Compute("add", (power, PRODUCTS[1]), "float32")) is None
    assert nonzero_of(Compute("where", (BELOW, ZERO, PRODUCTS[1]), "float32")) == Compute("not", (BELOW,), "bool")
    lean = without_masks(weight, BLOCK)
    assert lean.args[0].args[2].args[0].args[0] is PRODUCTS[0]


def test_numbers_in_memory_bound_keys():
    length = Load("length", (0,), "int64")
    inside = Compute("lt", (Index(KEY), length), "bool")
    number = Symbol("bound", 0, 100)
    known = replace(BLOCK, bound=lambda expr: number if expr is length else None)
    assert needed_keys(inside, BLOCK) == KeyRange() and kept_parts(inside, BLOCK) is None
    assert needed_keys(inside, known) == kept_parts(inside, known) == KeyRange(end=number)


def test_promises_bound_keys_and_say_nothing_else():
    near = Compute("lt", (Index(KEY), Constant(40, "int64")), "bool")
    odd = Compute("eq", (Index(KEY), Load("ids", (ROW,), "int64")), "bool")
    promised = Compute("promised", (odd, near), "bool")
    assert needed_keys(promised, BLOCK) == KeyRange(end=40)
    assert kept_parts(promised, BLOCK) is None
    assert needed_keys(Compute("not", (promised,), "bool"), BLOCK) == KeyRange()
    weight = Compute("where", (promised, PRODUCTS[0], ZERO), "float32")
    assert without_masks(weight, BLOCK).args[0] == odd
    covered = Compute("promised", (BELOW, near), "bool")
    assert kept_parts(covered, BLOCK) == KeyRange(end=add(FIRST, 1))
    assert without_masks(Compute("where", (covered, PRODUCTS[0], ZERO), "float32"), BLOCK) is PRODUCTS[0]
