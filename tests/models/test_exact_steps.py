"""The seven models trained for 20 steps of AdamW with `numerics="eager"`: every step leaves eager's bits."""

from __future__ import annotations

import pytest
import torch

import lampwork
from bench.numerics import WAYS, Run, equal_steps
from lampwork.benchmark import training, zoo

STEPS = 20
#: What every run of the tests trains; `make test-slow` the others, too.
QUICK = {
    ("mlp", "model"),
    ("resnet", "model"),
    ("vit", "model"),
    ("bert", "model"),
    ("llama", "model"),
    ("gpt2", "step"),
}


def check(name, way, **settings):
    workload = training.prepare(name, size="tiny", dropout=settings.pop("dropout", False))
    exact = Run(workload, "eager", way, **settings)
    assert equal_steps(Run(workload, None, way, **settings), exact, STEPS) == (STEPS, [])
    stats = lampwork.stats(exact.compiled)
    assert not stats["fallbacks"], stats["fallbacks"]
    return stats


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=() if (name, way) in QUICK else pytest.mark.slow)
        for name in zoo.ZOO
        for way in WAYS
    ],
)
def test_steps_have_eagers_bits(name, way):
    stats = check(name, way)
    assert not stats["breaks"]
    assert stats["native_kernels"] or (name, way) == ("mlp", "model")  # an mlp consists of calls


@pytest.mark.parametrize("name", ["mlp", "gpt2", "resnet"])
def test_steps_under_autocast_have_eagers_bits(name):
    check(name, "model", autocast=torch.bfloat16)


def test_steps_with_dropout_have_eagers_bits():
    check("bert", "model", dropout=True)


@pytest.mark.parametrize("optimizer", ["foreach", "fused"])
def test_other_optimizers_have_eagers_bits(optimizer):
    stats = check("mlp", "step", optimizer=optimizer)
    assert [each.id for each in stats["breaks"]] == (["native-call"] if optimizer == "fused" else [])
