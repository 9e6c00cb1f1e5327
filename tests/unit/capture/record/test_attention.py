"""Calls of attention: masks dropped where they say nothing or only "causal", repeated heads taken unrepeated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.capture_support import capture_call, run_region

QUERY = torch.randn(2, 3, 8, 4)
sdpa = F.scaled_dot_product_attention


def attention_of(function: Any, *args: Any) -> tuple[Any, Any]:
    """(mask, is_causal) of the recorded attention, after its result was compared with eager's."""
    with torch.no_grad():
        region = capture_call(function, *args)
        torch.testing.assert_close(run_region(region, function, args), function(*args))
    (node,) = [n for n in region.graph.nodes if "flash_attention_for_cpu" in str(n.target)]
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args)), **node.kwargs}
    return given.get("attn_mask"), given.get("is_causal", False)


def causal(length: int) -> torch.Tensor:
    positions = torch.arange(length)
    return positions[None] <= positions[:, None]


@pytest.mark.parametrize("make", [
    lambda: torch.ones(8, 8, dtype=torch.bool),
    lambda: (torch.arange(8) >= 0).expand(2, 1, 8, 8),
    lambda: torch.zeros(2, 1, 8, 8),
    lambda: torch.tensor(True).expand(8, 8) & (torch.arange(8) < 9),
])  # fmt: skip
def test_masks_that_hide_nothing_go(make):
    assert attention_of(lambda q: sdpa(q, q, q, attn_mask=make()), QUERY) == (None, False)
    assert attention_of(lambda q: sdpa(q, q, q, make(), scale=0.3), QUERY) == (None, False)


@pytest.mark.parametrize("make", [
    lambda: causal(8),
    lambda: torch.ones(8, 8, dtype=torch.bool).tril().expand(2, 1, 8, 8),
    lambda: causal(8)[None, None] & (torch.arange(8).cumsum(0) >= 0),
])  # fmt: skip
def test_triangles_become_causal(make):
    assert attention_of(lambda q: sdpa(q, q, q, attn_mask=make()), QUERY) == (None, True)


def changed(mask: torch.Tensor) -> torch.Tensor:
    mask[:, 2] = False
    return mask


@pytest.mark.parametrize("make", [
    lambda: (torch.arange(8) < 5).expand(8, 8),
    lambda: torch.ones(8, 8, dtype=torch.bool).tril(1),
    lambda: torch.zeros(8, 8).fill_diagonal_(-3.0),
    lambda: changed(torch.ones(8, 8, dtype=torch.bool)),
])  # fmt: skip
def test_masks_that_say_something_stay(make):
    mask, is_causal = attention_of(lambda q: sdpa(q, q, q, attn_mask=make()), QUERY)
    assert mask is not None and not is_causal


def test_masks_that_are_not_known_stay():
    given = torch.ones(8, 8, dtype=torch.bool)
    assert attention_of(lambda q, m: sdpa(q, q, q, m), QUERY, given)[0] is not None
    assert attention_of(lambda q, m: sdpa(q, q, q, m & (torch.arange(8) >= 0)), QUERY, given)[0] is not None


def test_a_triangle_of_other_lengths_stays():
    key = torch.randn(2, 3, 16, 4)
    mask, is_causal = attention_of(lambda q, k: sdpa(q, k, k, causal(16)[:8]), QUERY, key)
    assert mask is not None and not is_causal


def repeated(heads: torch.Tensor, times: int) -> torch.Tensor:
    batch, count, length, width = heads.shape
    return heads[:, :, None, :, :].expand(batch, count, times, length, width).reshape(
        batch, count * times, length, width
    )  # fmt: skip


def key_of(function: Any, *args: Any) -> torch.Size:
    """The shape of the key that the recorded attention takes, after its result was compared with eager's."""
    with torch.no_grad():
        region = capture_call(function, *args)
        torch.testing.assert_close(run_region(region, function, args), function(*args))
    (node,) = [n for n in region.graph.nodes if "flash_attention_for_cpu" in str(n.target)]
    return node.args[1].meta["val"].shape


def test_repeated_heads_are_taken_as_they_were():
    few, query = torch.randn(2, 2, 8, 4), torch.randn(2, 6, 8, 4)
    mask = torch.ones(8, 8, dtype=torch.bool).tril()

    def function(q, k):
        return sdpa(q, repeated(k, 3), repeated(k + 1, 3), attn_mask=torch.ones(8, 8, dtype=torch.bool).tril())

    assert key_of(function, query, few) == (2, 2, 8, 4)
    assert key_of(lambda q, k: sdpa(q, repeated(k, 3), repeated(k, 3)), query, few) == (2, 2, 8, 4)
    # A mask that stays needs them repeated, as do heads repeated in another order or one side alone.
    assert key_of(lambda q, k, m: sdpa(q, repeated(k, 3), repeated(k, 3), m), query, few, mask) == (2, 6, 8, 4)
    assert key_of(lambda q, k: sdpa(q, k.repeat(1, 3, 1, 1), k.repeat(1, 3, 1, 1)), query, few) == (2, 6, 8, 4)
    assert key_of(lambda q, k: sdpa(q, repeated(k, 3), q), query, few) == (2, 6, 8, 4)


def test_heads_written_to_meanwhile_stay_repeated():
    few, query = torch.randn(2, 2, 8, 4), torch.randn(2, 6, 8, 4)

    def function(q, k):
        source = k + 1
        keys = repeated(source, 3)
        source.zero_()
        return sdpa(q, keys, keys)

    assert key_of(function, query, few) == (2, 6, 8, 4)
