"""Corrupt and hostile folders of the on-disk cache: the result is right, at most one warning comes, nothing hangs."""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import torch

import lampwork
from tests.faults.cases import Skipped, case
from tests.faults.support import check, compiled, counted_warnings, make


def _cache() -> Path:
    return Path(os.environ["LAMPWORK_CACHE_DIR"])


def _remove() -> None:
    if _cache().is_dir() and not _cache().is_symlink():
        shutil.rmtree(_cache())
    else:
        _cache().unlink(missing_ok=True)


def _files() -> list[Path]:
    return sorted(each for each in _cache().rglob("*") if each.is_file() and not each.is_symlink())


def _store(number: int) -> None:
    """Another process's work: an entry in the cache, and none in this process."""
    check(compiled(make(number), stored=True), make(number))
    assert _files(), "nothing was stored"


def _loads(number: int, most: int = 1) -> None:
    """A function that is new to this process is right, whatever it finds on disk, and so is the one after it."""
    with counted_warnings(most):
        made = compiled(make(number), stored=True)
        check(made, make(number))
        check(made, make(number), torch.randn(3, 4))


def _each_file(spoil: Callable[[Path], None], most: int = 1) -> None:
    """Spoils every file of the cache, one after the other, and loads after each."""
    _store(0)
    count = len(_files())
    for index in range(count):
        shutil.rmtree(_cache(), ignore_errors=True)
        _store(index)
        files = _files()
        spoil(files[min(index, len(files) - 1)])
        _loads(index, most)


@case(seconds=120, times=2)
def truncated(seed: int) -> None:
    """Files end too early, at many places; one is empty."""
    _store(0)
    files = [(each, each.read_bytes()) for each in _files()]
    for path, whole in files:
        for length in [0, 1, 16, len(whole) - 1, *(random.randrange(len(whole)) for _ in range(12))]:
            path.write_bytes(whole[:length])
            _loads(0)
            path.write_bytes(whole)


@case(seconds=150, quick=True, times=3)
def flipped_bits(seed: int) -> None:
    """A bit or a stretch of a file is another one, at many places."""
    _store(0)
    files = [(each, each.read_bytes()) for each in _files()]
    for path, whole in files:
        for _ in range(40):
            spoiled = bytearray(whole)
            place = random.randrange(len(spoiled))
            if random.random() < 0.7:
                spoiled[place] ^= 1 << random.randrange(8)
            else:
                spoiled[place : place + 64] = os.urandom(64)
            path.write_bytes(bytes(spoiled))
            _loads(0)
            path.write_bytes(whole)


@case(seconds=90, quick=True)
def no_plain_files(seed: int) -> None:
    """A pipe, a folder, a link to nowhere, a loop of links, a device and a socket stand where an entry was."""
    import socket

    def pipe(path: Path) -> None:
        os.mkfifo(path)

    def loop(path: Path) -> None:
        path.symlink_to(path.name)

    def bound(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            here = os.getcwd()
            os.chdir(path.parent)  # the names of sockets are short
            made.bind(path.name[:90])
            os.chdir(here)

    kinds: list[Callable[[Path], None]] = [
        pipe, Path.mkdir, lambda path: path.symlink_to("nowhere"), loop, lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/dev/stdin"), bound,
    ]  # fmt: skip
    for kind in kinds:

        def spoil(path: Path, kind: Callable[[Path], None] = kind) -> None:
            path.unlink()
            kind(path)

        _each_file(spoil)


@case(seconds=90)
def a_huge_sparse_file(seed: int) -> None:
    """An entry says that it has a terabyte."""

    def spoil(path: Path) -> None:
        try:
            os.truncate(path, 1 << 40)
        except OSError:
            os.truncate(path, 1 << 34)

    _each_file(spoil)


def _as_folder(setup: Callable[[Path], None], most: int = 1) -> None:
    """The cache's folder is something else, from the beginning and after something was stored."""
    for stored in (False, True):
        _remove()
        if stored:
            _store(1)
            lampwork.reset()
        else:
            _cache().mkdir(parents=True, exist_ok=True)
        setup(_cache())
        try:
            _loads(1, most)
            _loads(2, most)
        finally:
            if _cache().is_dir() and not _cache().is_symlink():
                os.chmod(_cache(), 0o700)


@case(seconds=90)
def folders_of_other_modes(seed: int) -> None:
    """The folder is writable for everyone, unreadable, or read-only."""
    for mode in (0o777, 0o000, 0o555, 0o1777):
        _as_folder(lambda path, mode=mode: path.chmod(mode))


@case(seconds=90)
def no_folder_at_all(seed: int) -> None:
    """The cache's place is a file, a pipe, a link to nowhere, a loop, or below a file."""

    def replaced(make_it: Callable[[Path], None]) -> Callable[[Path], None]:
        def setup(path: Path) -> None:
            shutil.rmtree(path)
            make_it(path)

        return setup

    for kind in (
        Path.touch,
        os.mkfifo,
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("/proc/self"),
        lambda path: path.symlink_to("/dev/null"),
    ):
        _as_folder(replaced(kind))
    _remove()


@case(seconds=60)
def somebody_elses_folder(seed: int) -> None:
    """The folder, or a file in it, belongs to another user."""
    if os.getuid() != 0:
        raise Skipped("only root can give files away")
    _as_folder(lambda path: os.chown(path, 12345, 12345))
    _each_file(lambda path: os.chown(path, 12345, 12345))
    _each_file(lambda path: path.chmod(0o666))
    _each_file(lambda path: path.chmod(0o000))


@case(seconds=120, times=2)
def deleted_and_swapped_meanwhile(seed: int) -> None:
    """Another program deletes the folder, or puts another one in its place, again and again."""
    _store(0)
    stopped = threading.Event()
    aside = _cache().with_name("aside")

    def disturb() -> None:
        while not stopped.wait(0.002):
            try:
                if random.random() < 0.5:
                    shutil.rmtree(_cache(), ignore_errors=True)
                elif aside.exists():
                    os.rename(aside, _cache())
                else:
                    os.rename(_cache(), aside)
                    if random.random() < 0.5:
                        _cache().symlink_to(aside)
            except OSError:
                pass

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for number in range(60):
            _loads(number % 7, most=2)
    finally:
        stopped.set()
        thread.join()


@case(seconds=120)
def odd_umasks_and_folders(seed: int) -> None:
    """With any umask files are this user's alone; the current folder is changed, and removed."""
    for mask in (0o000, 0o022, 0o077, 0o777):
        shutil.rmtree(_cache(), ignore_errors=True)
        os.umask(mask)
        with counted_warnings():
            check(compiled(make(3), stored=True), make(3))
        os.umask(0o022)
        for path in _files():
            assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
    gone = _cache().parent / "gone"
    gone.mkdir()
    os.chdir(gone)
    _loads(4)
    gone.rmdir()
    _loads(5)
    _loads(4)
    os.chdir("/")
    _loads(5)
