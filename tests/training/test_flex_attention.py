"""`flex_attention` in programs that are differentiated, compared with eager, which refuses to on a CPU unless told so."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import lampwork
from tests.unit.codegen.triton.trained_attentions import differentiable


@pytest.fixture(autouse=True)
def _on_a_cpu():
    torch.manual_seed(0)
    with differentiable():
        yield


def factors(heads=2, rows=40, keys=48, width=8):
    return [torch.randn(2, heads, length, width, requires_grad=True) for length in (rows, keys, keys)]


BIAS, SLOPES, IDS = torch.randn(2, 40, 48), torch.tensor([0.5, 2.0]), torch.arange(48) // 10


def plain(q, k, v):
    return flex_attention(q, k, v)


def masked(q, k, v):
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (IDS[i] == IDS[j]), None, None, 40, 48, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


def capped(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: 3 * torch.tanh(s / 3) + BIAS[h, i, j], scale=0.4)


def without_keys(q, k, v):
    out, lse = flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: torch.where(j > i + 20, s, -float("inf")), return_lse=True
    )
    return out, torch.where(lse > -float("inf"), lse, 0.0)


def grouped(q, k, v):
    return flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True)


def statistics_alone(q, k, v):
    return flex_attention(q, k, v, return_lse=True)[1]


def transposed(q, k, v):
    q, k, v = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
    return flex_attention(q, k, v).transpose(1, 2).reshape(2, 40, -1)


def twice(q, k, v):
    return flex_attention(flex_attention(q, k, v), k, v)


def again(q, k, v):
    return checkpoint(lambda q, k, v: flex_attention(q * 2, k, v).sin(), q, k, v, use_reentrant=False)


PROGRAMS = [plain, masked, capped, without_keys, grouped, statistics_alone, transposed, twice, again]


def gradients(function, arguments):
    results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    torch.manual_seed(1)
    found = torch.autograd.grad([(each * torch.randn_like(each)).sum() for each in results], arguments)
    return [*results, *found]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_like_eager(function):
    arguments = factors()
    compiled = lampwork.compile(function, options={"cache": False}, fullgraph=True)
    expected = gradients(function, arguments)
    for _ in range(2):
        for ours, theirs in zip(gradients(compiled, arguments), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("function", [plain, masked, capped], ids=lambda function: function.__name__)
def test_steps_that_take_gradients_themselves(function):
    def step(q, k, v):
        function(q, k, v).square().sum().backward()

    compiled = lampwork.compile(step, options={"cache": False}, fullgraph=True)
    found = []
    for each in (step, compiled):
        torch.manual_seed(0)
        arguments = factors()
        each(*arguments)
        found.append([argument.grad for argument in arguments])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("index", ["whole", "slopes", "rows"])
def test_captured_tensors_are_differentiated(index):
    """Eager's own gradients for them are sums over functions of one score; those of ATen's indexing are the same."""
    changes = {
        "whole": lambda s, b, h, i, j, bias: s + bias[h, i, j],
        "slopes": lambda s, b, h, i, j, bias: s * bias[h, 0, 0],
        "rows": lambda s, b, h, i, j, bias: s + bias[h, i, 0] * s,
    }

    def function(q, k, v, bias):
        return flex_attention(q, k, v, score_mod=lambda *at: changes[index](*at, bias))

    def by_hand(q, k, v, bias):
        scores = q @ k.mT / 8**0.5
        if index == "slopes":
            scores = scores * bias[:, :1, :1]
        else:
            scores = scores + (bias if index == "whole" else bias[:, :, :1] * scores)
        return torch.softmax(scores, -1) @ v

    arguments = [*factors(), BIAS.clone().requires_grad_()]
    compiled = lampwork.compile(function, options={"cache": False}, fullgraph=True)
    expected = gradients(by_hand, arguments)
    for ours, theirs in zip(gradients(compiled, arguments), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_written_in_between_raises():
    """As in eager: the result is saved."""
    arguments = factors()
    for function in (plain, lampwork.compile(plain, options={"cache": False})):
        result = function(*arguments)
        result.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation|has been modified inplace"):
            result.sum().backward()


def test_a_mask_function_of_other_values_is_not_compiled_again():
    def function(q, k, v, ids):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(ids[i] == ids[j], s, -float("inf")))

    compiled = lampwork.compile(function, options={"cache": False}, fullgraph=True)
    arguments = factors()
    for size in (5, 9, 20):
        ids = torch.arange(48) // size
        expected = gradients(lambda *each: function(*each, ids), arguments)
        found = gradients(lambda *each: compiled(*each, ids), arguments)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert lampwork.stats(compiled)["captures"] == 1


@pytest.mark.parametrize("dynamic", [True, None])
def test_lengths_that_vary_cost_no_more_than_one_compile(dynamic):
    """With a scale of the call's own as well: it is a number that no kernel has."""

    def function(q, k, v, scale):
        rows = q.size(2)
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s - (i - j) / rows, scale=scale)

    compiled = lampwork.compile(function, options={"cache": False}, dynamic=dynamic, fullgraph=True)
    for rows, scale in ((40, 0.5), (24, 0.25), (56, 0.75)):
        arguments = factors(rows=rows)
        expected = gradients(lambda *each: function(*each, scale), arguments)
        for ours, theirs in zip(gradients(lambda *each: compiled(*each, scale), arguments), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert lampwork.stats(compiled)["captures"] == (1 if dynamic else 2)


def test_a_mask_without_lists_of_rows_is_not_differentiated():
    """As in eager, whose backward pass goes through them."""
    lists = torch.tensor([[[1]]], dtype=torch.int32), torch.tensor([[[[0]]]], dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(*lists, compute_q_blocks=False)
    arguments = factors(rows=128, keys=128)
    for function in (flex_attention, lampwork.compile(flex_attention, options={"cache": False})):
        with torch.no_grad():
            assert function(*arguments, block_mask=mask).shape == (2, 2, 128, 8)
        with pytest.raises(RuntimeError, match="q_indices is None"):
            function(*arguments, block_mask=mask)
