"""The file: a sealed header of JSON, then sections of bytes, each with its checksum in the header.

    line       lampwork-file 1 HEADER_BYTES HEADER_SHA256 SIGNATURE, in ASCII; 64 hexadecimal digits, or "-" for none
    header     {"manifest": {...}, "sections": [[name, size_bytes, sha256], ...]}
    sections   one after the other, in that order, to the end of the file

The line vouches for the header, the header for every section: a bit that is not as it was written is noticed before
anything is made of it. A signature is over the header (see `lampwork/signatures.py`), so it covers the whole file.
Nothing here looks into a section.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Any

from lampwork.errors import ArtifactError
from lampwork.ir.record import record
from lampwork.signatures import is_signed, signature

VERSION = 1
#: The largest header that is read.
LIMIT_HEADER_BYTES = 256 << 20
_LINE = re.compile(rb"lampwork-file ([0-9]{1,9}) ([0-9]{1,12}) ([0-9a-f]{64}) ([0-9a-f]{64}|-)\n")
_LINE_BYTES = 256
_MAKE_AGAIN = "Make the file again."

#: Bytes, in pieces that lie wherever they are.
Pieces = Sequence[bytes | memoryview]


@record
class Section:
    """Where a section lies in its file, and its checksum."""

    name: str
    start: int
    size: int
    digest: str


def write(path: str, manifest: dict[str, Any], sections: Iterable[tuple[str, Pieces]], key: bytes | None) -> int:
    """Writes the file in one piece: there is all of it at `path`, or what was there before. Returns its size.

    Raises OSError where it cannot be written.
    """
    table: list[tuple[str, int, str]] = []
    pieces: list[bytes | memoryview] = []
    for name, parts in sections:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        table.append((name, sum(memoryview(part).nbytes for part in parts), digest.hexdigest()))
        pieces.extend(parts)
    header = json.dumps({"manifest": manifest, "sections": table}, separators=(",", ":"), sort_keys=True).encode()
    signed = signature(key, header) if key is not None else "-"
    line = f"lampwork-file {VERSION} {len(header)} {hashlib.sha256(header).hexdigest()} {signed}\n"
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{os.getpid()}-{os.urandom(4).hex()}")
    size = 0
    try:
        with open(temporary, "xb") as file:
            for part in (line.encode(), header, *pieces):
                size += file.write(part)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return size


class File:
    """An open file, whose header was verified. `manifest`: what the header says, JSON of any shape.

    Raises `ArtifactError` for what is no such file, for one that was changed, and, where a `key` is given, for one that
    was not signed with it; OSError where it cannot be read.
    """

    def __init__(self, path: str, key: bytes | None = None) -> None:
        self.path = path
        # A pipe must not keep the process waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        self._file = os.fdopen(descriptor, "rb")
        try:
            self._open(key)
        except BaseException:
            self._file.close()
            raise

    def _open(self, key: bytes | None) -> None:
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise self.error("is no plain file", "Give the path of one that lampwork.save or lampwork.package made.")
        found = _LINE.match(self._file.read(_LINE_BYTES))
        if found is None:
            raise self.error(
                "is no file of Lampwork's, or its beginning was changed",
                "Give the path of one that lampwork.save or lampwork.package made.",
            )
        version, size, digest, signed = found.groups()
        if int(version) != VERSION:
            raise self.error(
                f"has format {int(version)}, and this Lampwork reads format {VERSION}", "Make it again with this one."
            )
        if int(size) > min(LIMIT_HEADER_BYTES, status.st_size - found.end()):
            raise self.error("is not complete", _MAKE_AGAIN)
        self._file.seek(found.end())
        header = self._file.read(int(size))
        if hashlib.sha256(header).hexdigest() != digest.decode():
            raise self.error("was changed after it was written: its header has another checksum", _MAKE_AGAIN)
        self._check_signature(header, signed.decode(), key)
        try:
            read = json.loads(header)
            self.manifest = read["manifest"]
            table = [(str(name), _natural(bytes_), str(sha)) for name, bytes_, sha in read["sections"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self.error(f"has a header that cannot be read ({type(error).__name__})", _MAKE_AGAIN) from None
        start = found.end() + int(size)
        self.sections: dict[str, Section] = {}
        for name, length, sha in table:
            self.sections[name] = Section(name, start, length, sha)
            start += length
        if len(self.sections) != len(table) or start != status.st_size:
            raise self.error(f"holds {status.st_size} bytes where {start} were written", _MAKE_AGAIN)

    def _check_signature(self, header: bytes, signed: str, key: bytes | None) -> None:
        if key is None:
            return
        if signed == "-":
            raise self.error(
                "is not signed, and a key was given", "Have it made with key=..., or trust it and give none."
            )
        if not is_signed(key, header, signed):
            raise self.error("was signed with another key, or changed since", "Do not use it; ask whoever made it.")

    def error(self, what: str, remedy: str) -> ArtifactError:
        return ArtifactError(f"{self.path} {what}. {remedy}")

    def read(self, name: str) -> bytes:
        """The bytes of a section. Raises `ArtifactError` where there is none, or they are not as they were written."""
        section = self.stream(name)
        data = section.read(section.left)
        section.finish()
        return data

    def stream(self, name: str) -> Stream:
        """A section to be read bit by bit. Raises `ArtifactError` where there is none."""
        section = self.sections.get(name)
        if section is None:
            raise self.error(f"has no section {name!r}", _MAKE_AGAIN)
        return Stream(self, section)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Stream:
    """A section from its beginning to its end. What was read counts when `finish` has returned, not before."""

    def __init__(self, file: File, section: Section) -> None:
        self.left = section.size
        self._owner, self._section = file, section
        self._file = file._file
        self._file.seek(section.start)
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Exactly so many bytes. Raises `ArtifactError` where fewer are left."""
        data = self._file.read(size) if 0 <= size <= self.left else b""
        self._took(data, size)
        return data

    def read_into(self, memory: memoryview) -> None:
        """Fills `memory`. Raises `ArtifactError` where fewer bytes are left."""
        size = memory.nbytes
        count = self._file.readinto(memory) if size <= self.left else 0
        self._took(memory if count == size else memory[:0], size)

    def _took(self, data: bytes | memoryview, size: int) -> None:
        if len(data) != size:
            raise self._owner.error(f"ends in the middle of section {self._section.name!r}", _MAKE_AGAIN)
        self._digest.update(data)
        self.left -= size

    def finish(self) -> None:
        """Raises `ArtifactError` where the section is not as it was written, or was not read to its end."""
        if self.left or self._digest.hexdigest() != self._section.digest:
            name = self._section.name
            raise self._owner.error(
                f"was changed after it was written: section {name!r} has another checksum", _MAKE_AGAIN
            )


def _natural(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("no size")
    return value
