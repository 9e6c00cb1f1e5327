"""Training is served from the on-disk cache in a new process: nothing is captured there, and no stage is loaded."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import lampwork
from lampwork.benchmark import training, zoo
from tests.processes import run_python

STEPS = 4


def with_scaler(trainer: training.Trainer, model: Any) -> training.Trainer:
    """`trainer` with a step that scales its loss; `model` is its module, compiled."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)

    def step(args, kwargs, target):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(*args, **kwargs), target)
        scaler.scale(loss).backward()
        scaler.step(trainer.optimizer)
        scaler.update()
        trainer.optimizer.zero_grad()
        return loss.detach()

    trainer.step, trainer.compiled = step, model
    return trainer


def make(name: str, road: str) -> training.Trainer:
    """A trainer of the small model `name` by one road: "module", "scaler" (the model is compiled), "step", "autocast",
    "dropout" (the whole step is). All have a schedule."""
    workload = training.prepare(name, size="tiny", dropout=road == "dropout")
    if road == "scaler":
        trainer = training.Trainer(workload, "cpu")
        return with_scaler(trainer, lampwork.compile(trainer.module))
    autocast = torch.bfloat16 if road == "autocast" else None
    way = {"compile_model" if road == "module" else "compile_step": lampwork.compile}
    return training.Trainer(workload, "cpu", autocast=autocast, **way)


def train(cases: list[tuple[str, str]]) -> None:
    """Trains each case; prints its losses and counts."""
    found = {}
    for name, road in cases:
        torch.manual_seed(0)
        trainer = make(name, road)
        losses = [float(trainer()) for _ in range(STEPS)]
        counts = lampwork.stats(trainer.compiled)
        found[f"{name} {road}"] = {
            "losses": losses,
            "captures": counts["captures"],
            "hits": counts["cache_hits"],
            "other": [str(each) for each in (*counts["breaks"], *counts["fallbacks"])],
            "notes": counts["cache_notes"],
        }
    stages = [name for name in ("lampwork.pipeline", "llvmlite") if name in sys.modules]
    print(json.dumps([found, stages]))


CASES = [
    *((name, "step") for name in zoo.ZOO),
    *((name, "module") for name in zoo.ZOO),
    ("bert", "autocast"),
    ("resnet", "autocast"),
    ("gpt2", "dropout"),
    ("mlp", "scaler"),
]
QUICK = [("mlp", "step"), ("mlp", "scaler"), ("gpt2", "dropout"), ("resnet", "autocast")]


def in_new_process(cases: list[tuple[str, str]], cache: Path) -> list:
    done = run_python(
        ["-c", f"from tests.training.test_warm_start import train; train({cases!r})"],
        env={**os.environ, "LAMPWORK_CACHE_DIR": str(cache), "LAMPWORK_VERIFY": "0"},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("cases", [QUICK, pytest.param(CASES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_training_is_served_from_disk(cases, tmp_path):
    pytest.importorskip("transformers")
    first, stages = in_new_process(cases, tmp_path / "cache")
    assert stages == ["lampwork.pipeline", "llvmlite"]
    second, stages = in_new_process(cases, tmp_path / "cache")
    for case, before in first.items():
        after = second[case]
        assert before["captures"] == 1, case
        assert not before["other"] and not after["other"], case
        assert (after["captures"], after["hits"]) == (0, before["captures"]), (case, after["notes"])
        assert after["losses"] == before["losses"], case
    assert not stages
