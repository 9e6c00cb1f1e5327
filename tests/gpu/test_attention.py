"""Attention as one kernel on a GPU: values of every type, special values, lengths that vary."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import lampwork
from lampwork.codegen.triton import attention as writing
from lampwork.schedule import attention as stage
from tests.gpu.support import assert_close, compiled_of, in_double
from tests.unit.codegen.triton.attentions import PROGRAMS, by_hand, causal, divided_last, flex, window


def on(device, arguments):
    return [each.to(device) for each in arguments]


def factors(device, rows=1000, keys=1000, width=64, dtype=torch.bfloat16):
    return [torch.randn(2, 8, length, width, dtype=dtype, device=device) for length in (rows, keys, keys)]


def agrees(program, args, mode="default"):
    """The results of three calls, compared one by one; products are not called."""
    with torch.no_grad():
        flex_attention(*(torch.zeros(1, 1, 4, 4),) * 3)  # imports
        compiled = compiled_of(program, mode)
        expected, reference = program(*args), in_double(program, *args)
        for _ in range(3):
            assert_close(compiled(*args), expected, reference)
    stats = lampwork.stats(compiled)
    assert list(stats["fallbacks"]) == [] and not stats["extern_calls"]
    return compiled


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(stage, "FEWEST_SCORES", 1)
    monkeypatch.setattr(stage, "FEWEST_ROWS", 32)
    monkeypatch.setattr(stage, "_skips_keys", lambda item: True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, device):
    function, arguments = PROGRAMS[name]
    agrees(function, on(device, arguments()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [16, 64, 128, 256])
@pytest.mark.parametrize("function", [by_hand, flex(window)], ids=["by_hand", "window"])
def test_types(function, width, dtype, device):
    agrees(function, factors(device, width=width, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("place", range(3), ids=["q", "k", "v"])
def test_special_values(number, place, dtype, device):
    """One block of keys: in blocks that are skipped eager's 0 * inf does not happen."""
    arguments = factors(device, rows=60, keys=60, dtype=dtype)
    arguments[place][0, 0, 3, 2] = number
    for function in (by_hand, divided_last, flex(causal, return_lse=True)):
        with torch.no_grad():
            expected, found = function(*arguments), lampwork.compile(function)(*arguments)
        pairs = zip(expected, found) if isinstance(expected, tuple) else [(expected, found)]
        for theirs, ours in pairs:
            assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())


def test_a_block_mask(device):
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j <= 300), None, None, 1024, 1024, device=device)
    agrees(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), factors(device, 1024, 1024))


def test_a_new_length_is_not_compiled_again(device):
    compiled = lampwork.compile(flex(causal))
    with torch.no_grad():
        for rows in (1024, 1100, 1500, 2000):
            arguments = factors(device, rows, rows)
            expected = torch.nn.functional.scaled_dot_product_attention(*arguments, is_causal=True)
            torch.testing.assert_close(compiled(*arguments), expected, rtol=2e-2, atol=2e-2)
    assert lampwork.stats(compiled)["graphs"] == 2


@pytest.mark.parametrize("place", range(6))
def test_tilings(place, device, monkeypatch):
    tilings = writing.attention_tilings

    def other(kernel, target):
        found = tilings(kernel, target)
        return found[min(place, len(found) - 1) :] if found else found

    monkeypatch.setattr(writing, "attention_tilings", other)
    agrees(flex(window), factors(device))


def test_the_fastest_tiling(device):
    agrees(flex(causal), factors(device), "max-autotune-no-cudagraphs")
