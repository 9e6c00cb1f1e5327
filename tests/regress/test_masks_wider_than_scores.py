"""A mask of attention that does not fit into the scores raises, as in eager, where it is added to them in place. ATen adds
it out of place where Python intercepts operators, as it does while a program is captured: the result was widened."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

BATCHES = {2: (), 3: (2,), 4: (2, 4), 5: (3, 2, 4)}
MASKS = [
    (6,),
    (5, 6),
    (1, 5, 6),
    (2, 1, 6),
    (1, 1, 5, 6),
    (2, 1, 5, 6),
    (4, 5, 6),
    (1, 1, 1, 1, 5, 6),
    (2, 1, 1, 1, 1, 6),
]


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error)


def agree(function, *args, dynamic):
    expected = outcome(function, *args)
    found = outcome(lampwork.compile(function, dynamic=dynamic, options={"cache": False}), *args)
    if isinstance(expected, type):
        assert found is expected
    else:
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    return expected


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dims", BATCHES)
def test_masks_of_more_dimensions(dims, dynamic):
    torch.manual_seed(0)
    batch = BATCHES[dims]
    query, key, value = torch.rand(*batch, 5, 8), torch.rand(*batch, 6, 8), torch.rand(*batch, 6, 8)
    raised = 0
    for shape in MASKS:
        for mask in (torch.rand(shape), torch.rand(shape) > 0.2):
            found = agree(F.scaled_dot_product_attention, query, key, value, mask, dynamic=dynamic)
            raised += found is RuntimeError
    assert 0 < raised < 2 * len(MASKS)


@pytest.mark.parametrize("called", [
    torch.ops.aten.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default,
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()),
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, torch.zeros(1, 1, 5, 5)),
    lambda q, k, v, m: F.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=m),
], ids=range(5))  # fmt: skip
@pytest.mark.parametrize("batch, mask", [((), (1, 5, 5)), ((2,), (1, 1, 5, 5)), ((2,), (2, 5, 5))])
def test_spellings(called, batch, mask):
    x = torch.rand(*batch, 5, 8, requires_grad=True)
    agree(lambda x, m: called(x, x, x, m), x, torch.rand(mask), dynamic=None)


@pytest.mark.parametrize("heads", [1, 2, 3, 4])
@pytest.mark.parametrize("repeats", [False, True])
def test_heads_that_are_repeated(heads, repeats):
    query, key = torch.rand(2, 4, 5, 8), torch.rand(2, heads, 6, 8)
    for mask in (torch.rand(5, 6), torch.rand(2, 4, 5, 6), torch.rand(1, 2, 4, 5, 6)):
        call = lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m, enable_gqa=repeats)
        agree(call, query, key, mask, dynamic=None)


@pytest.mark.parametrize("mask", [
    torch.ones(5, 6, dtype=torch.int64), torch.ones(5, 6, dtype=torch.float64), torch.ones(5, 6, dtype=torch.float16),
    torch.ones(5, 7), torch.ones(4, 6), torch.ones(3, 5, 6),
], ids=lambda mask: f"{mask.dtype} {list(mask.shape)}")  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_other_masks_that_do_not_fit(mask, causal):
    query, key = torch.rand(2, 5, 8), torch.rand(2, 6, 8)
    agree(lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m, 0.0, causal), query, key, mask, dynamic=None)
