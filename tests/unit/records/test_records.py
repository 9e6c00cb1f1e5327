"""Records of what is compiled: what they hold, how two of them differ, and that a run can be made again."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

import pytest

from lampwork import cli
from lampwork.records.differences import changes, differences, times
from lampwork.records.record import read
from tests.processes import run_python

SCRIPT = """
import sys, torch, lampwork
def scaled(x):
    return torch.softmax(x * {factor}, -1) @ x.mT
compiled = lampwork.compile(scaled)
for rows in (8, 9):
    compiled(torch.randn(rows, 16))
def sorted_by_numpy(x):
    return (x * 2)[torch.from_numpy(x.numpy().argsort().copy())]
lampwork.compile(sorted_by_numpy)(torch.randn(5))
"""


_numbers = itertools.count()


def run(folder: Path, factor: int = 2, cache: str = "") -> Path:
    """A record of the script; with an empty cache if `cache` names none that was used before."""
    cache = cache or f"cache{next(_numbers)}"
    script = folder / "script.py"
    script.write_text(SCRIPT.format(factor=factor))
    environment = {
        **os.environ, "LAMPWORK_RECORD": str(folder / f"record-{factor}-{cache}"),
        "LAMPWORK_CACHE_DIR": str(folder / cache), "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    done = run_python([script], env=environment)
    assert done.returncode == 0, done.stderr
    return folder / f"record-{factor}-{cache}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


def test_a_run(folder, capsys):
    record = run(folder)
    (file,) = record.iterdir()
    events = read(record)
    assert events == read(file) and events[0]["command"][1:] == [str(folder / "script.py")]
    assert events[0]["versions"]["torch"]
    compiled = [each for each in events if each["event"] == "compiled"]
    assert len(compiled) == 4, "two sizes, a call that breaks and what follows"
    first = compiled[0]
    assert first["function"] == "scaled (script.py:3)" and first["settings"]["mode"] == "default"
    assert first["graph"]["guards"] > 0 and len(first["kernels"]) == first["graph"]["kernels"] == 1
    assert first["graph"]["aten_calls"] == {"aten::mm.default": 1}
    assert [each["id"] for each in first["refused"]] == ["fusion-aten-call"]
    assert first["seconds"]["all"] > 0 and "capture" in first["seconds"]
    assert first["digest"] != compiled[1]["digest"]
    (again,) = [each for each in events if each["event"] == "recompiled"]
    assert "[8, 16], is now [9, 16]" in again["reason"] and again["line"].endswith("script.py:3")
    assert cli.main(["record", "show", str(record)]) == 0
    assert "scaled (script.py:3)" in capsys.readouterr().out


def test_what_differs(folder, capsys):
    first, same, other = run(folder), run(folder), run(folder, factor=3)
    assert cli.main(["record", "diff", str(first), str(same)]) == 0
    assert capsys.readouterr().out.startswith("nothing differs")
    assert cli.main(["record", "diff", str(first), str(other)]) == 1
    told = capsys.readouterr().out
    assert "scaled (script.py:3), compile 1: digest" in told
    assert all(": took " in line for line in told.splitlines() if line.startswith("sorted_by_numpy"))


def test_a_warm_run_has_the_same_programs(folder):
    cold, warm = run(folder, cache="shared"), run(folder, cache="shared")
    assert cold == warm and len(list(cold.iterdir())) == 2
    first, second = (read(each) for each in sorted(cold.iterdir(), key=lambda each: each.stat().st_mtime))
    loaded = [each for each in second if each["event"] == "loaded"]
    assert loaded and {each["digest"] for each in loaded} <= {each.get("digest") for each in first}


def test_the_run_again(folder, capfd):
    record = run(folder)
    assert cli.main(["record", "rerun", str(record)]) == 0, capfd.readouterr().out
    assert "nothing differs" in capfd.readouterr().out


def test_messages(tmp_path, capsys):
    assert cli.main(["record", "show", str(tmp_path / "none")]) == 2
    (tmp_path / "empty").mkdir()
    assert cli.main(["record", "show", str(tmp_path / "empty")]) == 2
    assert "LAMPWORK_RECORD=" in capsys.readouterr().err
    (tmp_path / "other").write_text("[1, 2]\n")
    assert cli.main(["record", "show", str(tmp_path / "other")]) == 2
    assert "not a record" in capsys.readouterr().err


def test_a_record_that_was_cut_off(tmp_path):
    path = tmp_path / "cut.jsonl"
    path.write_text(json.dumps({"event": "run"}) + '\n{"event": "compi')
    assert read(path) == [{"event": "run"}]


def test_a_folder_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    environment = {**os.environ, "LAMPWORK_RECORD": str(blocked / "in"), "PYTHONPATH": os.pathsep.join(sys.path)}
    program = "import torch, lampwork; print(lampwork.compile(lambda x: x + 1)(torch.ones(2)).tolist())"
    done = run_python(["-c", program], env=environment)
    assert done.returncode == 0 and done.stdout == "[2.0, 2.0]\n", done.stderr


def test_changes():
    first = {"a": 1, "b": {"c": [1, 2]}, "d": 4}
    assert list(changes(first, first)) == []
    assert list(changes(first, {"a": 1, "b": {"c": [2, 3]}})) == [("b.c", [1], [3]), ("d", 4, None)]


def test_order_of_runs_and_times():
    def events(digest, seconds, *more):
        return [{"event": "run", "command": ["x"]},
                {"event": "compiled", "function": "f", "digest": digest, "seconds": {"all": seconds}}, *more]  # fmt: skip

    assert differences(events("1", 1.0), events("1", 9.0)) == []
    assert times(events("1", 1.0), events("1", 9.0)) == ["f, compile 1: took 1.00 s, then 9.00 s"]
    assert differences(events("1", 1.0), events("2", 1.0)) == ["f, compile 1: digest: 1, then 2"]
    fell = {"event": "fell back", "function": "f", "reason": "it broke"}
    assert differences(events("1", 1.0), events("1", 1.0, fell)) == ["f fell back only in the second: it broke"]
