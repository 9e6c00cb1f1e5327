"""Attention that is differentiated, as kernels on a GPU: values and gradients of every type, lengths that vary."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import lampwork
from lampwork.schedule import attention as stage
from lampwork.schedule import weighted_sums
from tests.gpu.support import compiled_of
from tests.unit.codegen.triton.attentions import causal, factors, flex, window
from tests.unit.codegen.triton.trained_attentions import PROGRAMS, trained
from tests.unit.lower.graphs import _flatten


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.manual_seed(0)
    with torch.no_grad():
        flex_attention(*(torch.zeros(1, 1, 4, 4),) * 3)  # imports
    for each in (stage, weighted_sums):
        monkeypatch.setattr(each, "FEWEST_SCORES", 1)
        monkeypatch.setattr(each, "FEWEST_ROWS", 32)
        monkeypatch.setattr(each, "_skips_keys", lambda item: True)


def gradients(function, arguments, tangents):
    results = [each for each in _flatten(function(*arguments)) if isinstance(each, torch.Tensor)]
    wanted = [each for each in arguments if each.requires_grad]
    return results, torch.autograd.grad(results, wanted, [each.to(one.dtype) for each, one in zip(tangents, results)])


def agrees(function, arguments, products=False):
    """As near to the results and gradients in double precision as eager's; no product is called."""
    compiled = compiled_of(function)
    tangents = [torch.randn_like(each) for each in _flatten(function(*arguments))]
    wide = [
        each.detach().double().requires_grad_(each.requires_grad) if each.is_floating_point() else each
        for each in arguments
    ]
    expected, exact = gradients(function, arguments, tangents), gradients(function, wide, tangents)
    for _ in range(2):
        found = gradients(compiled, arguments, tangents)
        for ours, theirs, right in zip(map(list, found), map(list, expected), map(list, exact), strict=True):
            for one, other, true in zip(ours, theirs, right, strict=True):
                assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
                assert torch.equal(one.isnan(), other.isnan())
                known = one.isfinite() & true.isfinite()
                off, eagers = ((each.double() - true)[known].abs().max() for each in (one, other))
                assert off <= 1.5 * eagers + 1e-5, (off, eagers)
    stats = lampwork.stats(compiled)
    assert list(stats["fallbacks"]) == [] and (products or "aten::bmm.default" not in stats["extern_calls"])
    return compiled


def on(device, arguments, wanted=3):
    return trained(*(each.to(device) for each in arguments), wanted=wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, device):
    function, make = PROGRAMS[name]
    agrees(function, on(device, make()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [16, 64, 128, 256])
def test_types(width, dtype, device):
    arguments = factors(2, 4, 500, 700, width, width, dtype)
    agrees(flex(window, return_lse=True), on(device, arguments))


def test_a_block_mask(device):
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j <= 300), None, None, 1024, 1024, device=device)
    arguments = on(device, factors(1, 2, 1024, 1024, 64, 64))
    agrees(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), arguments)


def test_a_bias_that_is_learnt(device):
    function, make = PROGRAMS["given_bias"]
    agrees(function, on(device, make(), wanted=4), products=True)


def test_a_new_length_is_not_compiled_again(device):
    compiled = compiled_of(flex(causal))
    for rows in (1024, 1100, 1500, 2000):
        arguments = on(device, factors(1, 2, rows, rows, 64, 64))
        tangents = [torch.randn(1, 2, rows, 64, device=device)]
        expected, found = (gradients(each, arguments, tangents) for each in (flex(causal), compiled))
        for one, other in zip([*expected[0], *expected[1]], [*found[0], *found[1]]):
            torch.testing.assert_close(other, one, rtol=5e-2, atol=5e-2)
    assert lampwork.stats(compiled)["graphs"] == 2


def test_runs_are_alike(device):
    arguments = on(device, factors(1, 4, 1024, 1024, 64, 64))
    compiled, tangents = compiled_of(flex(causal)), [torch.randn(1, 4, 1024, 64, device=device)]
    first, second = (gradients(compiled, arguments, tangents)[1] for _ in range(2))
    assert all(map(torch.equal, first, second))
