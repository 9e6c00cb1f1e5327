"""What is read from the environment."""

from __future__ import annotations

import os

import pytest

from lampwork.codegen.target import host_target
from lampwork.config import VARIABLES, _read_environment
from lampwork.errors import LampworkWarning


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_defaults(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found = _read_environment()
    assert (found.strict, found.verify, found.cache) == (False, False, True)
    assert found.cache_dir == os.path.expanduser("~/.cache/lampwork") and 1 <= found.compile_workers <= 12


@pytest.mark.parametrize(("text", "meant"), [("1", True), ("on", True), ("0", False), ("False", False), ("off", False)])
def test_switches(text, meant, monkeypatch):
    for name in ("LAMPWORK_STRICT", "LAMPWORK_VERIFY", "LAMPWORK_CACHE"):
        monkeypatch.setenv(name, text)
    found = _read_environment()
    assert (found.strict, found.verify, found.cache) == (meant, meant, meant)


@pytest.mark.parametrize("name", ["LAMPWORK_STRICT", "LAMPWORK_CACHE", "LAMPWORK_COMPILE_WORKERS"])
def test_what_is_not_understood_is_told_and_left_out(name, monkeypatch):
    usual = _read_environment()
    monkeypatch.setenv(name, "-2")
    with pytest.warns(LampworkWarning, match=f"{name}='-2' is not used: set it to"):
        assert _read_environment() == usual


def test_the_cache_folder_is_the_one_that_was_meant(monkeypatch, tmp_path):
    """A home folder is found without a shell, and the folder stays when the program goes elsewhere."""
    monkeypatch.setenv("LAMPWORK_CACHE_DIR", "~/kept")
    assert _read_environment().cache_dir == os.path.expanduser("~/kept")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMPWORK_CACHE_DIR", "kept")
    assert _read_environment().cache_dir == str(tmp_path / "kept")


def test_the_largest_instruction_set(monkeypatch):
    monkeypatch.setenv("LAMPWORK_MAX_ISA", "AVX2")
    assert _read_environment().max_isa == "avx2"
    monkeypatch.setattr("lampwork.codegen.target.environment", _read_environment())
    assert host_target().name in ("avx2", "sse4")
    monkeypatch.setenv("LAMPWORK_MAX_ISA", "avx1024")
    with pytest.warns(LampworkWarning, match="sse4, avx2, avx512"):
        assert _read_environment().max_isa == "avx512"
