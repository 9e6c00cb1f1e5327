"""Training that is interrupted: state dicts saved half-way and loaded, in this process and in a new one."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.benchmark import training
from tests.processes import run_python

STEPS = 8

#: Goes on from the file of states `argv[2]` with the model `argv[1]`; prints the losses.
GO_ON = """
import sys
import torch
from tests.training.test_resume import STEPS, load, losses_of, make

torch.set_num_threads(1)
trainer = make(sys.argv[1])
load(trainer, torch.load(sys.argv[2]))
print(*(loss.hex() for loss in losses_of(trainer, STEPS // 2)))
"""


def make(name: str) -> training.Trainer:
    """The small model `name` with its optimizer and schedule, whose whole step is compiled."""
    options = {"cache": False}
    return training.Trainer(
        training.prepare(name, size="tiny"),
        "cpu",
        optimizer="plain",
        compile_step=lambda step: lampwork.compile(step, options=options),
    )


def losses_of(trainer: training.Trainer, steps: int) -> list[float]:
    return [float(trainer()) for _ in range(steps)]


def states(trainer: training.Trainer) -> dict:
    return {
        "model": trainer.module.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "schedule": trainer.schedule.state_dict(),
        "number": trainer.number,
    }


def load(trainer: training.Trainer, saved: dict) -> None:
    trainer.module.load_state_dict(saved["model"])
    trainer.optimizer.load_state_dict(saved["optimizer"])
    trainer.schedule.load_state_dict(saved["schedule"])
    trainer.number = saved["number"]


@pytest.fixture(params=["mlp", "gpt2", "resnet"])
def name(request):
    pytest.importorskip("transformers") if request.param != "mlp" else None
    return request.param


def test_going_on_from_a_file(name, tmp_path):
    """Neither saving nor loading changes what the steps compute: all losses are those of training in one go."""
    expected = losses_of(make(name), STEPS)
    first = make(name)
    found = losses_of(first, STEPS // 2)
    torch.save(states(first), tmp_path / "states.pt")
    fresh = make(name)
    load(fresh, torch.load(tmp_path / "states.pt"))
    assert found + losses_of(fresh, STEPS // 2) == expected
    statistics = lampwork.stats(fresh.compiled)
    assert not statistics["breaks"] and not statistics["fallbacks"]
    assert len(set(expected)) == STEPS  # each step changed something


def test_going_back(name, tmp_path):
    """States loaded into the trainer that has gone on since: it makes the same steps again, and compiles nothing."""
    trainer = make(name)
    losses_of(trainer, STEPS // 2)
    torch.save(states(trainer), tmp_path / "states.pt")
    expected = losses_of(trainer, STEPS // 2)
    captures = lampwork.stats(trainer.compiled)["captures"]
    load(trainer, torch.load(tmp_path / "states.pt"))
    assert losses_of(trainer, STEPS // 2) == expected
    statistics = lampwork.stats(trainer.compiled)
    assert statistics["captures"] == captures, statistics["recompiles"]


def test_going_on_in_a_new_process(name, tmp_path):
    trainer = make(name)
    losses_of(trainer, STEPS // 2)
    path = tmp_path / "states.pt"
    torch.save(states(trainer), path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = losses_of(trainer, STEPS // 2)
    finally:
        torch.set_num_threads(threads)
    done = run_python(["-c", GO_ON, name, path])
    assert done.returncode == 0, done.stderr
    assert [float.fromhex(each) for each in done.stdout.split()] == expected
