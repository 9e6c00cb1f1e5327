"""The command `lampwork warmup`, and what `lampwork cache` does beside showing and clearing."""

from __future__ import annotations

import dataclasses
import json
import sys
import time

import pytest
import torch

from lampwork import cli
from lampwork.commands import cache as cache_command
from lampwork.commands import warmup as warmup_command
from lampwork.config import use_cache_dir

SOURCE = """
import torch, lampwork
def plain(x, y=1.0): return torch.relu(x) * y
def factory(): return plain, (torch.ones(3),)
def breaks(x): return x + 1 if x.sum() > 0 else x - 1
fast = lampwork.compile(plain, fullgraph=True)
"""
KEY = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "commanded.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    settings = dataclasses.replace(cache_command.environment, cache_dir=str(tmp_path / "cache"), cache_key_file="")
    for module in (cache_command, warmup_command):
        monkeypatch.setattr(module, "environment", settings)
    with use_cache_dir(str(tmp_path / "cache")):
        yield tmp_path
    sys.modules.pop("commanded", None)


def run(capsys, *arguments):
    status = cli.main(list(arguments))
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_step_of_a_build(folder, capsys):
    status, out, _ = run(
        capsys, "warmup", "commanded:plain", "--shapes", "float32[4]", "--shapes", "float32[2,3] y=2.0"
    )
    assert status == 0 and "float32[2,3] y=2.0" in out and out.count("compiled") == 2
    status, out, _ = run(capsys, "warmup", "commanded:factory", "--json", "-")
    assert status == 0 and json.loads(out)["calls"][0]["call"] == "float32[3]"
    status, out, _ = run(capsys, "warmup", f"{folder}/commanded.py::plain", "--shapes", "float32[4]")
    assert status == 0 and "loaded" in out


def test_what_would_run_eagerly_fails_the_build(folder, capsys):
    status, out, _ = run(capsys, "warmup", "commanded:breaks", "--shapes", "float32[4]", "--option", "cache=False")
    assert status == 1 and "breaks" in out
    status, out, _ = run(capsys, "warmup", "commanded:plain", "--shapes", "float32[4]", "--option", "cache=False")
    assert status == 1 and "no" in out.split()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["commanded:plain"], "give inputs"),
        (["commanded:plain", "--shapes", "floaty[3]"], "no type 'floaty'"),
        (["commanded:absent", "--shapes", "float32[3]"], "no 'absent'"),
        (["no_such_module:x", "--shapes", "float32[3]"], "no_such_module"),
        (["commanded:fast", "--shapes", "float32[3]", "--mode", "auto"], "compiled already"),
        (["commanded:plain", "--shapes", "float32[3]", "--option", "nosuch=1"], "unknown option 'nosuch'"),
        (["commanded:plain", "--shapes", "float32[3]", "--jobs", "0"], "jobs"),
    ],
)
def test_what_cannot_be_warmed_up(folder, capsys, arguments, told):
    status, _, err = run(capsys, "warmup", *arguments)
    assert status == 2 and told in err


def test_nothing_is_kept_where_the_cache_is_off(folder, capsys, monkeypatch):
    settings = dataclasses.replace(warmup_command.environment, cache=False)
    monkeypatch.setattr(warmup_command, "environment", settings)
    status, _, err = run(capsys, "warmup", "commanded:factory")
    assert status == 2 and "LAMPWORK_CACHE=0" in err


def test_a_pack_goes_from_one_cache_to_another(folder, capsys, monkeypatch):
    with torch.no_grad():
        assert run(capsys, "warmup", "commanded:factory")[0] == 0
    key, pack = folder / "key", str(folder / "pack")
    key.write_text(KEY)
    status, out, _ = run(capsys, "cache", "export", pack, "--key-file", str(key), "--since", "1h")
    assert status == 0 and "1 entries" in out and out.rstrip().endswith(", signed")
    there = folder / "there"
    settings = dataclasses.replace(cache_command.environment, cache_dir=str(there))
    monkeypatch.setattr(cache_command, "environment", settings)
    status, _, err = run(capsys, "cache", "import", pack)
    assert status == 1 and "--key-file" in err and not there.exists()
    status, out, _ = run(capsys, "cache", "import", pack, "--key-file", str(key))
    assert status == 0 and "1 entries are new, 0 were there" in out
    status, out, _ = run(capsys, "cache", "import", pack, "--trust")
    assert status == 0 and "0 entries are new, 1 were there" in out
    with use_cache_dir(str(there)):
        assert "loaded" in run(capsys, "warmup", "commanded:factory")[1]
    assert run(capsys, "cache", "clear")[0] == 0 and not [path for path in there.rglob("*") if path.is_file()]


def test_packs_and_keys_that_are_none(folder, capsys):
    (folder / "junk").write_text("x")
    assert run(capsys, "cache", "import", str(folder / "nowhere"), "--trust")[0] == 1
    status, _, err = run(capsys, "cache", "import", str(folder / "junk"), "--trust")
    assert status == 1 and "is no pack" in err
    status, _, err = run(capsys, "cache", "export", str(folder / "pack"), "--key-file", str(folder / "junk"))
    assert status == 2 and "can be guessed" in err and not (folder / "pack").exists()
    with pytest.raises(SystemExit):
        cli.main(["cache", "import", "pack", "--trust", "--key-file", "x"])


def test_why_something_is_not_there(folder, capsys, monkeypatch):
    status, out, _ = run(capsys, "cache", "why", "commanded:plain")
    assert status == 1 and "nothing was ever stored" in out
    assert run(capsys, "warmup", "commanded:plain", "--shapes", "float32[4]")[0] == 0
    status, out, _ = run(capsys, "cache", "why", "commanded:plain")
    assert status == 0 and "there are entries" in out
    status, out, _ = run(capsys, "cache", "why", "commanded:fast")
    assert status == 1 and "differs in fullgraph (False there, True here)" in out
    assert run(capsys, "cache", "why", "commanded:absent")[0] == 2


@pytest.mark.parametrize(("text", "age"), [("90s", 90), ("2h", 7200), ("1.5d", 129600), ("5m", 300)])
def test_ages(text, age):
    assert cache_command._since(text) == pytest.approx(time.time() - age, abs=5)


def test_dates():
    assert cache_command._since("2026-05-01T12:00") < cache_command._since("2026-05-02")
    with pytest.raises(SystemExit):
        cli.main(["cache", "export", "x", "--since", "yesterday"])
