"""The small commands: explain's targets, cache, doctor, version."""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys

import pytest
import torch

import lampwork
from lampwork import cli
from lampwork.benchmark import bench, cases, zoo
from lampwork.commands import cache as cache_command
from lampwork.commands import doctor, explain

SCRIPT = """
import torch
SCALE = 3
def double(x, scale=2): return x * scale
def factory(): return double, (torch.ones(2),), {"scale": 5}
def nothing(): return torch.zeros(1)
class Holder:
    inner = staticmethod(double)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "explained_script.py"
    path.write_text(SCRIPT)
    yield path
    sys.modules.pop("explained_script", None)


def call(found):
    function, args, kwargs = found
    return function(*args, **kwargs).tolist()


def test_targets_of_a_script(script):
    assert call(explain.find(f"{script}::double", "torch.ones(1), scale=SCALE")) == [3.0]
    assert call(explain.find(f"{script}::Holder.inner", "torch.ones(1)")) == [2.0]
    assert call(explain.find(f"{script}::factory", None)) == [5.0, 5.0]
    assert call(explain.find(f"{script}::nothing", None)) == [0.0]


@pytest.mark.parametrize(
    ("target", "arguments", "told"),
    [
        ("::absent", None, "has no function 'absent'"),
        ("::double", None, "--args"),
        ("::double", "1 +", "SyntaxError"),
        ("::double", "unknown_name", "NameError"),
    ],
)
def test_targets_that_cannot_be_called(script, capsys, target, arguments, told):
    given = [] if arguments is None else ["--args", arguments]
    assert cli.main(["explain", f"{script}{target}", *given]) == 2
    assert told in capsys.readouterr().err


def test_explain_prints_what_matters_and_one_section_when_asked(script, capsys):
    assert cli.main(["explain", f"{script}::factory"]) == 0
    printed = capsys.readouterr().out
    assert "== summary" in printed and "== guards" in printed and "== llvm" not in printed
    assert cli.main(["explain", f"{script}::factory", "--stage", "kernels"]) == 0
    assert capsys.readouterr().out.startswith("# launched 1 times")
    assert cli.main(["explain", f"{script}::factory", "--stage", "all"]) == 0
    assert "== llvm" in capsys.readouterr().out
    assert cli.main(["explain", f"{script}::factory", "--stage", "no_such"]) == 2
    assert "no section 'no_such'" in capsys.readouterr().err


def test_explain_calls_first_and_writes_a_page_and_facts(script, tmp_path, capsys):
    page, facts = tmp_path / "page.html", tmp_path / "facts.json"
    script.write_text(SCRIPT + "def broken(x): return x if x.sum() > 0 else -x\n")
    arguments = ["--args", "torch.ones(2)", "--calls", "3", "--html", str(page), "--json", str(facts)]
    assert cli.main(["explain", f"{script}::broken", *arguments]) == 0
    told = capsys.readouterr().out
    assert "1 break" in told and str(page) in told and str(facts) in told
    (found,) = [each for each in json.loads(facts.read_text())["issues"] if each["kind"] == "break"]
    assert found["id"] == "data-dependent" and found["count"] == 3 and found["each_ms"] > 0
    assert page.read_text().startswith("<!doctype html>") and "data-dependent" in page.read_text()


def test_a_script_that_cannot_be_imported(capsys, tmp_path):
    script = tmp_path / "broken_script.py"
    script.write_text("raise KeyError('nothing here')")
    assert cli.main(["explain", f"{script}::f"]) == 2
    assert "cannot be imported: KeyError: 'nothing here'" in capsys.readouterr().err
    script.write_text("import torch\nclass Model(torch.nn.Module): pass\ndef f(): pass")
    assert cli.main(["explain", str(script)]) == 2
    assert "name a function of it" in capsys.readouterr().err
    assert cli.main(["explain", f"{script}::Model"]) == 2
    assert "Model is a class" in capsys.readouterr().err
    assert cli.main(["explain", f"{script}::f", "--html", str(tmp_path / "nowhere" / "page.html")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nosuchmodel", "bert 1x129", "no_such_module:factory"])
@pytest.mark.parametrize("more", [[], ["--task", "train"], ["--mode", "default", "reduce-overhead"]])
def test_a_benchmark_of_nothing_ends_at_once(name, more, capsys, monkeypatch):
    """Before anything is measured, which takes a while."""
    monkeypatch.setattr(bench.subprocess, "Popen", None)
    assert cli.main(["bench", "mlp", name, *more]) == 2
    assert name.partition(":")[0] in capsys.readouterr().err


def test_names_of_models():
    assert cases.MODELS == tuple(zoo.ZOO)
    assert cases.why_unknown("bert 1x128") and not cases.why_unknown("bert 1x128", with_cases=True)
    assert not cases.why_unknown("json:anything")


def test_missing_script_and_model(capsys):
    assert cli.main(["explain", "nowhere.py::f"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert cli.main(["explain", "nosuchmodel"]) == 2
    assert "the zoo has mlp" in capsys.readouterr().err


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    settings = dataclasses.replace(cache_command.environment, cache_dir=str(folder), cache=True)
    monkeypatch.setattr(cache_command, "environment", settings)
    monkeypatch.setattr(doctor, "environment", settings)
    return folder


def test_cache_show_and_clear(cache, capsys, tmp_path):
    assert cli.main(["cache"]) == 0
    assert "0 files" in capsys.readouterr().out
    (cache / "v1" / "key").mkdir(parents=True)
    (cache / "v1" / "key" / "one.entry").write_bytes(b"x" * 2**20)
    (cache / "reproducers").mkdir()
    (cache / "reproducers" / "repro.py").write_text("")
    (cache / "letters").mkdir()  # somebody pointed the variable at a folder of theirs
    (cache / "letters" / "one").write_text("kept")
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (cache / "v1" / "link").symlink_to(outside)
    assert cli.main(["cache", "show"]) == 0
    assert "2 files, 1.0 MiB" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert "removed 2 files" in capsys.readouterr().out
    assert not (cache / "v1" / "key").exists() and not (cache / "reproducers").exists()
    assert outside.read_text() == (cache / "letters" / "one").read_text() == "kept"
    assert cli.main(["cache", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(cache)


def test_doctor_names_the_page_of_what_ran_eagerly(monkeypatch):
    compiling = lampwork.compile

    def inside_a_transform(function, options):
        """Calls made inside a function transform run eagerly."""
        compiled = compiling(function, options=options)
        call = torch.vmap(compiled)
        call.__lampwork__ = compiled.__lampwork__
        return call

    monkeypatch.setattr(lampwork, "compile", inside_a_transform)
    finding = doctor._compiled_on("cpu")
    assert finding.level == "problem" and "[modes-active]" in finding.found
    assert finding.remedy == "see docs/diagnostics/modes-active.md"


def test_doctor_tells_of_variables_that_nothing_reads(monkeypatch):
    for name in [name for name in os.environ if name.startswith("LAMPWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAMPWORK_STRICT", "1")
    assert doctor.check_environment() == []
    monkeypatch.setenv("LAMPWORK_STRCT", "1")
    (finding,) = doctor.check_environment()
    assert finding.level == "note" and "LAMPWORK_STRCT" in finding.found and "LAMPWORK_STRICT" in finding.remedy


def test_doctor_names_remedies(cache, monkeypatch):
    assert doctor.check_cache()[0].level == "ok"
    blocked = cache.parent / "file"
    blocked.write_text("")
    settings = dataclasses.replace(doctor.environment, cache_dir=str(blocked / "cache"))
    monkeypatch.setattr(doctor, "environment", settings)
    (finding,) = doctor.check_cache()
    assert finding.level == "problem" and "LAMPWORK_CACHE_DIR" in finding.remedy
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    assert doctor.check_torch()[0].level == "problem"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10**6)
    assert "OMP_NUM_THREADS" in doctor.check_threads()[0].remedy


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    import lampwork

    assert capsys.readouterr().out.strip() == f"lampwork {lampwork.__version__}"


def test_the_package_runs_as_a_module(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["lampwork", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("lampwork", run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("lampwork ")
