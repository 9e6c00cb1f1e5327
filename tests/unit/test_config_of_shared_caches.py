"""What is read from the environment about caches that are shared, and about processes that start at once."""

from __future__ import annotations

import dataclasses

import pytest

from lampwork import config
from lampwork.config import CACHE_TIMEOUT, RANKS_WAIT, VARIABLES, _read_environment
from lampwork.errors import LampworkWarning


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (*VARIABLES, "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_defaults():
    found = _read_environment()
    assert (found.cache_url, found.cache_key_file, found.cache_trust) == ("", "", False)
    assert (found.cache_timeout, found.cache_wait) == (CACHE_TIMEOUT, 0.0)


@pytest.mark.parametrize("url", ["s3://bucket/folder", "memory://x", "file:///a b"])
def test_urls_are_as_they_were_given(url, monkeypatch):
    monkeypatch.setenv("LAMPWORK_CACHE_URL", url)
    assert _read_environment().cache_url == url


def test_folders_stay_where_the_program_goes_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMPWORK_CACHE_URL", "place")
    monkeypatch.setenv("LAMPWORK_CACHE_KEY_FILE", "key")
    found = _read_environment()
    assert (found.cache_url, found.cache_key_file) == (str(tmp_path / "place"), str(tmp_path / "key"))


@pytest.mark.parametrize(
    ("variables", "wait"),
    [
        ({"RANK": "0", "WORLD_SIZE": "4"}, RANKS_WAIT),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "4"}, RANKS_WAIT),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 0),
        ({"RANK": "0"}, 0),
        ({"WORLD_SIZE": "4"}, 0),
        ({"RANK": "0", "WORLD_SIZE": "4", "LAMPWORK_CACHE_WAIT": "0"}, 0),
        ({"LAMPWORK_CACHE_WAIT": "2.5"}, 2.5),
    ],
)
def test_ranks_wait_for_each_other(variables, wait, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _read_environment().cache_wait == wait


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_seconds_that_are_none_are_told_and_left_out(text, monkeypatch):
    monkeypatch.setenv("LAMPWORK_CACHE_TIMEOUT", text)
    with pytest.warns(LampworkWarning, match="set it to a number of seconds"):
        assert _read_environment().cache_timeout == CACHE_TIMEOUT


def test_a_cold_compile_has_no_shared_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "environment", dataclasses.replace(config.environment, cache_url="s3://bucket"))
    assert config.cache_url() == "s3://bucket"
    with config.use_cache_dir(str(tmp_path)):
        assert config.cache_url() == ""
    assert config.cache_url() == "s3://bucket"
