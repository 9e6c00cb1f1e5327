"""Files that nobody but this user can have written: folders and files of the on-disk cache are opened here alone.

A cached file holds machine code, so whoever writes it runs code as the user who reads it. Names are therefore never
checked and then used: a path is walked from the root by descriptors (`openat`, `O_NOFOLLOW`), and each folder and file
is judged by `fstat` of the very descriptor that is used afterwards. Exchanging a folder between the check and the use
changes nothing.

A folder is safe if it belongs to this user, to root or to the owner of `/`, and nobody else may write to it. On the way
to the last one, a folder that everybody may write to is accepted when it is sticky (`/tmp`): others cannot replace what
is in it. Symbolic links are followed by reading them where they are found, in a folder that was judged already.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: Symbolic links on the way to a folder; as many as the kernel follows.
_LINKS = 40
#: Files that are being written begin like this. One that a killed process left is removed after an hour.
WRITING = ".writing-"
ABANDONED_SECONDS = 3600.0


class UnsafeFile(OSError):
    """A folder or file that others could have written, or that is no plain file. The text says which and why."""


class UnfitFile(UnsafeFile):
    """Something in a safe folder that is no file of ours: a pipe, a link, a folder, a file that is too large."""


@contextmanager
def safe_folder(path: str | os.PathLike[str], create: bool = False) -> Iterator[int]:
    """A descriptor of the folder at the absolute `path`, which only this user may write to, and of which all parents
    are safe. `create`: missing folders are made, for this user alone.

    Raises FileNotFoundError where it is missing, `UnsafeFile`, and other kinds of OSError.
    """
    descriptor = _walk(os.fspath(path), create)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def folder_in(parent: int, name: str) -> Iterator[int]:
    """A descriptor of the folder `name` in `parent`, a descriptor of a safe folder. Raises as `safe_folder` does."""
    descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    try:
        _judge_folder(os.fstat(descriptor), name, last=True)
        yield descriptor
    finally:
        os.close(descriptor)


def _walk(path: str, create: bool) -> int:
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    current = os.open("/", _FOLDER_FLAGS)
    walked, links = "", 0
    try:
        _judge_folder(os.fstat(current), "/", last=not pending)
        while pending:
            part = pending.pop()
            where = f"{walked}/{part}"
            try:
                following = _open_folder(part, current, create)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                    raise
                target = _link(part, current, where)
                links += 1
                if target is None or links > _LINKS:
                    raise
                pending += [each for each in reversed(target.split("/")) if each not in ("", ".")]
                if target.startswith("/"):
                    os.close(current)
                    current, walked = os.open("/", _FOLDER_FLAGS), ""
                continue
            os.close(current)
            current, walked = following, where
            _judge_folder(os.fstat(current), where, last=not pending)
        return current
    except BaseException:
        os.close(current)
        raise


def _open_folder(name: str, parent: int, create: bool) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:  # another process was faster
        pass
    return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _link(name: str, parent: int, where: str) -> str | None:
    """Where the symbolic link leads; None if it is none. In a sticky folder anybody can have made it."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid not in _trusted():
        raise UnsafeFile(errno.EPERM, "the link belongs to another user", where)
    return os.readlink(name, dir_fd=parent)


def _judge_folder(status: os.stat_result, where: str, last: bool) -> None:
    if status.st_uid not in _trusted():
        raise UnsafeFile(errno.EPERM, "the folder belongs to another user", where)
    if status.st_mode & _OTHERS_WRITE and (last or not status.st_mode & stat.S_ISVTX):
        raise UnsafeFile(errno.EPERM, "others may write to the folder", where)


def _trusted() -> tuple[int, ...]:
    """Users who can change everything anyway. In a container root may have another number: the owner of `/` has it."""
    return os.geteuid(), 0, os.stat("/").st_uid


def read_file(folder: int, name: str, limit_bytes: int) -> bytes:
    """The contents of the file `name` in `folder`. Never waits, as reading a pipe would.

    Raises `UnfitFile` for what is no plain file or holds more than `limit_bytes`, `UnsafeFile` for one that others can
    have written, and other kinds of OSError.
    """
    try:
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EMLINK, errno.ENODEV):  # a link; a socket or device
            raise UnfitFile(error.errno, "it is no plain file", name) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitFile(errno.EINVAL, "it is no plain file", name)
        if status.st_uid not in _trusted() or status.st_mode & _OTHERS_WRITE:
            raise UnsafeFile(errno.EPERM, "the file belongs to another user or others may write to it", name)
        if status.st_size > limit_bytes:
            raise UnfitFile(errno.EFBIG, f"it holds {status.st_size} bytes", name)
        data = bytearray()
        while len(data) < status.st_size:  # what is appended meanwhile is not read
            part = os.read(descriptor, status.st_size - len(data))
            if not part:
                break
            data += part
        return bytes(data)
    finally:
        os.close(descriptor)


def write_file(folder: int, name: str, parts: Iterable[bytes]) -> int:
    """Writes the file `name` in `folder` in one piece: readers see all of it or nothing. Returns its size.

    Raises OSError, and leaves nothing then.
    """
    temporary = f"{WRITING}{os.getpid()}-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    size = 0
    try:
        try:
            for part in parts:
                left = memoryview(part)
                while left:
                    written = os.write(descriptor, left)
                    size += written
                    left = left[written:]
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        remove(folder, temporary)
        raise
    return size


def touch(folder: int, name: str) -> None:
    """Notes that the file was used now: those that were not used for longest are removed first."""
    try:
        os.utime(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        pass


def remove(folder: int, name: str) -> bool:
    """Whether the file, pipe or link `name` could be removed."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def plain_files(folder: int) -> list[tuple[str, os.stat_result]]:
    """Name and status of everything in `folder` that is no folder, whatever it is."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                found.append((entry.name, status))
    return found
