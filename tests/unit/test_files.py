"""Folders and files of the cache are opened without trusting a name: what others could have written is refused."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from lampwork.files import (
    WRITING,
    UnfitFile,
    UnsafeFile,
    plain_files,
    read_file,
    safe_folder,
    write_file,
)

OTHER_USER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def read(path, limit=100):
    with safe_folder(path.parent) as folder:
        return read_file(folder, path.name, limit)


def write(path, data):
    with safe_folder(path.parent, create=True) as folder:
        return write_file(folder, path.name, [data])


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    assert write(path, b"abc") == 3
    assert read(path) == b"abc"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["file"]


def test_a_missing_folder_or_file_is_told_from_an_unsafe_one(tmp_path):
    for path in (tmp_path / "no" / "file", tmp_path / "file"):
        with pytest.raises(FileNotFoundError):
            read(path)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path, mode):
    path = tmp_path / "folder" / "file"
    write(path, b"abc")
    path.parent.chmod(mode)
    with pytest.raises(UnsafeFile, match="others may write"):
        read(path)
    with pytest.raises(UnsafeFile, match="others may write"):
        write(path, b"def")


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_so_is_a_parent(tmp_path, mode):
    path = tmp_path / "parent" / "folder" / "file"
    write(path, b"abc")
    path.parent.parent.chmod(mode)
    with pytest.raises(UnsafeFile, match="others may write"):
        read(path)


def test_a_parent_may_be_sticky(tmp_path):
    path = tmp_path / "parent" / "folder" / "file"
    write(path, b"abc")
    path.parent.parent.chmod(0o1777)
    assert read(path) == b"abc"


@as_root
@pytest.mark.parametrize("part", ["file", "folder", "parent"])
def test_what_belongs_to_another_user_is_refused(tmp_path, part):
    path = tmp_path / "parent" / "folder" / "file"
    write(path, b"abc")
    os.chown({"file": path, "folder": path.parent, "parent": path.parent.parent}[part], OTHER_USER, -1)
    with pytest.raises(UnsafeFile, match="another user"):
        read(path)


@as_root
def test_links_are_followed_unless_another_user_made_them(tmp_path):
    path = tmp_path / "real" / "folder" / "file"
    write(path, b"abc")
    link = tmp_path / "link"
    link.symlink_to("../" + tmp_path.name + "/real")
    assert read(link / "folder" / "file") == b"abc"
    os.lchown(link, OTHER_USER, -1)
    with pytest.raises(UnsafeFile, match="another user"):
        read(link / "folder" / "file")


def test_links_to_themselves_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError):
        read(tmp_path / "a" / "file")


def test_a_folder_that_is_exchanged_after_the_check_is_not_read(tmp_path):
    """The name leads elsewhere by then; the descriptor does not."""
    path = tmp_path / "folder" / "file"
    write(path, b"mine")
    write(tmp_path / "other" / "file", b"theirs")
    with safe_folder(path.parent) as folder:
        path.parent.rename(tmp_path / "moved")
        (tmp_path / "folder").symlink_to("other")
        assert read_file(folder, "file", 100) == b"mine"
        write_file(folder, "new", [b"new"])
    assert (tmp_path / "moved" / "new").exists() and not (tmp_path / "other" / "new").exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "folder", "socket", "large"])
def test_what_is_no_file_of_ours_is_unfit_and_read_at_once(tmp_path, kind):
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path.symlink_to("/etc/passwd" if kind == "link" else "nowhere")
    with pytest.raises(UnfitFile):
        read(path)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "folder" / "file"
    write(path, b"abc")
    with pytest.raises(TypeError), safe_folder(path.parent) as folder:
        write_file(folder, "file", [b"d", None])
    assert os.listdir(path.parent) == ["file"] and path.read_bytes() == b"abc"
    with safe_folder(path.parent) as folder:
        assert [name for name, _ in plain_files(folder) if name.startswith(WRITING)] == []
