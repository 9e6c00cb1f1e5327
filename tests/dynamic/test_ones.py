"""Sizes of 1 share an entry with larger ones where the program does not ask, and are eager's in strides and memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

W, B = torch.randn(8, 8), torch.randn(8)
ROW = torch.randn(1, 5, 8)

#: Of a tensor f32[b, t, 8].
PROGRAMS = {
    "linear": lambda x: F.linear(x, W, B),
    "linear without a bias": lambda x: F.linear(x, W),
    "linear of a transposed one": lambda x: F.linear(x.transpose(0, 1), W, B),
    "product": lambda x: x @ W,
    "product of stacks": lambda x: x @ x.transpose(1, 2),
    "product of transposed stacks": lambda x: x.transpose(0, 1) @ W,
    "vector": lambda x: x @ B,
    "flat": lambda x: x.reshape(-1, 8) * 2,
    "flat view": lambda x: x.view(-1, 8),
    "reshaped and written": lambda x: (x + 1).transpose(0, 1).reshape(-1, 8).mul_(2),
    "copied or not": lambda x: x.transpose(0, 1).contiguous(),
    "reshaped or not": lambda x: x.transpose(0, 1).reshape(-1, 8),
    "contiguous": lambda x: x.contiguous(),
    "asked": lambda x: x + 1 if x.transpose(0, 1).is_contiguous() else x - 1,
    "heads": lambda x: (x * 2).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2),
    "heads kept": lambda x: torch.relu(x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)),
    "heads joined": lambda x: x.view(*x.shape[:2], 2, 4).transpose(1, 2).sin().transpose(1, 2).reshape(*x.shape[:2], 8),
    "permuted": lambda x: x.permute(2, 0, 1) + 1,
    "transposed sum": lambda x: x.transpose(0, 1) + x.transpose(0, 1),
    "beside its own": lambda x: x + x.transpose(0, 1)[:1].transpose(0, 1),
    "broadcast": lambda x: x + x[:1],
    "broadcast on both sides": lambda x: x[:1] * x[:, :1],
    "mask": lambda x: x.masked_fill((x[..., 0] > 0)[:, :, None], 0.0),
    "places": lambda x: torch.arange(x.shape[1])[None, :, None] + x,
    "squeezed": lambda x: x.squeeze(),
    "squeezed in front": lambda x: x.squeeze(0) + 1,
    "sum": lambda x: x.sum(0),
    "mean kept": lambda x: x.mean(1, keepdim=True),
    "softmax": lambda x: x.transpose(1, 2).softmax(-1),
    "norm": lambda x: F.layer_norm(x, (8,)),
    "cat": lambda x: torch.cat([x, x.flip(0)], 1),
    "stack": lambda x: torch.stack([x, x * 2], 1),
    "indices": lambda x: x[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None]],
    "last": lambda x: x[:, -1],
    "slice": lambda x: x[:, :1].clone(),
    "like": lambda x: torch.empty_like(x.transpose(0, 1)).fill_(1),
    "expanded": lambda x: x[:, :1].expand(-1, 3, -1).reshape(-1, 8),
    "causal": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
    "variance": lambda x: x.var(1),
    "split": lambda x: x.chunk(2, -1)[1] * 2,
    "of its size": lambda x: x / x.shape[0] + x.shape[1],
    "branch": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
}
SHAPES = [(3, 5), (4, 6), (1, 4), (6, 1), (1, 1), (2, 2), (5, 3)]


def same(actual, expected, x):
    torch.testing.assert_close(actual, expected, equal_nan=True)
    assert actual.stride() == expected.stride()
    owner = x.untyped_storage().data_ptr()
    assert (actual.untyped_storage().data_ptr() == owner) == (expected.untyped_storage().data_ptr() == owner)


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("order", [1, pytest.param(-1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers(name, order):
    program = PROGRAMS[name]
    fast = lampwork.compile(program, options={"cache": False})
    for batch, length in SHAPES[::order]:
        x = torch.randn(batch, length, 8)
        same(fast(x), program(x), x)
    assert not lampwork.stats(fast)["fallbacks"]
