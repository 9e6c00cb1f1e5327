"""The on-disk cache: found again by a new process, and never an error."""

from __future__ import annotations

import os
import pickle
import warnings

import pytest
import torch

from lampwork.config import Settings
from lampwork.errors import LampworkWarning
from lampwork.ir.reference import code_digest
from lampwork.runtime import cache
from lampwork.runtime.entry import Entry
from lampwork.runtime.versions import versions
from tests.unit.runtime import handmade


def program(x):
    return torch.relu(x) + 1


def changed(x):
    return torch.relu(x) + 2


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_root", lambda: tmp_path / "v1")
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path / "v1"


def stored(**fields):
    digests = {f"{__name__}:program": code_digest(program.__code__)}
    fields = {"code_digests": digests, "versions": versions(), **fields}
    artifact = handmade.relu_plus_one()
    return type(artifact)(**{**vars(artifact), **fields})


def found(function=program, settings=Settings()):
    notes = []
    return list(cache.candidates(function, settings, notes.append)), notes


def test_what_was_stored_is_found():
    artifact = stored()
    assert cache.store(program, Settings(), artifact, print) is not None
    (again,), _ = found()
    for name in (
        "name",
        "guards",
        "inputs",
        "objects",
        "effects",
        "outcome",
        "host_source",
        "versions",
        "code_digests",
    ):
        assert getattr(again, name) == getattr(artifact, name)
    x = torch.randn(8)
    assert torch.equal(Entry(again, print).serve(program, (x,), {}), program(x))


def test_storing_twice_keeps_one_file(folder):
    cache.store(program, Settings(), stored(), print)
    cache.store(program, Settings(), stored(), print)
    assert len(list(folder.glob("*/*"))) == 1


def test_other_code_settings_or_versions_are_misses():
    cache.store(program, Settings(), stored(), print)
    assert found(changed)[0] == []
    assert found(settings=Settings(fullgraph=True))[0] == []
    cache.store(program, Settings(), stored(versions={**versions(), "torch": "0"}), print)
    assert len(found()[0]) == 1


def test_code_of_a_module_that_is_not_loaded_is_a_miss_that_says_why():
    digests = {f"{__name__}:program": code_digest(program.__code__), "no_such_module:callee": "0" * 24}
    cache.store(program, Settings(), stored(code_digests=digests), print)
    artifacts, notes = found()
    assert artifacts == [] and "no_such_module is not loaded" in notes[0]


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "header"])
def test_a_corrupt_file_is_a_warning(damage):
    path = cache.store(program, Settings(), stored(), print)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-10] ^= 1
    path.write_bytes({"flipped": data, "short": data[: len(data) // 2], "empty": b"", "header": b"x" + data}[damage])
    with pytest.warns(LampworkWarning, match="corrupt and was removed.*lampwork cache clear"):
        assert found()[0] == []
    assert not path.exists()  # the next process has nothing to warn of


def test_a_pickle_of_something_else_is_a_warning(folder):
    path = cache.store(program, Settings(), stored(), print)
    import hashlib

    body = pickle.dumps({"not": "an artifact"})
    path.write_bytes(cache._HEADER + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert found()[0] == []


def test_an_unwritable_directory_is_a_warning(folder):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file in the way")
    with pytest.warns(LampworkWarning, match="LAMPWORK_CACHE_DIR"):
        assert cache.store(program, Settings(), stored(), print) is None


def test_a_directory_that_others_may_write_to_is_not_read(folder):
    path = cache.store(program, Settings(), stored(), print)
    os.chmod(path.parent, 0o777)
    with pytest.warns(LampworkWarning, match="others may write"):
        assert found()[0] == []


def test_objects_without_a_name_are_not_stored():
    notes = []
    assert cache.store(program, Settings(), stored(portable=False), notes.append) is None
    assert "cannot find" in notes[0]


def test_least_recently_used_entries_go_first(folder, monkeypatch):
    first = cache.store(program, Settings(), stored(name="first"), print)
    os.utime(first, (1, 1))
    second = cache.store(program, Settings(), stored(name="second"), print)
    monkeypatch.setattr(cache, "LIMIT_BYTES", second.stat().st_size + 1)
    third = cache.store(program, Settings(), stored(name="third"), print)
    assert not first.exists() and third.exists()


def test_reading_nothing_warns_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        artifacts, notes = found()
    assert artifacts == [] and "nothing stored" in notes[0]
