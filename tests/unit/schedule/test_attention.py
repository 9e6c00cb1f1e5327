"""Products with a softmax between them: what is one item, what it means, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lampwork.config import Options, Settings
from lampwork.debug.interpret.steps import run_program
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.ir.attention import Attention, attention_body, read_attention
from lampwork.ir.print import lowered_text
from lampwork.ir.program import Extern
from lampwork.ir.verify import verify_lowered
from lampwork.schedule import attention as stage
from lampwork.schedule import schedule
from lampwork.schedule.attention import fuse_attention
from tests.unit.codegen.triton.attentions import PROGRAMS, by_hand, causal, factors, flex, lowered_of
from tests.unit.codegen.triton.programs import TARGET
from tests.unit.lower.graphs import _flatten


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(stage, "FEWEST_SCORES", 1)
    monkeypatch.setattr(stage, "FEWEST_ROWS", 32)
    monkeypatch.setattr(stage, "_skips_keys", lambda item: True)


def items_of(lowered, kind):
    return [item for item in lowered.items if isinstance(item, kind)]


def refusals(function, arguments):
    lowered, refused = fuse_attention(lowered_of(function, arguments)[0], TARGET)
    assert not items_of(lowered, Attention)
    assert {each.id for each in refused} <= {"fusion-attention"}
    return [each.reason for each in refused]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_item_means_what_its_nests_meant(name):
    function, arguments = PROGRAMS[name]
    arguments = arguments()
    lowered, inputs = lowered_of(function, arguments)
    fused, refused = fuse_attention(lowered, TARGET)
    verify_lowered(fused)
    assert len(items_of(fused, Attention)) == (2 if name == "twice" else 1) and not refused
    assert not items_of(fused, Extern)
    with torch.no_grad():
        expected = _flatten(function(*arguments))
    for ours, theirs in zip(interpret_lowered(fused, inputs(arguments)), expected, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1, equal_nan=True)


def test_the_printed_item():
    lowered, _ = fuse_attention(lowered_of(by_hand, factors())[0], TARGET)
    assert (
        "  for b0<2, i<100: attention; a0 = sum(d<32) input_1[0, b0, i, d] * input_2[0, b0, j, d]; "
        "a1, a2 = softmax(j<100) (a0 * 0.125); a3 = sum(j<100) bf16(softmax) * input_3[0, b0, j, e]; "
        "bmm_1[b0, i, e] = "
    ) in lowered_text(lowered)


def test_a_kernel_is_read_back():
    program = schedule(lowered_of(*[PROGRAMS["statistics"][0], factors()])[0], Settings(), TARGET)
    (kernel,) = (each for each in program.kernels if each.name.startswith("attention_"))
    item = read_attention(kernel)
    body = kernel.body
    for _ in (*item.batch, item.row):
        body = body[0].body
    assert attention_body(item) == kernel.body and len(item.rows) == 3
    for changed in (body[:-1], (*body, body[-1]), (body[0], *body[2:])):
        loop = replace(kernel.body[0], body=(replace(kernel.body[0].body[0], body=changed),))
        assert read_attention(replace(kernel, body=(loop,))) is None


def with_weights(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v, weights


def two_products(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v, weights @ (v + 1)


def masked_afterwards(q, k, v):
    return (torch.softmax(q @ k.mT, -1) * (q @ k.mT > 0)) @ v


def without_maximum(q, k, v):
    powers = (q @ k.mT).float().exp()
    return (powers / powers.sum(-1, keepdim=True)).to(v.dtype) @ v


def over_rows(q, k, v):
    return torch.softmax(q @ k.mT, -2) @ v


def of_transposed(q, k, v):
    return torch.softmax((q @ k.mT).mT, -1) @ v


def of_other_rows(q, k, v):
    scores = (q @ k.mT).float()
    most = scores.amax(-1, keepdim=True).roll(1, -2)
    powers = (scores - most).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(v.dtype) @ v


def no_softmax(q, k, v):
    return torch.relu(q @ k.mT) @ v


@pytest.mark.parametrize(
    "function",
    [with_weights, two_products, masked_afterwards, without_maximum, over_rows, of_transposed, of_other_rows],
)
def test_what_is_no_attention(function):
    refusals(function, factors())


def test_reasons_are_given():
    assert refusals(with_weights, factors()) == ["the scores, or what is made of them, are read elsewhere"]
    assert refusals(no_softmax, factors()) == []
    assert refusals(by_hand, factors(rows=8)) == ["there are few rows of scores"]
    assert refusals(by_hand, factors(inner=300)) == ["a row of a factor has more than 256 elements"]


def test_a_few_scores_stay_apart(monkeypatch):
    monkeypatch.undo()
    assert refusals(by_hand, factors()) == ["the scores are few"]


def test_float32_where_keys_are_skipped(monkeypatch):
    monkeypatch.undo()
    arguments = factors(heads=4, rows=256, keys=256, dtype=torch.float32)
    assert refusals(by_hand, arguments) == ["float32 is multiplied as fast by the vendor, and no key is skipped"]
    assert items_of(fuse_attention(lowered_of(flex(causal), arguments)[0], TARGET)[0], Attention)
    assert items_of(fuse_attention(lowered_of(by_hand, [each.half() for each in arguments])[0], TARGET)[0], Attention)


def test_not_where_numbers_are_to_be_eagers():
    settings = Settings(options=Options(numerics="eager"))
    program = schedule(lowered_of(by_hand, factors(), settings)[0], settings, TARGET)
    assert not any(each.name.startswith("attention_") for each in program.kernels)
    assert not program.refused


def test_scores_that_are_long_computations():
    def function(q, k, v):
        scores = (q @ k.mT).float()
        for _ in range(12):
            scores = scores * scores.cos()
        return torch.softmax(scores, -1).to(v.dtype) @ v

    assert refusals(function, factors()) == ["a score is a long computation"]


def test_kernels_mean_what_items_mean(monkeypatch):
    """The tree of loops, which computes the scores three times, by its own interpreter."""
    function, _ = PROGRAMS["causal"]
    arguments = factors(rows=12, keys=20, inner=4, column=6, dtype=torch.float32)
    monkeypatch.setattr(stage, "FEWEST_ROWS", 1)
    lowered, inputs = lowered_of(function, arguments)
    program = schedule(lowered, Settings(), TARGET)
    assert any(each.name.startswith("attention_") for each in program.kernels)
    with torch.no_grad():
        expected = function(*arguments)
    torch.testing.assert_close(run_program(program, inputs(arguments))[0], expected)


def test_values_written_in_between():
    """The cache that the second product reads is written after the scores were computed."""

    def function(q, k, v):
        weights = torch.softmax(q @ k.mT, -1)
        made = v.clone()
        made[:, :, 3] = 0
        return weights @ made

    arguments = factors()
    lowered, inputs = lowered_of(function, arguments)
    fused, _ = fuse_attention(lowered, TARGET)
    assert items_of(fused, Attention)
    with torch.no_grad():
        expected = function(*arguments)
    torch.testing.assert_close(interpret_lowered(fused, inputs(arguments))[0], expected, rtol=0.1, atol=0.1)
