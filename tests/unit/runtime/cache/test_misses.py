"""Which fact of a key missed."""

from __future__ import annotations

import os

import pytest
import torch

from lampwork.config import Settings, make_settings, use_cache_dir
from lampwork.runtime.cache import entries, misses
from lampwork.runtime.cache.versions import versions
from tests.unit.runtime import handmade

HERE = {"callable": "function m f", "code": "abc", "mode": "'default'", "torch": "2.13", "features": "avx avx2"}

TOLD = {
    "nothing": ({}, ""),
    "torch": ({"torch": "2.12"}, "PyTorch (2.12 there, 2.13 here)"),
    "code": ({"code": "def"}, "its code"),
    "CPU": ({"features": "avx amx_bf16"}, "the features of the CPU (amx_bf16 there alone, avx2 here alone)"),
    "setting": ({"mode": "'auto'"}, "the mode ('auto' there, 'default' here)"),
    "replaced there": ({"patched torch.relu": "1"}, "torch.relu (replaced there)"),
    "one more": ({"poison": "1"}, "LAMPWORK_POISON (1 there, none here)"),
    "two": ({"code": "def", "torch": "2.12"}, "its code and PyTorch (2.12 there, 2.13 here)"),
    "hostile": ({"torch": "\x1b[2J" + "x" * 500}, "PyTorch (?[2J" + "x" * 76 + "... there, 2.13 here)"),
}


@pytest.mark.parametrize(("changes", "told"), TOLD.values(), ids=TOLD)
def test_differences_in_words(changes, told):
    there = {**HERE, **changes}
    assert misses.in_words(HERE, [there]) == (f"what is stored differs in {told}" if told else "")


def test_the_nearest_counts_and_of_as_near_ones_the_newest():
    far, newer, older = ({**HERE, "code": "x", "torch": "1"}, {**HERE, "torch": "2"}, {**HERE, "torch": "3"})
    assert "(2 there" in misses.in_words(HERE, [far, newer, older])


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"callable": 1}', b"{" * 100_000, b"\xff"])
def test_what_holds_no_facts(data):
    assert misses.from_bytes(data) is None


def program(x):
    return torch.relu(x) + 1


def store(settings=Settings()):
    artifact = handmade.relu_plus_one()
    artifact = type(artifact)(**{**vars(artifact), "versions": versions()})
    return entries.store(program, settings, artifact, print)


def note(settings=Settings(), function=program):
    notes = []
    assert list(entries.candidates(function, settings, notes.append)) == []
    return notes[0]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with use_cache_dir(str(tmp_path)):
        yield tmp_path


def test_a_miss_names_the_fact(monkeypatch):
    assert note() == "miss: nothing stored for this code, these settings and versions"
    store()
    assert note(make_settings(fullgraph=True)).endswith("differs in fullgraph (False there, True here)")
    assert note(make_settings(options={"freeze": True})).endswith("differs in option freeze (False there, True here)")
    with monkeypatch.context() as patch:
        patch.setattr(entries, "versions", lambda: {**versions(), "python": "3.99"})
        assert "differs in Python (" in note()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "relu", lambda x: x)
        assert note().endswith("differs in torch.relu (replaced here)")
    program.__code__, code = (lambda x: torch.relu(x) + 2).__code__, program.__code__
    try:
        assert note().endswith("differs in its code")
    finally:
        program.__code__ = code


def test_facts_whose_entries_are_gone_are_not_told():
    store().unlink()
    assert "differs" not in note(make_settings(fullgraph=True))


def test_facts_that_somebody_else_could_have_written_are_not_read(folder):
    store()
    (path,) = (folder / "facts").glob("*/*")
    path.chmod(0o666)
    assert "differs" not in note(make_settings(fullgraph=True))


def test_facts_are_bounded(folder):
    facts = entries.facts_of(program, Settings())
    for number in range(misses.LIMIT_FILES + 10):
        misses.write_facts(folder, f"{number:032x}", facts)
    left = os.listdir(folder / "facts" / misses.name_of(facts))
    assert len(left) == misses.LIMIT_FILES and f"{misses.LIMIT_FILES + 9:032x}.json" in left


def test_a_folder_that_cannot_be_written_costs_nothing(folder):
    (folder / "facts").write_text("no folder")
    assert store() is not None and "differs" not in note(make_settings(fullgraph=True))
