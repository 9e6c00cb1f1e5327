"""`lampwork bench --task train`: what is trained, what is refused, the command and its record."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch

from lampwork import cli
from lampwork.benchmark import train_report, training, zoo
from lampwork.benchmark.cases import TRAINING_CASES, training_cases

STAND_INS = """
import torch

class Compiled:
    def __init__(self, call): self.call = call
    def __call__(self, *args, **kwargs): return self.call(*args, **kwargs)

def honest(function, mode=None): return Compiled(function)

def forgetful(function, mode=None):
    '''A whole step loses the gradient of one bias.'''
    if isinstance(function, torch.nn.Module): return Compiled(function)
    model = next(cell.cell_contents for cell in function.__closure__ if isinstance(cell.cell_contents, torch.nn.Module))
    model[0].bias.register_hook(torch.zeros_like)
    return Compiled(function)

def first_linear(function):
    if isinstance(function, torch.nn.Module): return function[0]
    return next(c.cell_contents for c in function.__closure__ if isinstance(c.cell_contents, torch.nn.Module))[0]

def inaccurate(function, mode=None):
    '''The gradient of one bias is off by a hundredth.'''
    first_linear(function).bias.register_hook(lambda gradient: 1.01 * gradient)
    return Compiled(function)

def differently_rounded(function, mode=None):
    weight = first_linear(function).weight.data
    weight *= 1 + torch.finfo(weight.dtype).eps
    return Compiled(function)

def model():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), (torch.rand(4, 8),)

class Chaos(torch.nn.Module):
    '''Doubles what rounding does, again and again.'''
    def forward(self, x):
        x = x.sigmoid()
        for _ in range(20): x = 4 * x * (1 - x)
        return x

