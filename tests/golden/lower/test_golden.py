"""Lowered programs as text: one idea each, rewritten with `--update-golden`, reviewed as code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from lampwork.ir.print import lowered_text
from tests.unit.lower.graphs import lowered_of

X = torch.zeros(4, 6)

PROGRAMS = {
    "gelu_half": (lambda x: F.gelu(x * 2), (X.to(torch.bfloat16),)),
    "softmax": (lambda x: x.softmax(-1), (X,)),
    "log_softmax": (lambda x: x.log_softmax(0), (X,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), (X, X[0], X[0])),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), (torch.zeros(2, 4, 3), torch.zeros(4))),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v), (torch.zeros(2, 3, 5), torch.zeros(3), torch.ones(3))),
    "mean_int": (lambda x: x.long().sum(1).float().mean(), (X,)),
    "attention_heads": (lambda x: x.view(4, 2, 3).transpose(0, 1).contiguous().cumsum(0), (X,)),
    "embedding": (lambda w, i: F.embedding(i, w), (X, torch.zeros(2, 3, dtype=torch.long))),
    "positions": (lambda w: F.embedding(torch.arange(1, 4) + 0, w), (X,)),
    "causal_mask": (lambda x: x.masked_fill(torch.ones(4, 6, dtype=torch.bool).triu(1), -float("inf")), (X,)),
    "cat": (lambda x, y: torch.cat((x, y, x), 1), (X, X[:, :2])),
    "pad": (lambda x: F.pad(x, (1, 2, -1, 0), value=3.0), (X,)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (torch.zeros(1, 2, 8, 8),)),
    "index_put": (lambda x, i: x.index_put((i,), x[:2], accumulate=True), (X, torch.zeros(2, dtype=torch.long))),
    "slice_write": (lambda x: _write_slice(x), (X,)),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (X, torch.zeros(4, dtype=torch.long))),
    "addmm_transposed": (lambda x, w, b: F.linear(x, w, b), (X, torch.zeros(3, 6), torch.zeros(3))),
    "integer_division": (lambda x, y: x.long() // y.long(), (X, X)),
}


def _write_slice(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:3, ::2] = y[1:3, ::2] + 1
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowered_text(name, request):
    function, arguments = PROGRAMS[name]
    found = lowered_text(lowered_of(function, arguments))
    path = Path(__file__).parent / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text(), f"rewrite {path.name} with --update-golden if this is wanted"
