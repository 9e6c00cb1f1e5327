"""`numerics="eager"` on a GPU: each row of its table, and training steps, have eager's bits."""

from __future__ import annotations

import pytest
import torch

import lampwork
from bench.numerics import Run, equal_steps
from lampwork.backends import backend_of, exact
from lampwork.benchmark import training, zoo
from tests.numerics.exact_rows import CALLS, computing, differing


@pytest.mark.parametrize("row", sorted(computing(exact.CUDA, exact._MOVES)))
def test_row_has_eagers_bits(row, device):
    types, arity, calls = CALLS[row]
    for dtype in types:
        found, called = differing(calls, dtype, arity, device)
        assert not any(found), (row, dtype, found)
        assert not called, (row, dtype, called)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_steps_have_eagers_bits(name, autocast, device):
    workload = training.prepare(name, device=device, size="tiny")
    runs = [Run(workload, numerics, "model", device=device, autocast=autocast) for numerics in (None, "eager")]
    assert equal_steps(*runs, 20) == (20, [])


def test_dropout_draws_eagers_numbers(device):
    def program(x):
        return torch.nn.functional.dropout(x, 0.3)

    x = torch.randn(1000, device=device)
    compiled = lampwork.compile(program, options={"numerics": "eager"})
    torch.manual_seed(1)
    expected = program(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x), expected)


def test_nothing_is_tuned():
    settings = lampwork.config.make_settings(mode="max-autotune", options={"numerics": "eager"})
    from lampwork.pipeline import _tuner

    assert backend_of("cuda").tuner is not None
    assert _tuner(settings, None, "cuda") is None
