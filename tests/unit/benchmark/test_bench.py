"""The bench command end to end, with stand-ins for the compiler, and what it does when a compiler fails or crashes."""

from __future__ import annotations

import json

import pytest

from lampwork import cli
from lampwork.benchmark import bench, report
from lampwork.benchmark.page import page as bench_page

STAND_INS = """
import os
import torch

class Compiled:
    def __init__(self, call): self.call = call
    def __call__(self, *args, **kwargs): return self.call(*args, **kwargs)

def honest(function, mode=None, options=None): return Compiled(function)
def wrong(function, mode=None, options=None):
    def call(*args, **kwargs):
        output = function(*args, **kwargs)
        return output + 1 if output.numel() > 8 else output  # right on the tiny function, wrong on the model
    return Compiled(call)
def raising(function, mode=None, options=None): raise NotImplementedError("no such compiler")
def crashing(function, mode=None, options=None):
    if options: os.abort()
    return Compiled(function)

def model(): return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), (torch.ones(4, 8),)
"""


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    (tmp_path / "stand_ins.py").write_text(STAND_INS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measure(compiler, **changes):
    given = {"columns": ("eager", "lampwork"), "seconds": 0.1, "min_rounds": 2, "size": "tiny", "start": False}
    return bench.measure_all(
        bench.Settings(models=("stand_ins:model",), compiler=f"stand_ins:{compiler}", **{**given, **changes})
    )


def column(results, name="lampwork"):
    return results["models"]["stand_ins:model"]["columns"][name]


def test_wrong_numbers_are_not_accepted(stand_ins):
    results = measure("wrong")
    assert column(results)["verified"]["error"] == pytest.approx(1.0)
    assert not bench.accepted(results)
    assert "off by 1" in bench.judge(column(results))[1]


def test_an_exception_is_reported_and_the_others_measured(stand_ins):
    results = measure("raising")
    assert "no such compiler" in column(results)["error"]
    assert column(results, "eager")["timing"]["median_ms"] > 0
    assert any("no such compiler" in line for line in report.failures(results))
    assert not bench.accepted(results)


def test_a_crash_costs_its_column_alone(stand_ins):
    results = measure("crashing", columns=("eager", "lampwork", "freeze"))
    assert "SIGABRT" in column(results, "freeze")["error"]
    assert column(results)["timing"]["median_ms"] > 0
    assert not bench.accepted(results)


def test_cold_and_warm_start(stand_ins):
    results = measure("honest", columns=("lampwork",), start=True)
    found = column(results)
    assert found["cold_seconds"] > 0 and found["warm_seconds"] > 0
    assert found["peak_mib"] > 50
    assert len(found["cold"]) == len(found["warm"]) == 1


def test_command_writes_json_and_says_no(stand_ins, capsys):
    arguments = "bench stand_ins:model --no-peer --no-freeze --no-start --seconds 0.1 --min-rounds 2"
    status = cli.main([*arguments.split(), "--compiler", "stand_ins:wrong", "--json", "out.json"])
    assert status == 1
    written = json.loads((stand_ins / "out.json").read_text())
    assert written["environment"]["torch"]
    assert written["models"]["stand_ins:model"]["columns"]["eager"]["timing"]["rounds"] >= 2
    printed = capsys.readouterr().out
    assert "Steady state" in printed and "NO" in printed


def test_misuse(stand_ins, capsys):
    assert cli.main(["bench", "mlp", "--json", "nowhere/out.json"]) == 2
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench"])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "mlp", "--device", "tpu"])
    assert ended.value.code == 2


def test_unknown_model_is_reported(stand_ins):
    results = bench.measure_all(
        bench.Settings(models=("nosuch",), columns=("eager", "lampwork"), seconds=0.1, min_rounds=1, start=False)
    )
    assert "the zoo has mlp" in results["models"]["nosuch"]["columns"]["lampwork"]["error"]
    assert not bench.accepted(results)


@pytest.mark.parametrize("name", ["peer", "lampwork", "freeze"])
def test_a_warm_start_finds_all_that_the_cold_one_left(tmp_path, name):
    """Each compiler's start uses folders of its own, the same ones warm as cold, temporary files included."""
    cells = bench._Cells(bench.Settings(models=("m",), columns=(name,)), tmp_path, "m", lambda *told: None)
    folders = ("LAMPWORK_CACHE_DIR", "TMPDIR") + (("TORCHINDUCTOR_CACHE_DIR",) if name == "peer" else ())
    cold, warm, other = (
        {key: cells._environment(tmp_path / process, {name: tmp_path / cache})[key] for key in folders}
        for process, cache in (("process1", "cache1"), ("process2", "cache1"), ("process3", "cache2"))
    )
    if name == "peer":
        del cold["LAMPWORK_CACHE_DIR"], warm["LAMPWORK_CACHE_DIR"], other["LAMPWORK_CACHE_DIR"]
    assert cold == warm
    assert not set(cold.values()) & set(other.values())


def test_entries_that_do_not_serve_are_no_graphs_of_a_call():
    models = {"m": {"columns": {"lampwork": {"stats": {"entries": 2, "captures": 1, "cache_hits": 0}}}}}
    table = report.verdict_table(models, ["lampwork"])
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["graphs"] == ["1"]


def test_a_page(stand_ins, capsys):
    arguments = ["bench", "stand_ins:model", "--size", "tiny", "--seconds", "0.1", "--min-rounds", "2", "--no-peer"]
    arguments += ["--no-freeze", "--no-start", "--html", "page.html"]
    assert cli.main(arguments) == 0
    page = (stand_ins / "page.html").read_text()
    assert page.startswith("<!doctype html>") and "All numbers are accepted." in page
    assert page.index("times as fast as eager") < page.index("<svg") < page.index("<table>")
    assert page.count("<svg") == 1 and "[green]" not in page and "nan" not in page


def test_a_page_of_what_went_wrong(stand_ins):
    page = bench_page(measure("wrong"))
    assert "Not accepted: stand_ins:model (lampwork)." in page and "off by 1" in page
    assert "Nothing was measured" in bench_page(measure("raising"))
