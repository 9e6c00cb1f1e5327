"""The sweep's bookkeeping: what is recorded is not checked again, a hanging or dying process costs one operator."""

from __future__ import annotations

import argparse
import json
import sys

import pytest
from rich.console import Console

from tests.ops import sweep


def result(op, dtype, outcome, category="pointwise"):
    return {"op": op, "dtype": dtype, "outcome": outcome, "category": category, "samples": {outcome: 1}, "details": []}


def test_records_of_another_source_and_broken_lines_are_ignored(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = [
        {**result("add", "float32", "native"), "source": "now"},
        {**result("mul", "bool", "aten"), "source": "old"},
    ]
    path.write_text("\n".join([json.dumps(line) for line in lines] + ['{"op": "cut off']))
    assert set(sweep.read_results(path, "now")) == {("add", "float32")}
    assert set(sweep.read_results(path, None)) == {("add", "float32"), ("mul", "bool")}


def test_the_worst_dtype_stands_for_an_operator():
    results = [result("add", "float32", "native"), result("add", "bool", "fallback"), result("mul", "bool", "raises")]
    worst = sweep.worst_by_operator(results)
    assert worst["add"]["outcome"] == "fallback" and worst["mul"]["outcome"] == "raises"


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [(["native"] * 20, 0), (["native"] * 19 + ["failed"], 1), (["native"] * 19 + ["fallback"], 1), (["aten"] * 3, 0)],
)
def test_status(outcomes, status):
    results = [result(f"op{index}", "float32", outcome) for index, outcome in enumerate(outcomes)]
    assert sweep.summarise(results, Console(quiet=True), 5) == status


WORKER = """
import json, os, sys, time
with open(sys.argv[1]) as file: items = json.load(file)
with open(sys.argv[2], "a", buffering=1) as record:
    for op, dtype in items:
        record.write(json.dumps({"op": op, "dtype": dtype, "begin": True}) + "\\n")
        if op == "hangs": time.sleep(600)
        if op == "dies": os.abort()
        record.write(json.dumps({"op": op, "dtype": dtype, "outcome": "native", "category": "view", "samples": {},
                                 "details": [], "seconds": 0.0}) + "\\n")
"""


def test_a_hanging_or_dying_process_costs_one_operator(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    started = sweep.subprocess.Popen

    def stand_in(command, **options):
        return started([sys.executable, str(script), *command[3:]], **options)

    monkeypatch.setattr(sweep.subprocess, "Popen", stand_in)
    items = [(name, "float32") for name in ("first", "hangs", "second", "dies", "third")]
    options = argparse.Namespace(jobs=1, samples="4", timeout=1.0, device="cpu", budget=None, gradients=None)
    found = {each["op"]: each for each in sweep.run(items, options, tmp_path, Console(quiet=True))}
    assert {name: each["outcome"] for name, each in found.items()} == {
        "first": "native",
        "hangs": "failed",
        "second": "native",
        "dies": "failed",
        "third": "native",
    }
    assert "no result within 1 s" in found["hangs"]["details"][0]
    assert "SIGABRT" in found["dies"]["details"][0]
    assert [path.name for path in tmp_path.iterdir()] == ["worker.py"]


LOSING_WORKER = """
import json, sys
with open(sys.argv[1]) as file: items = json.load(file)
with open(sys.argv[2], "a", buffering=1) as record:
    for op, dtype in items:
        record.write(json.dumps({"op": op, "dtype": dtype, "begin": True}) + "\\n")
        outcome = "failed" if op == "breaks" else "native"
        record.write(json.dumps({"op": op, "dtype": dtype, "outcome": outcome, "category": "view", "samples": {},
                                 "details": [], "seconds": 0.0}) + "\\n")
        if op == "breaks": sys.exit(75)
"""


def test_an_operator_that_breaks_the_device_is_blamed_alone(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(LOSING_WORKER)
    started = sweep.subprocess.Popen

    def stand_in(command, **options):
        return started([sys.executable, str(script), *command[3:]], **options)

    monkeypatch.setattr(sweep.subprocess, "Popen", stand_in)
    items = [(name, "float32") for name in ("first", "breaks", "second", "third")]
    options = argparse.Namespace(jobs=1, samples="1", timeout=5.0, device="cuda", budget=60.0, gradients=None)
    found = [(each["op"], each["outcome"]) for each in sweep.run(items, options, tmp_path, Console(quiet=True))]
    assert found == [("first", "native"), ("breaks", "failed"), ("second", "native"), ("third", "native")]


def test_what_a_gpu_is_checked_with():
    items = sweep.gpu_items(None, ["add", "bitwise_and", "sin"], False)
    assert items[0] == ("add", "float32") and ("add", "int64") in items and ("add", "bool") in items
    assert ("bitwise_and", "int64") in items and ("sin", "int64") not in items
    names = {name for name, _ in sweep.gpu_items(None, None, False)}
    assert {"mm", "softmax", "nn.functional.layer_norm", "transpose", "gather"} <= names
    assert "linalg.svd" not in names
