"""Places that machines share: folders, and what fsspec reaches."""

from __future__ import annotations

import os
import stat
import threading
import time

import pytest

from lampwork.files import WRITING
from lampwork.runtime.cache import places


@pytest.fixture(params=["folder", "file", "memory", "whole by rename"])
def place(request, tmp_path):
    if request.param == "folder":
        return places.place_at(str(tmp_path / "place"))
    if request.param == "file":
        return places.place_at(f"file://{tmp_path}/with%20space")
    import fsspec

    system = fsspec.filesystem("memory" if request.param == "memory" else "file")
    root = f"/{os.urandom(4).hex()}" if request.param == "memory" else str(tmp_path / "remote")
    return places.Remote(system, root, whole=request.param == "memory")


def test_what_was_written_is_there_once(place):
    assert place.names("v1/key") == []
    place.write("v1/key", "one", b"old")
    place.write("v1/key", "one", b"new")
    place.write("v1/key", "two", b"2")
    assert sorted(place.names("v1/key")) == ["one", "two"]
    assert place.read("v1/key", "one", 10) == b"new"


@pytest.mark.parametrize("name", ["absent", "large"])
def test_what_cannot_be_read(place, name):
    place.write("v1/key", "large", b"x" * 11)
    with pytest.raises(FileNotFoundError if name == "absent" else OSError):
        place.read("v1/key", name, 10)


def test_newest_first(place):
    for name in ("b", "c", "a"):
        place.write("v1/key", name, b"")
        time.sleep(0.02)
    assert place.names("v1/key") == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("url", "kind"),
    [("/a/b", places.Folder), ("file:///a/b", places.Folder), ("memory://x", places.Remote)],
)
def test_what_a_url_names(url, kind):
    made = places.place_at(url)
    assert type(made) is kind and (kind is not places.Folder or made.root == "/a/b")
    assert (places.folder_at(url) is not None) == (kind is places.Folder)


@pytest.mark.parametrize(
    ("url", "told"), [("file://host/a", "three strokes"), ("nosuch://a", "nosuch|Protocol not known")]
)
def test_places_that_cannot_be_had(url, told):
    with pytest.raises(places.UnusablePlace, match=told):
        places.place_at(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://user:secret@host/folder?token=1", "ftp://host/folder"),
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("/a@b/c?d", "/a@b/c?d"),
    ],
)
def test_passwords_are_not_shown(url, shown):
    assert places.without_secrets(url) == shown


def test_new_folders_have_the_rights_of_the_place(tmp_path):
    """A team shares it: who writes second may write, too."""
    root = tmp_path / "place"
    root.mkdir()
    root.chmod(0o2775)
    places.Folder(str(root)).write("v1/key", "one", b"")
    assert stat.S_IMODE((root / "v1" / "key").stat().st_mode) == 0o2775


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_plain_file_is_not_read(tmp_path, kind):
    place = places.Folder(str(tmp_path))
    place.write("v1", "file", b"data")
    path = tmp_path / "v1" / "other"
    {"pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("file"), "folder": path.mkdir}[kind]()
    with pytest.raises(OSError):
        place.read("v1", "other", 10)


def test_what_a_killed_writer_left_is_no_entry_and_is_removed_a_day_later(tmp_path):
    place = places.Folder(str(tmp_path))
    place.write("v1", "file", b"data")
    old, new = (tmp_path / "v1" / f"{WRITING}{number}" for number in range(2))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, time.time() - 2 * places.ABANDONED_SECONDS))
    place.write("v1", "file", b"data")
    assert new.exists() and not old.exists()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    place = places.Folder(str(tmp_path))

    def fail(*names):
        raise OSError("full")

    monkeypatch.setattr(places.os, "rename", fail)
    with pytest.raises(OSError, match="full"):
        place.write("v1", "file", b"data")
    assert os.listdir(tmp_path / "v1") == []


def test_two_writers_of_one_name(tmp_path):
    """Readers see one of the two, whole."""
    place = places.Folder(str(tmp_path))
    contents = [bytes([number]) * 100_000 for number in range(2)]
    stop = threading.Event()

    def write(data):
        while not stop.is_set():
            place.write("v1", "file", data)

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    place.write("v1", "file", contents[0])
    for each in threads:
        each.start()
    try:
        assert all(place.read("v1", "file", 1 << 20) in contents for _ in range(300))
    finally:
        stop.set()
        for each in threads:
            each.join()


def test_the_caller_is_not_held_up():
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        places.within(0.05, lambda: time.sleep(2))
    assert time.monotonic() - start < 1

    def fail():
        raise KeyError("name")

    with pytest.raises(KeyError):
        places.within(1, fail)