def chaotic():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), Chaos(), torch.nn.Linear(64, 3)), (torch.rand(4, 8),)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command on the stand-in model; its status and what is in its record."""
    (tmp_path / "stand_ins.py").write_text(STAND_INS)
    monkeypatch.chdir(tmp_path)

    def run(compiler, *more, models="stand_ins:model"):
        given = f"bench {models} --task train --no-peer --seconds 0.1 --min-rounds 2"
        status = cli.main([*given.split(), "--json", "record.jsonl", "--compiler", f"stand_ins:{compiler}", *more])
        return status, [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]

    return run


def test_record_and_resume(run, capsys):
    status, record = run("honest", "--starts", "ours")
    assert status == 0
    told = [(line["part"], line["column"]) for line in record]
    assert told == [("start", "lampwork:module"), ("start", "lampwork:step"), ("steady", "")]
    assert record[0]["found"]["cold"][0]["loaded_before"] == []
    assert record[0]["found"]["peak_mib"] > 0
    columns = record[-1]["found"]["columns"]
    assert list(columns) == ["eager", "lampwork:module", "lampwork:step"]
    assert all(found["timing"]["median_ms"] > 0 and found["verified"]["accepted"] for found in columns.values())
    assert "lampwork:step over eager" in capsys.readouterr().out
    assert run("honest", "--starts", "ours", "--resume") == (0, record)  # nothing is measured twice


def test_a_lost_gradient_is_not_accepted(run, capsys):
    status, record = run("forgetful", "--no-start")
    columns = record[-1]["found"]["columns"]
    assert status == 1
    assert columns["lampwork:module"]["verified"]["accepted"]
    assert any("first gradient of 0.bias" in why for why in columns["lampwork:step"]["verified"]["reasons"])
    assert "first gradient of 0.bias" in capsys.readouterr().out


def verdicts(line):
    columns = line["found"]["columns"]
    return [columns[name]["verified"] for name in ("lampwork:module", "lampwork:step")]


def test_an_inaccurate_gradient_is_not_accepted(run):
    """However often eager runs, and where float32 cannot tell, float64 does."""
    status, record = run("inaccurate", "--no-start", models="stand_ins:model stand_ins:chaotic")
    assert status == 1
    tame, chaotic = (verdicts(line) for line in record)
    for verdict in tame:
        assert verdict["eager_runs"] == 1 + training.NEARBY
        assert "float64" not in verdict
    for verdict in chaotic:
        assert verdict["float64"]["eager_runs"] == 1 + training.NEARBY
        assert all(reason.startswith("in float64: ") for reason in verdict["reasons"])
    for verdict in tame + chaotic:
        assert any("first gradient of 0.bias" in reason for reason in verdict["reasons"])


def test_chaos_is_accepted_if_float64_is_right(run, capsys):
    status, record = run("differently_rounded", "--no-start", models="stand_ins:chaotic")
    assert status == 0
    for verdict in verdicts(record[-1]):
        assert verdict["errors"]["first_gradients"][1] > 0.01  # eager's own
        assert verdict["float64"]["accepted"]
        assert max(verdict["float64"]["errors"]["first_gradients"]) < 1e-6
    assert "so it was trained in float64, too" in capsys.readouterr().out


def test_misuse(capsys):
    assert cli.main(["bench", "mlp", "--task", "train", "--mode", "default", "reduce-overhead"]) == 2
    assert cli.main(["bench", "mlp", "--task", "train", "--steps", "1"]) == 2
    assert cli.main(["bench", "mlp", "--task", "train", "--dtype", "float64"]) == 2
    capsys.readouterr()


def test_cases():
    assert {case.model for case in TRAINING_CASES} == set(zoo.ZOO)
    assert [case.size for case in training_cases("gpt2", "gpu")] == ["batch"]
    assert [case.name for case in training_cases("gpt2 8x1024", "full")] == ["gpt2 8x1024"]
    assert [(case.name, case.size) for case in training_cases("bert", "full")] == [("bert", "train")]
    assert training_cases("a:b", "gpu")[0].size == training_cases("a:b", "tiny")[0].size == "full"


@pytest.mark.parametrize("name", zoo.ZOO)
def test_every_model_trains(name):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    workload = training.prepare(name, size="tiny")
    assert torch.equal(torch.rand(2), expected)
    outcome = training.train(training.Trainer(workload, "cpu"), 5)
    again = training.train(training.Trainer(workload, "cpu"), 5)
    reference = training.train(training.Trainer(workload, "cpu", optimizer="plain", dtype=torch.float64), 5)
    start = {name: value.detach() for name, value in workload.module.named_parameters()}
    assert outcome.losses[4] < outcome.losses[0]  # the batch of the first step comes again
    assert all(gradient is not None for gradient in outcome.first_gradients.values())
    assert training.compare(again, outcome, reference, start, torch.float32)["accepted"]


def trained(**changed):
    """(outcome with parts changed, eager's, start) of a small network after three steps."""
    workload = training.prepare("mlp", size="tiny")
    eager = training.train(training.Trainer(workload, "cpu"), 3)
    start = {name: value.detach().clone() for name, value in workload.module.named_parameters()}
    return replace(eager, **{name: change(getattr(eager, name)) for name, change in changed.items()}), eager, start


@pytest.mark.parametrize(
    ("part", "change", "word"),
    [
        ("losses", lambda values: [1.001 * value for value in values], "losses"),
        ("first_gradients", lambda found: {**found, "4.bias": 1.001 * found["4.bias"]}, "first gradient of 4.bias"),
        ("first_gradients", lambda found: {**found, "4.bias": None}, "the other has none"),
        ("gradients", lambda found: {name: 1.001 * value for name, value in found.items()}, "gradients"),
        ("parameters", lambda found: {**found, "0.weight": found["0.weight"] + 1e-5}, "parameters"),
        ("parameters", lambda found: {**found, "0.weight": found["0.weight"] * float("nan")}, "parameters"),
    ],
)
def test_small_errors_are_refused(part, change, word):
    ours, eager, start = trained(**{part: change})
    verdict = training.compare(ours, eager, None, start, torch.float32)
    assert not verdict["accepted"]
    assert any(word in reason for reason in verdict["reasons"])


def test_eager_is_as_far_off_as_its_runs_from_a_last_bit_away():
    """What rounding explains is accepted, by as many runs as it takes and no more; NaNs explain nothing."""
    ours, eager, start = trained(losses=lambda values: [1.01 * value for value in values])
    asked = []

    def nearby(*errors):
        for error in errors:
            asked.append(error)
            yield {"losses": error}

    verdict = training.compare(ours, eager, None, start, torch.float32, nearby(0.001, 0.006, 0.5))
    assert verdict["accepted"] and verdict["eager_runs"] == 3 and asked == [0.001, 0.006]
    assert verdict["errors"]["losses"][1] == 0.006
    verdict = training.compare(ours, eager, None, start, torch.float32, nearby(0.001, float("inf"), 0.002))
    assert not verdict["accepted"] and verdict["eager_runs"] == 4
    same = training.compare(eager, eager, None, start, torch.float32, nearby(0.1))
    assert same["eager_runs"] == 1 and all(pair == [0.0, 0.0] for pair in same["errors"].values())


def test_runs_nearby_differ_by_rounding_alone():
    workload = training.prepare("mlp", size="tiny")
    start = training.parameters_of(workload.module)
    made = []

    def make():
        made.append(training.Trainer(workload, "cpu"))
        return made[-1]

    right = training.train(training.Trainer(workload, "cpu", optimizer="plain", dtype=torch.float64), 2)
    nearby = training.Nearby(make, 2, right, start)
    assert 0 < next(iter(nearby))["first_gradients"] < 1e-5
    assert len(made) == 1
    first, second, third = nearby
    assert len(made) == 3 and list(nearby) == [first, second, third] and first != second
    begun = copy.deepcopy(workload.module)
    training.nudge(begun, 0)
    for name, value in begun.named_parameters():
        assert 0 < (value - start[name]).abs().max() <= torch.finfo(torch.float32).eps * start[name].abs().max()


def test_dropout_is_off_unless_asked_for():
    assert {layer.p for layer in training.prepare("gpt2", size="tiny").module.modules() if hasattr(layer, "p")} == {0.0}
    kept = training.prepare("gpt2", size="tiny", dropout=True).module
    assert {layer.p for layer in kept.modules() if hasattr(layer, "p")} == {0.1}


def test_summary_says_what_ran_eagerly():
    def column(milliseconds, graphs):
        timing = {"median_ms": milliseconds, "spread": 0.0, "device": None}
        return {"timing": timing, "stats": {"graphs": graphs}, "cold_seconds": milliseconds}

    columns = {"eager": column(4.0, 1), "peer": column(2.0, 1), "lampwork:step": column(1.0, 0)}
    lines = train_report.summary({"one": {"measured": True, "columns": columns}})
    assert "lampwork:step over peer: 2.000x in geometric mean of 1, least 2.000x (one); 1 of them ran eagerly" in lines
