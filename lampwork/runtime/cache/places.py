"""Places that machines share: a folder, or what `fsspec` reaches. Bytes by name in folders, and nothing about entries.

    path = "v1/KEY"        folders are named like this below the place

Readers never see half of a file in a folder, nor where objects appear whole (s3, gs and their like). Elsewhere a file
is written under another name and renamed; who reads checks what was read in any case.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from lampwork.files import WRITING

#: What a killed process left is removed after a day: the clocks of machines differ.
ABANDONED_SECONDS = 86400.0
#: Protocols of fsspec under which an object is there as a whole or not at all.
WHOLE_OBJECTS = frozenset("s3 s3a gs gcs abfs abfss az adl oss memory".split())
#: Where fsspec says when a file was written, by file system.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class UnusablePlace(OSError):
    """The place cannot be had at all. The text says what to change."""


class Place(Protocol):
    """Files in folders. Every method raises OSError, or whatever else the file system raises."""

    def names(self, path: str) -> list[str]:
        """The files in a folder, the newest first where that is known; none where the folder is missing."""

    def read(self, path: str, name: str, limit_bytes: int) -> bytes:
        """What the file holds. Raises OSError for one that is larger."""

    def write(self, path: str, name: str, data: bytes) -> None:
        """Writes a file. One that is there already is replaced."""


def place_at(url: str) -> Place:
    """The place that `LAMPWORK_CACHE_URL` names. Raises `UnusablePlace` where nothing can reach it."""
    folder = folder_at(url)
    if folder is not None:
        return folder
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UnusablePlace("it needs fsspec: pip install fsspec, or name a folder") from error
    try:
        system, root = url_to_fs(url)
    except (ImportError, ValueError) as error:  # a protocol that is not known, or whose library is not installed
        raise UnusablePlace(f"{error}") from error
    protocols = (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)
    return Remote(system, root, not WHOLE_OBJECTS.isdisjoint(protocols))


def without_secrets(url: str) -> str:
    """`url` as it may be shown: some have a password in them."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def folder_at(url: str) -> Folder | None:
    """The place, where it is a folder. Raises `UnusablePlace` for one on another host."""
    if "://" not in url:
        return Folder(url)
    parts = urlsplit(url)
    if parts.scheme not in ("file", "local"):
        return None
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise UnusablePlace("it names a folder on another host: write file:///folder, with three strokes")
    return Folder(unquote(parts.path))


class Folder:
    """A folder that several machines or users see, as on NFS. New folders in it may be written by whoever may write to
    the folder itself."""

    def __init__(self, root: str) -> None:
        self.root = root

    def names(self, path: str) -> list[str]:
        found = []
        try:
            with os.scandir(os.path.join(self.root, path)) as entries:
                for each in entries:
                    with suppress(FileNotFoundError):  # removed meanwhile
                        found.append((each.stat(follow_symlinks=False).st_mtime_ns, each.name))
        except FileNotFoundError:
            return []
        return [name for _, name in sorted(found, reverse=True)]

    def read(self, path: str, name: str, limit_bytes: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(os.path.join(self.root, path, name), flags)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{name} is no plain file")
            if status.st_size > limit_bytes:
                raise OSError(f"{name} holds {status.st_size} bytes")
            return file.read(status.st_size)

    def write(self, path: str, name: str, data: bytes) -> None:
        folder = self.folder(path)
        temporary = os.path.join(folder, f"{WRITING}{os.getpid()}-{os.urandom(8).hex()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            with open(descriptor, "wb") as file:
                file.write(data)
            os.rename(temporary, os.path.join(folder, name))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        self._sweep(folder)

    def folder(self, path: str) -> str:
        """The folder `path` in this one, made where it is missing, with the rights of this one."""
        if not os.path.isdir(self.root):
            os.makedirs(self.root, exist_ok=True)
        current = self.root
        for part in path.split("/"):
            rights = stat.S_IMODE(os.stat(current).st_mode)
            current = os.path.join(current, part)
            with suppress(FileExistsError):
                os.mkdir(current)
                with suppress(OSError):
                    os.chmod(current, rights)
        return current

    def _sweep(self, folder: str) -> None:
        with suppress(OSError), os.scandir(folder) as entries:
            for each in entries:
                if each.name.startswith(WRITING):
                    age = time.time() - each.stat(follow_symlinks=False).st_mtime
                    if age > ABANDONED_SECONDS:
                        os.unlink(each.path)


class Remote:
    """What fsspec reaches. `whole`: objects are there as a whole or not at all."""

    def __init__(self, system: Any, root: str, whole: bool) -> None:
        self.system = system
        self.root = root.rstrip("/")
        self.whole = whole

    def names(self, path: str) -> list[str]:
        self.system.invalidate_cache()  # other machines write, too
        try:
            found = self.system.ls(f"{self.root}/{path}", detail=True)
        except FileNotFoundError:
            return []
        files = [each for each in found if each.get("type") != "directory"]
        times = [next((f"{each[name]}" for name in _TIMES if each.get(name)), "") for each in files]
        order = sorted(zip(times, (each["name"].rpartition("/")[2] for each in files), strict=True), reverse=True)
        return [name for _, name in order]

    def read(self, path: str, name: str, limit_bytes: int) -> bytes:
        where = f"{self.root}/{path}/{name}"
        size = self.system.info(where).get("size")
        if type(size) is int and size > limit_bytes:
            raise OSError(f"{name} holds {size} bytes")
        data = self.system.cat_file(where) if type(size) is int else self._head(where, limit_bytes + 1)
        if len(data) > limit_bytes:
            raise OSError(f"{name} holds more than {limit_bytes} bytes")
        return bytes(data)

    def _head(self, where: str, size_bytes: int) -> bytes:
        with self.system.open(where, "rb") as file:
            return bytes(file.read(size_bytes))

    def write(self, path: str, name: str, data: bytes) -> None:
        folder = f"{self.root}/{path}"
        if self.whole:  # where there are no folders
            self.system.pipe_file(f"{folder}/{name}", data)
            return
        self.system.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/{WRITING}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            self.system.pipe_file(temporary, data)
            self.system.mv(temporary, f"{folder}/{name}")
        except BaseException:
            with suppress(Exception):
                self.system.rm_file(temporary)
            raise


def within(seconds: float, work: Callable[[], None]) -> None:
    """`work()`, in a thread of its own: a server that does not answer holds the caller up for no more than `seconds`.

    Raises what `work` raises, and TimeoutError; what has not ended by then goes on, unheard.
    """
    import threading

    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="lampwork-shared-cache", daemon=True).start()
    if not done.wait(seconds):
        raise TimeoutError(f"no answer within {seconds:g} s")
    if failed:
        raise failed[0]
