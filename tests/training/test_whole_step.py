"""Fifty whole steps of small models: AdamW, clipping, a cosine schedule, dropout off, against eager and float64.

python -m pytest tests/training/test_whole_step.py -m ""        # all seven models; a quick run takes the first two
"""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

import lampwork
from lampwork.benchmark import training

STEPS = 50
QUICK = ("mlp", "gpt2")
SLOW = ("resnet", "vit", "bert", "llama", "unet")
KINDS = ("plain", "fused")


CASES = [
    *[(name, kind) for name, kind in itertools.product(QUICK, KINDS) if (name, kind) != ("gpt2", "plain")],
    *[pytest.param(name, "plain", marks=pytest.mark.slow) for name in ("gpt2", *SLOW)],  # one implementation will do
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_fifty_steps(name, kind):
    """One graph a step, no compile after the second, losses and parameters as good as eager's."""
    pytest.importorskip("transformers") if name not in ("mlp", "unet") else None
    workload = training.prepare(name, size="tiny")
    start = {key: value.detach().clone() for key, value in workload.module.named_parameters()}
    compile_step = functools.partial(lampwork.compile, options={"cache": False})
    compiled = training.Trainer(workload, "cpu", optimizer=kind, compile_step=compile_step)
    eager = training.Trainer(workload, "cpu", optimizer=kind)
    exact = training.Trainer(workload, "cpu", optimizer=kind, dtype=torch.float64)
    early = training.train(compiled, 2)
    found = lampwork.stats(compiled.compiled)
    captures = found["captures"]
    late = training.train(compiled, STEPS - 2)
    ours = training.Outcome(
        early.losses + late.losses, early.first_gradients, late.gradients, late.parameters, late.buffers
    )
    outcome = training.train(eager, STEPS)
    reference = training.train(exact, STEPS)
    found = lampwork.stats(compiled.compiled)
    assert not found["breaks"] and not found["fallbacks"], [*found["breaks"], *found["fallbacks"]]
    assert found["captures"] == captures <= 2, found["recompiles"]
    assert found["graphs"] == found["entries"] <= 2
    # AdamW divides noise by noise where a gradient is nearly 0: one run of eager says little about what rounding does.
    again = functools.partial(training.Trainer, workload, "cpu", optimizer=kind)
    nearby = training.Nearby(again, STEPS, reference, start)
    verdict = training.compare(ours, outcome, reference, start, torch.float32, nearby)
    assert verdict["accepted"], verdict["reasons"]


@pytest.mark.parametrize("name", QUICK)
def test_autocast(name):
    """AdamW with bfloat16 autocast: gradients, losses and parameters, which stay float32, are as good as eager's."""
    pytest.importorskip("transformers") if name == "gpt2" else None
    workload = training.prepare(name, size="tiny")
    start = {key: value.detach().clone() for key, value in workload.module.named_parameters()}
    compile_step = functools.partial(lampwork.compile, options={"cache": False})
    compiled = training.Trainer(workload, "cpu", autocast=torch.bfloat16, compile_step=compile_step)
    eager = training.Trainer(workload, "cpu", autocast=torch.bfloat16)
    exact = training.Trainer(workload, "cpu", optimizer="plain", dtype=torch.float64)
    ours, outcome, reference = (training.train(each, 10) for each in (compiled, eager, exact))
    found = lampwork.stats(compiled.compiled)
    assert not found["breaks"] and not found["fallbacks"], [*found["breaks"], *found["fallbacks"]]
    assert found["captures"] == found["graphs"] <= 2, found["recompiles"]
    assert all(value.dtype == torch.float32 for value in ours.parameters.values())
    verdict = training.compare(ours, outcome, reference, start, torch.bfloat16)
    assert verdict["accepted"] and "parameters" in verdict["errors"], verdict["reasons"]
