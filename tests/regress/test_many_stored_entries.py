"""Of more than sixteen entries stored for one key only the newest were found again."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.config import environment
from lampwork.runtime.cache import entries


def scaled(by: str):
    return lambda x: (x * len(by)).relu() + len(by)


def found(by: str) -> tuple[int, int]:
    """(captures, hits) of a new function that finds what is stored."""
    compiled = lampwork.compile(scaled(by))
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), scaled(by)(x))
    counted = lampwork.stats(compiled)
    return counted["captures"], counted["cache_hits"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name, value in (("cache_dir", str(tmp_path)), ("cache", True)):
        monkeypatch.setitem(environment.__dict__, name, value)


def test_each_of_many_entries_is_found(monkeypatch):
    monkeypatch.setattr(entries, "ENTRIES_READ", 4)
    assert [found("a" * by) for by in range(2, 12)] == [(1, 0)] * 10
    assert [found("a" * by) for by in range(2, 12)] == [(0, 1)] * 10


def test_later_calls_find_theirs_too(monkeypatch):
    monkeypatch.setattr(entries, "ENTRIES_READ", 2)

    def program(x, by):
        return (x * len(by)).relu()

    x, texts = torch.ones(2), ["a", "bc", "def", "", "ghi", "j"]
    for by in texts:
        lampwork.compile(program)(x, by)
    compiled = lampwork.compile(program)
    for by in texts:
        torch.testing.assert_close(compiled(x, by), program(x, by))
    counted = lampwork.stats(compiled)
    assert counted["captures"] == 0 and counted["cache_hits"] == 6
