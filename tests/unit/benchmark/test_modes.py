"""`lampwork bench` with several modes: columns, the record that a run goes on with, crashes, kept outputs, verdicts."""

from __future__ import annotations

import json

import pytest
import torch

from lampwork import cli
from lampwork.benchmark import carry_out, modes_jobs, modes_report
from lampwork.benchmark.cases import CASES, cases

STAND_INS = """
import os
import torch

class Compiled:
    def __init__(self, call): self.call = call
    def __call__(self, *args, **kwargs): return self.call(*args, **kwargs)

def honest(function, mode=None, options=None): return Compiled(function)

def overwriting(function, mode=None, options=None):
    '''Its reduce-overhead writes every output to the same memory.'''
    kept = []
    def call(*args, **kwargs):
        output = function(*args, **kwargs)
        if mode != "reduce-overhead": return output
        if not kept: kept.append(torch.empty_like(output))
        return kept[0].copy_(output)
    return Compiled(call)

def crashing(function, mode=None, options=None):
    if mode == "reduce-overhead" and function(torch.ones(4, 8)).dim() == 2 and hasattr(function, "weights"): os.abort()
    return Compiled(function)

def model():
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    module.weights = True
    return module, (torch.rand(4, 8),)
"""

MODEL = "stand_ins:model"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command on the stand-in model in two modes; its status and what is in its record."""
    (tmp_path / "stand_ins.py").write_text(STAND_INS)
    monkeypatch.chdir(tmp_path)

    def run(compiler, *more):
        given = f"bench {MODEL} --mode default reduce-overhead --no-peer --seconds 0.1 --min-rounds 2 --no-overhead"
        arguments = [*given.split(), "--json", "record.jsonl", "--compiler", f"stand_ins:{compiler}", *more]
        status = cli.main(arguments)
        return status, [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]

    return run


def test_record_and_resume(run, capsys):
    status, record = run("honest")
    assert status == 0
    assert [(line["part"], line["column"]) for line in record] == [("start", "lampwork:default"), ("steady", "")]
    columns = record[-1]["found"]["columns"]
    assert list(columns) == ["eager", "lampwork:default", "lampwork:reduce-overhead"]
    assert all(found["timing"]["median_ms"] > 0 for found in columns.values())
    assert record[0]["found"]["cold"][0]["loaded_before"] == []
    assert "lampwork:reduce-overhead over eager" in capsys.readouterr().out

    assert run("honest", "--resume") == (0, record)  # nothing is measured twice
    status, longer = run("honest", "--resume", "--starts", "all")
    assert longer[:2] == record and [line["column"] for line in longer[2:]] == ["lampwork:reduce-overhead"]


def test_a_budget_stops_in_time_and_says_so(run, capsys):
    status, record = run("honest", "--budget", "1")
    assert (status, record) == (carry_out.OUT_OF_TIME, [])
    assert "not measured: stand_ins:model" in capsys.readouterr().err


def test_outputs_that_change_are_not_accepted(run):
    status, record = run("overwriting", "--no-start")
    columns = record[-1]["found"]["columns"]
    assert status == 1
    assert columns["lampwork:default"]["kept"]["right"]
    assert "changed after it was returned" in columns["lampwork:reduce-overhead"]["kept"]["why"]


def test_a_crash_costs_its_column_alone(run):
    status, record = run("crashing", "--no-start")
    columns = record[-1]["found"]["columns"]
    assert status == 1
    assert "SIGABRT" in columns["lampwork:reduce-overhead"]["error"]
    assert columns["lampwork:default"]["timing"]["median_ms"] > 0


def test_misuse(capsys):
    assert cli.main(["bench", "mlp", "--mode", "fastest"]) == 2
    assert cli.main(["bench", "mlp", "--resume"]) == 2
    if not torch.cuda.is_available():
        assert cli.main(["bench", "mlp", "--device", "cuda"]) == 2
        assert "--device cuda" in capsys.readouterr().err


def test_cases():
    assert {case.model for case in CASES} == {"mlp", "resnet", "vit", "bert", "gpt2", "llama", "unet"}
    assert [case.name for case in cases("bert", "gpu")] == ["bert 16x512", "bert 1x128"]
    assert [case.name for case in cases("bert 1x128", "gpu")] == ["bert 1x128"]
    assert [case.name for case in cases("bert", "tiny")] == ["bert tiny"]
    assert cases("a:b", "gpu")[0].size == "full"


def column(milliseconds, **more):
    timing = {"median_ms": milliseconds, "spread": 0.0, "device": None}
    return {"timing": timing, "verified": {"accepted": True, "error": 0.0}, **more}


def test_summary_divides_by_the_same_mode_and_finds_the_worst():
    models = {
        name: {
            "measured": True,
            "columns": {
                "eager": column(4.0),
                "peer:default": column(2.0),
                "peer:reduce-overhead": column(1.0),
                "lampwork:default": column(ours),
                "lampwork:reduce-overhead": column(ours / 2),
            },
        }
        for name, ours in (("fast", 1.0), ("slow", 4.0))
    }
    lines = modes_report.summary(models)
    assert "lampwork:default over peer:default: 1.000x in geometric mean of 2, least 0.500x (slow)" in lines
    assert (
        "lampwork:reduce-overhead over peer:reduce-overhead: 1.000x in geometric mean of 2, least 0.500x (slow)"
        in lines
    )
    assert "best mode over torch.compile's best: 1.000x in geometric mean of 2, least 0.500x (slow)" in lines


def test_a_peer_that_overwrites_outputs_is_told_and_ours_refused():
    kept = {"kept": {"right": False, "why": "output 0 changed"}}
    peer, ours = column(1.0, **kept), column(1.0, **kept)
    assert not modes_report.wrong(peer, "peer:reduce-overhead")
    assert modes_report.wrong(ours, "lampwork:reduce-overhead")


def test_varied_inputs_keep_their_kind():
    image = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    first, second = modes_jobs.varied((image, torch.arange(6), 3), 2)
    assert torch.equal(first[0], image) and not torch.equal(second[0], image)
    assert second[0].stride() == image.stride()
    assert second[1].tolist() == [5, 0, 1, 2, 3, 4] and second[2] == 3
