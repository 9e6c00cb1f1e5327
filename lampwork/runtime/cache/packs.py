"""Packs: entries of the on-disk cache in one file, for images of containers and machines without a shared place.

    line     "lampwork pack 1 ", the SHA-256 of the list, its signature or "-"
    line     the list, as JSON: [folder, subfolder, name, size, SHA-256] for each file that follows
    the files, one after the other

The signature is of the list, which has the checksum of every file: each is checked before it is written. A pack holds
machine code, so it is imported only where its signature is right, or where the user says that he trusts it. Names are
matched as a whole: entries and facts of the cache, and nothing else, come out of a pack.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from lampwork import signatures
from lampwork.files import WRITING, UnsafeFile, folder_in, plain_files, read_file, safe_folder, write_file
from lampwork.ir.record import record
from lampwork.runtime.cache import layout, misses
from lampwork.runtime.cache.codec import Decoder, Malformed

_MAGIC = b"lampwork pack 1 "
_UNSIGNED = "-"
#: Longest line, and list: some 800 000 entries.
LIMIT_LINE_BYTES, LIMIT_LIST_BYTES = 1 << 10, 128 << 20

#: A file in a pack: in which folder of the cache, its subfolder, its name, its size and its SHA-256.
Item = tuple[str, str, str, int, str]


class NotAPack(ValueError):
    """The file is no pack, is bent, or nobody says that it can be trusted. The text says which, and the remedy."""


@record
class Imported:
    """What became of a pack: entries `new` in the cache and those it `had` already; those left out, each with why."""

    new: int
    had: int
    left_out: tuple[str, ...]


def export(cache: Path, file: Path, key: bytes = b"", since: float | None = None) -> tuple[int, int]:
    """Writes the entries of the folder `cache` into the pack `file`, in one piece; how many there are, and bytes.

    key      signs the pack
    since    only entries that were stored or used from then on, in seconds since 1970

    Raises OSError, and leaves no file then.
    """
    items: list[Item] = []
    for top, sub, name in _chosen(cache, since):
        data = _read(cache, top, sub, name)
        if data is not None:
            items.append((top, sub, name, len(data), hashlib.sha256(data).hexdigest()))
    listed = json.dumps(items, separators=(",", ":")).encode()
    seal = signatures.signature(key, _signed(listed)) if key else _UNSIGNED
    temporary = file.with_name(f"{WRITING}{os.getpid()}-{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb") as out:
            out.write(_MAGIC + f"{hashlib.sha256(listed).hexdigest()} {seal}\n".encode() + listed + b"\n")
            for top, sub, name, _, digest in items:
                data = _read(cache, top, sub, name)
                if data is None or hashlib.sha256(data).hexdigest() != digest:
                    raise OSError(f"{name} was removed or changed meanwhile: try again")
                out.write(data)
            size = out.tell()
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return sum(top == layout.ENTRIES for top, *_ in items), size


def _chosen(cache: Path, since: float | None) -> Iterator[tuple[str, str, str]]:
    """Entries that were used since then, and the facts of their keys."""
    keys = set()
    for key, name, used in _files(cache, layout.ENTRIES):
        if layout.is_key(key) and layout.is_entry_name(name) and (since is None or used >= since):
            keys.add(key)
            yield layout.ENTRIES, key, name
    for sub, name, _ in _files(cache, layout.FACTS):
        if layout.is_key(sub) and name.removesuffix(".json") in keys:
            yield layout.FACTS, sub, name


def _files(cache: Path, top: str) -> Iterator[tuple[str, str, float]]:
    """Folder, name and time of last use of the files in the folders of `top`, in the order of their names."""
    try:
        with safe_folder(cache) as opened, folder_in(opened, top) as folders:
            for sub in sorted(os.listdir(folders)):
                with suppress(OSError), folder_in(folders, sub) as folder:
                    yield from sorted((sub, name, status.st_mtime) for name, status in plain_files(folder))
    except FileNotFoundError:
        return


def _read(cache: Path, top: str, sub: str, name: str) -> bytes | None:
    """What is in a file of the cache; None for one that is gone, or is nothing to be read."""
    try:
        with safe_folder(cache / top / sub) as folder:
            return read_file(folder, name, _LIMITS[top])
    except (FileNotFoundError, UnsafeFile):
        return None


def load(cache: Path, file: Path, key: bytes = b"", trust: bool = False) -> Imported:
    """Writes the entries of the pack `file` to the folder `cache`. What is there already stays.

    key      what the pack is signed with
    trust    whoever wrote the pack may run code as this user

    Raises `NotAPack`, before anything is written where the list is bent or nobody vouches for it; what came before a
    bent file stays. Raises OSError where a folder cannot be read or written.
    """
    with open(file, "rb") as pack:
        items = _items(pack, file, key, trust)
        new = had = 0
        left_out = []
        for top, sub, name, size, digest in items:
            data = pack.read(size)
            if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
                raise NotAPack(f"{file} is bent or cut off at {top}/{sub}/{name}: copy it again")
            why = _why_left_out(top, name, data)
            if why:
                left_out.append(f"{top}/{sub}/{name}: {why}")
            elif _write(cache / top / sub, name, data):
                new += top == layout.ENTRIES
            else:
                had += top == layout.ENTRIES
        if pack.read(1):
            raise NotAPack(f"{file} is bent: something follows its last entry")
    return Imported(new, had, tuple(left_out))


def _items(pack: BinaryIO, file: Path, key: bytes, trust: bool) -> list[Item]:
    """The list of a pack, checked, and vouched for."""
    words = pack.readline(LIMIT_LINE_BYTES).removesuffix(b"\n").split(b" ")
    if b" ".join(words[:3]) + b" " != _MAGIC or len(words) != 5:
        raise NotAPack(f"{file} is no pack that this Lampwork reads: make one by `lampwork cache export`")
    listed = pack.readline(LIMIT_LIST_BYTES).removesuffix(b"\n")
    if hashlib.sha256(listed).hexdigest().encode() != words[3]:
        raise NotAPack(f"{file} is bent or cut off: copy it again")
    seal = words[4].decode("ascii", "replace")
    if not trust:
        if not key:
            raise NotAPack(
                f"{file} holds machine code, and nothing says whose: give the key that it was signed with "
                "(--key-file), or --trust if whoever wrote it may run programs as you"
            )
        if seal == _UNSIGNED:
            raise NotAPack(f"{file} is not signed: export it with --key-file, or import it with --trust")
        if not (seal.isascii() and signatures.is_signed(key, _signed(listed), seal)):
            raise NotAPack(f"{file} is signed with another key, or was changed after it was signed")
    try:
        found = json.loads(listed)
    except (ValueError, RecursionError):
        found = None
    if type(found) is not list or not all(map(_is_item, found)):
        raise NotAPack(f"{file} lists something that is no file of the cache; nothing of it was imported")
    return [tuple(each) for each in found]


def _is_item(item: object) -> bool:
    if type(item) is not list or list(map(type, item)) != [str, str, str, int, str]:
        return False
    top, sub, name, size, _ = item
    fits = layout.is_entry_name(name) if top == layout.ENTRIES else layout.is_key(name.removesuffix(".json"))
    return top in _LIMITS and layout.is_key(sub) and fits and 0 <= size <= _LIMITS[top]


def _why_left_out(top: str, name: str, data: bytes) -> str:
    """What keeps a file from being imported; empty where nothing does."""
    if top == layout.FACTS:
        return "" if name.endswith(".json") and misses.from_bytes(data) is not None else "it holds no facts"
    why = layout.why_no_entry(name, data)
    if why:
        return why
    try:
        Decoder(data.partition(b"\n")[2]).next()
    except Malformed as error:
        return f"it is no entry ({error})"
    except LookupError:
        pass  # of a program that is not loaded here
    return ""


def _write(path: Path, name: str, data: bytes) -> bool:
    """Whether the file was not there yet."""
    with safe_folder(path, create=True) as folder:
        if name in os.listdir(folder):
            return False
        write_file(folder, name, (data,))
        return True


def _signed(listed: bytes) -> bytes:
    return b"lampwork pack\n" + listed


_LIMITS = {
    layout.ENTRIES: layout.LIMIT_ENTRY_BYTES + layout.HEADER_BYTES,
    layout.FACTS: misses.LIMIT_FILE_BYTES,
}
