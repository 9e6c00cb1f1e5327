"""The on-disk cache: found again by a new process, and never an error."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import random
import sys
import warnings

import pytest
import torch

from lampwork.config import Settings
from lampwork.errors import LampworkWarning
from lampwork.files import WRITING
from lampwork.ir.reference import code_digest
from lampwork.runtime.cache import entries
from lampwork.runtime.cache.codec import encode
from lampwork.runtime.cache.versions import versions
from lampwork.runtime.entry import Entry
from tests.unit.runtime import handmade


def program(x):
    return torch.relu(x) + 1


def changed(x):
    return torch.relu(x) + 2


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "_root", lambda: tmp_path / "v1")
    monkeypatch.setattr(entries, "_warned", set())
    return tmp_path / "v1"


def stored(**fields):
    digests = {f"{__name__}:program": code_digest(program.__code__)}
    fields = {"code_digests": digests, "versions": versions(), **fields}
    artifact = handmade.relu_plus_one()
    return type(artifact)(**{**vars(artifact), **fields})


def found(function=program, settings=Settings()):
    notes = []
    return list(entries.candidates(function, settings, notes.append)), notes


def test_what_was_stored_is_found():
    artifact = stored()
    assert entries.store(program, Settings(), artifact, print) is not None
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
    entries.store(program, Settings(), stored(), print)
    entries.store(program, Settings(), stored(), print)
    assert len(list(folder.glob("*/*"))) == 1


def test_other_code_settings_or_versions_are_misses():
    entries.store(program, Settings(), stored(), print)
    assert found(changed)[0] == []
    assert found(settings=Settings(fullgraph=True))[0] == []
    entries.store(program, Settings(), stored(versions={**versions(), "torch": "0"}), print)
    assert len(found()[0]) == 1


def test_code_of_a_module_that_is_not_loaded_is_a_miss_that_says_why(monkeypatch):
    digests = {f"{__name__}:program": code_digest(program.__code__), "no_such_module:callee": "0" * 24}
    with monkeypatch.context() as before:
        before.setitem(sys.modules, "no_such_module", sys)
        entries.store(program, Settings(), stored(code_digests=digests), print)
    artifacts, notes = found()
    assert artifacts == [] and "no_such_module is not loaded" in notes[0]


def test_functions_made_from_text_may_name_a_module_that_never_was():
    entries.store(program, Settings(), stored(code_digests={"None:made": "0" * 24}), print)
    assert len(found()[0]) == 1


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "header"])
def test_a_corrupt_file_is_a_warning(damage):
    path = entries.store(program, Settings(), stored(), print)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-10] ^= 1
    path.write_bytes({"flipped": data, "short": data[: len(data) // 2], "empty": b"", "header": b"x" + data}[damage])
    with pytest.warns(LampworkWarning, match="corrupt and was removed.*lampwork cache clear"):
        assert found()[0] == []
    assert not path.exists()  # the next process has nothing to warn of


def with_header(body):
    return entries._header(hashlib.sha256(body).hexdigest()) + body


def test_a_pickle_is_not_loaded(tmp_path):
    """The checksum is right, and the data is a pickle that would make a file."""

    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "made"), "w")

    path = entries.store(program, Settings(), stored(), print)
    path.write_bytes(with_header(pickle.dumps(Bomb())))
    with pytest.warns(LampworkWarning, match="cannot be loaded"):
        assert found()[0] == []
    assert not (tmp_path / "made").exists() and not path.exists()


def test_data_of_another_type_is_a_warning():
    path = entries.store(program, Settings(), stored(), print)
    path.write_bytes(with_header(encode((versions(), {}, ()), Settings.__name__)))
    with pytest.warns(LampworkWarning, match="holds no entry|begin as an entry"):
        assert found()[0] == []


def test_damage_anywhere_is_one_warning_at_most():
    path = entries.store(program, Settings(), stored(), print)
    data = path.read_bytes()
    chosen = random.Random(1)
    for offset in (*range(len(data) if len(data) < 200 else 200), *chosen.sample(range(len(data)), 100)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << chosen.randrange(8)
        for each in (damaged, data[:offset]):
            path.write_bytes(each)
            entries._warned.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert found()[0] == []
            assert len(caught) <= 1
    entries._warned.clear()
    path.write_bytes(data)
    assert len(found()[0]) == 1


@pytest.mark.parametrize("kind", ["pipe", "dangling", "link", "folder", "huge", "foreign", "writable"])
def test_what_is_no_entry_is_one_warning_and_the_others_are_read(kind, folder):
    path = entries.store(program, Settings(), stored(), print)
    for number in range(2):
        other = path.with_name(f"{number}.entry")
        if kind == "pipe":
            os.mkfifo(other)
        elif kind == "folder":
            other.mkdir()
        elif kind in ("dangling", "link"):
            other.symlink_to("nowhere" if kind == "dangling" else path.name)
        elif kind == "huge":
            with other.open("wb") as file:
                file.truncate(1 << 40)
        else:
            other.write_bytes(path.read_bytes())
            if kind == "writable":
                other.chmod(0o666)
            elif os.geteuid() != 0:
                pytest.skip("only root gives files away")
            else:
                os.chown(other, 54321, -1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(found()[0]) == 1
        assert len(found()[0]) == 1
    assert len(caught) == (kind != "folder") and all(each.category is LampworkWarning for each in caught)


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_parent_that_others_may_write_to_is_refused(folder, mode):
    entries.store(program, Settings(), stored(), print)
    os.chmod(folder.parent, mode)
    with pytest.warns(LampworkWarning, match="others may write"):
        assert found()[0] == []
        assert entries.store(program, Settings(), stored(name="other"), print) is None


def test_a_full_disk_is_one_warning_and_leaves_nothing(folder, monkeypatch):
    def write(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("first", "second"):
            assert entries.store(program, Settings(), stored(name=name), print) is None
    assert len(caught) == 1 and "No space left" in str(caught[0].message)
    assert list(folder.glob("*/*")) == []


def test_what_killed_processes_left_is_removed(folder):
    path = entries.store(program, Settings(), stored(), print)
    left, new = path.with_name(f"{WRITING}1-a"), path.with_name(f"{WRITING}2-b")
    left.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(left, (1, 1))
    entries._unaccounted = None
    entries.store(program, Settings(), stored(), print)
    assert not left.exists() and new.exists() and path.exists()


def test_an_unwritable_directory_is_a_warning(folder):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file in the way")
    with pytest.warns(LampworkWarning, match="LAMPWORK_CACHE_DIR"):
        assert entries.store(program, Settings(), stored(), print) is None


def test_a_directory_that_others_may_write_to_is_not_read(folder):
    path = entries.store(program, Settings(), stored(), print)
    os.chmod(path.parent, 0o777)
    with pytest.warns(LampworkWarning, match="others may write"):
        assert found()[0] == []


def test_objects_without_a_name_are_not_stored():
    notes = []
    assert entries.store(program, Settings(), stored(portable=False), notes.append) is None
    assert "cannot find" in notes[0]


def test_least_recently_used_entries_go_first(folder, monkeypatch):
    first = entries.store(program, Settings(), stored(name="first"), print)
    os.utime(first, (1, 1))
    second = entries.store(program, Settings(), stored(name="second"), print)
    monkeypatch.setattr(entries, "LIMIT_BYTES", second.stat().st_size + 1)
    third = entries.store(program, Settings(), stored(name="third"), print)
    assert not first.exists() and third.exists()


def test_reading_nothing_warns_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        artifacts, notes = found()
    assert artifacts == [] and "nothing stored" in notes[0]
