"""The shared cache: entries of other machines, taken where their signature is right or the user trusts everybody."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from contextlib import contextmanager

import pytest
import torch

from lampwork.config import Settings, environment, use_cache_dir
from lampwork.errors import LampworkWarning
from lampwork.runtime.cache import entries, shared
from lampwork.runtime.cache.versions import versions
from tests.unit.runtime import handmade

KEY, OTHER_KEY = b"0123456789abcdef" * 2, b"fedcba9876543210" * 2


def program(x):
    return torch.relu(x) + 1


def other(x):
    return torch.relu(x) + 2


class Machine:
    """A cache folder of its own, and settings for the place that all share."""

    def __init__(self, tmp_path, monkeypatch, name, **settings):
        self.folder, self.monkeypatch = tmp_path / name, monkeypatch
        self.settings = dataclasses.replace(environment, cache_url=str(tmp_path / "place"), **settings)
        self.notes, self.counts = [], []

    @contextmanager
    def on(self):
        """A new process there."""
        self.notes.clear()
        self.counts.clear()
        with use_cache_dir(str(self.folder)), self.monkeypatch.context() as patch:
            patch.setattr(shared, "environment", self.settings)
            for module in (entries, shared):
                patch.setattr(module, "cache_url", lambda: self.settings.cache_url)
            for name in ("_asked", "_given_up", "_warned"):
                patch.setattr(shared, name, set())
            patch.setattr(entries, "_warned", set())
            shared._place.cache_clear()
            yield

    def store(self, function=program, size=8):
        with self.on():
            artifact = handmade.relu_plus_one(size)
            artifact = type(artifact)(**{**vars(artifact), "versions": versions()})
            return entries.store(function, Settings(), artifact, self.notes.append, self.counts.append)

    def find(self, function=program):
        with self.on():
            return self.ask(function)

    def ask(self, function=program):
        stored = entries.StoredEntries(function, Settings(), self.notes.append)
        return [*stored.newest(), *stored.fetched(self.counts.append)]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    for name, key in (("key", KEY), ("other", OTHER_KEY)):
        (tmp_path / f"{name}_file").write_bytes(key + b"\n")

    def make(name, key="", **settings):
        path = str(tmp_path / f"{key}_file") if key else ""
        return Machine(tmp_path, monkeypatch, name, cache_key_file=path, **settings)

    return make


def files(place):
    return sorted(path for path in (place / "v1").rglob("*") if path.is_file())


CASES = {
    "signed": ("key", "key", False, True),
    "another key": ("other", "key", False, False),
    "not signed": ("", "key", False, False),
    "not signed, trusted": ("", "", True, True),
    "another key, trusted": ("other", "key", True, True),
    "signed, trusted without a key": ("key", "", True, True),
}


@pytest.mark.parametrize(("writer", "reader", "trust", "taken"), CASES.values(), ids=CASES)
def test_whose_entries_are_taken(machine, writer, reader, trust, taken):
    assert machine("a", writer).store() is not None
    b = machine("b", reader, cache_trust=trust)
    found = b.find()
    assert len(found) == taken and b.counts == (["fetched"] if taken else ["refused"])
    assert any(("fetched" if taken else "refused: not signed with the key") in note for note in b.notes)
    if taken:  # it is in the local folder now, as if stored there
        b.settings = dataclasses.replace(b.settings, cache_url="")
        assert len(b.find()) == 1 and b.counts == []


def test_without_a_key_or_trust_nothing_is_read_and_one_warning_says_so(machine, tmp_path):
    machine("a").store()
    b = machine("b")
    with b.on():
        with pytest.warns(LampworkWarning, match="LAMPWORK_CACHE_KEY_FILE.*LAMPWORK_CACHE_TRUST=1"):
            assert b.ask() == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert b.ask(other) == []
    assert "neither a key nor" in b.notes[1]


def test_the_place_is_asked_once_for_a_key(machine, monkeypatch):
    machine("a", "key").store(other)
    b, asked = machine("b", "key"), []
    names = shared.Folder.names
    monkeypatch.setattr(shared.Folder, "names", lambda self, path: [asked.append(path), names(self, path)][1])
    with b.on():
        assert b.ask() == [] and b.ask() == [] and len(b.ask(other)) == 1 and len(b.ask(other)) == 1
    assert len([path for path in asked if path.startswith("v1/")]) == 2


def test_entries_that_are_there_are_not_fetched_again(machine):
    a, b = machine("a", "key"), machine("b", "key")
    a.store(size=8)
    assert len(b.find()) == 1
    a.store(size=9)
    assert len(b.find()) == 2 and b.counts == ["fetched"]


@pytest.mark.parametrize("damage", ["half", "flipped", "empty", "moved", "renamed", "resealed", "junk", "pipe", "link"])
def test_bent_files_are_refused_and_cost_no_call(machine, tmp_path, damage):
    a, b = machine("a", "key"), machine("b", "key")
    a.store()
    (path,) = files(tmp_path / "place")
    data = path.read_bytes()
    flipped = data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]
    if damage in ("half", "flipped", "empty", "junk"):
        path.write_bytes({"half": data[: len(data) // 2], "flipped": flipped, "empty": b"", "junk": b"x" * 999}[damage])
    elif damage == "moved":  # a right signature, for another function
        facts = entries.facts_of(other, Settings())
        folder = path.parent.with_name(entries.key_of_facts(facts))
        path.parent.rename(folder)
    elif damage == "renamed":
        path.rename(path.with_name("0" * 32 + path.name[32:]))
    elif damage == "resealed":  # by who has no key
        key = path.parent.name
        path.write_bytes(shared.sealed(key, data.partition(b"\n")[2], OTHER_KEY))
    elif damage in ("pipe", "link"):
        path.unlink()
        os.mkfifo(path) if damage == "pipe" else path.symlink_to("/etc/passwd")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert b.find(other if damage == "moved" else program) == []
    assert len(caught) == (damage in ("pipe", "link"))
    assert not list((b.folder / "v1").rglob("*.entry"))
    assert any("refused" in note or "failed" in note for note in b.notes)


@pytest.mark.parametrize("name", ["../../escaped.entry", "..", "x.entry", "0" * 32, "0" * 32 + "-xyz.entry"])
def test_names_that_are_none_of_ours_are_not_looked_at(name):
    assert shared._wanted([name], KEY, set()) == ([], 0)


@pytest.mark.parametrize(
    ("contents", "mode", "told"),
    [(None, 0o600, "No such file"), (b"short", 0o600, "can be guessed"), (KEY, 0o666, "everybody may write")],
)
def test_a_key_that_cannot_be_used_is_one_warning_and_nothing_is_read_or_written(
    machine, tmp_path, contents, mode, told
):
    machine("a", "key").store()
    b = machine("b", "own")
    if contents is not None:
        (tmp_path / "own_file").write_bytes(contents)
        (tmp_path / "own_file").chmod(mode)
    before = files(tmp_path / "place")
    with pytest.warns(LampworkWarning, match=told) as caught:
        assert b.find() == []
    assert len(caught) == 1
    with pytest.warns(LampworkWarning, match=told):
        assert b.store(other) is not None
    assert files(tmp_path / "place") == before


def test_a_place_that_fails_is_one_warning_and_is_given_up(machine, tmp_path):
    (tmp_path / "place").write_text("no folder")
    b = machine("b", "key")
    with b.on():
        with pytest.warns(LampworkWarning, match="cannot be read.*LAMPWORK_CACHE_URL") as caught:
            assert b.ask() == [] and b.ask(other) == []
        assert len(caught) == 1
    with pytest.warns(LampworkWarning, match="cannot be written") as caught:
        assert b.store() is not None
    assert len(caught) == 1 and any("not sent" in note for note in b.notes)


def test_a_place_that_does_not_answer(machine, monkeypatch):
    machine("a", "key").store()
    b = machine("b", "key", cache_timeout=0.1)
    monkeypatch.setattr(shared.Folder, "names", lambda self, path: time.sleep(1.5))
    start = time.monotonic()
    with b.on():
        with pytest.warns(LampworkWarning, match=r"no answer within 0\.1 s.*LAMPWORK_CACHE_TIMEOUT"):
            assert b.ask() == [] and b.ask(other) == []
    assert time.monotonic() - start < 1


def test_writers_with_and_without_a_key_do_not_replace_each_other(machine, tmp_path):
    machine("a", "key").store()
    machine("b").store()
    machine("c", "other").store()
    assert len(files(tmp_path / "place")) == 3
    assert len(machine("d", "key").find()) == len(machine("e", "other").find()) == 1
    f = machine("f", cache_trust=True)
    assert len(f.find()) == 1 and f.counts == ["fetched"]


def test_what_fsspec_reaches(machine):
    url = f"memory://{os.urandom(4).hex()}"
    a, b = machine("a", "key"), machine("b", "key")
    for each in (a, b):
        each.settings = dataclasses.replace(each.settings, cache_url=url)
    a.store()
    assert a.counts == ["stored", "sent"] and len(b.find()) == 1


def test_a_protocol_that_is_not_known_is_one_warning(machine):
    b = machine("b", "key")
    b.settings = dataclasses.replace(b.settings, cache_url="nosuch://bucket")
    with pytest.warns(LampworkWarning, match="nosuch") as caught:
        assert b.find() == []
    assert len(caught) == 1


def test_the_fact_that_missed_in_the_place_is_told(machine, monkeypatch):
    machine("a", "key").store()
    changed = {**versions(), "torch": "9.9"}
    monkeypatch.setattr(entries, "versions", lambda: changed)
    b = machine("b", "key")
    assert b.find() == []
    assert b.notes[1].endswith(f"what is stored differs in PyTorch ({torch.__version__} there, 9.9 here)")


def test_a_local_folder_that_cannot_be_written_sends_all_the_same(machine, tmp_path):
    a = machine("a", "key")
    a.folder.mkdir()
    (a.folder / "v1").write_text("no folder")
    with pytest.warns(LampworkWarning):
        assert a.store() is None
    assert a.counts == ["sent"] and len(machine("b", "key").find()) == 1


def test_of_many_entries_those_are_looked_through_that_the_time_allows(machine, monkeypatch):
    a = machine("a", "key")
    for size in range(2, 22):
        a.store(size=size)
    b = machine("b", "key")
    with b.on():
        stored = entries.StoredEntries(program, Settings(), b.notes.append)
        assert list(stored.newest()) == []
        assert len(list(stored.fetched(b.counts.append))) == entries.ENTRIES_READ
        assert len(list(stored.fitting(lambda guards: True))) == 20 - entries.ENTRIES_READ
    c, read = machine("c", "key"), shared.Folder.read
    c.settings = dataclasses.replace(c.settings, cache_timeout=1.0)
    monkeypatch.setattr(shared.Folder, "read", lambda *args: [time.sleep(0.2), read(*args)][1])
    assert 2 <= len(c.find()) <= 4


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("right", ""),
        ("no key", "LAMPWORK_CACHE_KEY_FILE, or LAMPWORK_CACHE_TRUST=1"),
        ("lost key", "FileNotFoundError"),
        ("no folder", "NotADirectoryError"),
        ("no protocol", "UnusablePlace"),
    ],
)
def test_what_keeps_it_from_being_of_use(machine, tmp_path, kind, told):
    a = machine("a", {"no key": "", "lost key": "lost"}.get(kind, "key"))
    if kind == "no folder":
        (tmp_path / "place").write_text("")
    if kind == "no protocol":
        a.settings = dataclasses.replace(a.settings, cache_url="nosuch://x")
    with a.on():
        assert told in shared.check() and bool(told) == bool(shared.check())
