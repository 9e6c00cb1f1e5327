"""Small models with the zoo's architectures: forward and backward compiled, the optimizer eager."""

from __future__ import annotations

import pytest

from lampwork.benchmark import zoo
from tests.training.steps import tensors, train, whole


def loss_of(result):
    return sum(
        each.float().pow(2).mean() for each in tensors(result) if each.is_floating_point() and each.requires_grad
    )


CASES = [
    pytest.param(name, mode, marks=[pytest.mark.slow] * ((name, mode) == ("unet", "eval")))
    for name in zoo.ZOO
    for mode in ("eval", "train")
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_model(name, mode):
    workload = zoo.build(name, size="tiny")
    module = workload.function.train(mode == "train")
    stats = train(module, workload.args, loss_of)
    whole(stats)
