"""The shared cache behind the local one: entries of other machines, read through to the local folder.

    LAMPWORK_CACHE_URL/v1/KEY/DIGEST-SIGNER.entry    a line with a signature, then the file as it is in the local folder
    LAMPWORK_CACHE_URL/v1/KEY/DIGEST.entry           the same, not signed
    LAMPWORK_CACHE_URL/facts/NAME/KEY.json           see `misses.py`

Names are digests of contents: writers of one entry write the same, and a file that is half there is told by its
checksum. An entry is machine code, so it is taken only where its signature is right by the key in
`LAMPWORK_CACHE_KEY_FILE`, or where `LAMPWORK_CACHE_TRUST=1` says that all who write to the place may run code here. The
signature is of the cache key too: a signed entry moved to another key is refused.

The place is asked once for each key and process, and each time may take `LAMPWORK_CACHE_TIMEOUT` seconds. What fails
costs one warning; reading or writing, whichever failed, is given up for the rest of the process.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from lampwork import forks, signatures
from lampwork.config import cache_url, environment
from lampwork.errors import LampworkWarning
from lampwork.files import plain_files, safe_folder, write_file
from lampwork.runtime.cache import layout, misses
from lampwork.runtime.cache.layout import HEADER_BYTES, LIMIT_ENTRY_BYTES
from lampwork.runtime.cache.places import Folder, Place, UnusablePlace, folder_at, place_at, within, without_secrets

#: Entries of one key that are fetched, the newest first, and the share of the time limit after which no more are.
FETCHED, SHARE_OF_TIME = 64, 0.5

_LINE = b"lampwork shared 1 "
_UNSIGNED = "-"
_NAME = re.compile(r"([0-9a-f]{32})(?:-([0-9a-f]{16}))?\.entry")

Note = Callable[[str], None]

_asked: set[tuple[str, str]] = set()
_given_up: set[str] = set()
_warned: set[str] = set()


def fetch(
    key: str, facts: Mapping[str, str], entries: Path, note: Note, count: Callable[[str], None], again: bool = False
) -> int:
    """How many entries of `key` came into the local folder `entries`/KEY from the shared place.

    note     is told what was fetched, what was refused and why
    count    is told "fetched" or "refused" for each entry
    again    although this process has asked for this key before
    """
    url = cache_url()
    asked = (url, key)
    if (asked in _asked and not again) or "read" in _given_up:
        return 0
    _asked.add(asked)
    signer = _signer()
    if signer is None:
        return 0
    if not signer and not environment.cache_trust:
        _warn_once(
            "trust", "entries of others are not taken, as nothing says whose they are",
            "Set LAMPWORK_CACHE_KEY_FILE to a file with the key that they are signed with, or LAMPWORK_CACHE_TRUST=1 "
            "where all who can write there may run code here."
        )  # fmt: skip
        note(f"shared: {_shown()} was not read: neither a key nor LAMPWORK_CACHE_TRUST is set")
        return 0
    told: list[str] = []
    taken: list[str] = []
    look = functools.partial(_look, url, key, facts, entries / key, signer, told, taken, count)
    try:
        within(environment.cache_timeout, look)
    except Exception as error:
        _fails("read", error)
        told.append(f"failed: {type(error).__name__}: {error}")
    for each in told:
        note(f"shared: {each}")
    return len(taken)


def _look(
    url: str, key: str, facts: Mapping[str, str], local: Path, signer: bytes, told: list[str], taken: list[str],
    count: Callable[[str], None],
) -> None:  # fmt: skip
    place = _place(url)
    path = f"{layout.ENTRIES}/{key}"
    names = place.names(path)
    if not names:
        told.append(f"miss: {_shown()} has nothing for this key{_nearest(place, facts)}")
        return
    there = _local_names(local)
    wanted, strangers = _wanted(names, signer, there)
    if strangers:
        told.append(f"{strangers} refused: not signed with the key in {environment.cache_key_file}")
        for _ in range(strangers):
            count("refused")
    start = time.monotonic()
    for name in wanted[:FETCHED]:
        if time.monotonic() - start > SHARE_OF_TIME * environment.cache_timeout:
            break
        try:
            data = place.read(path, name, LIMIT_ENTRY_BYTES + 2 * HEADER_BYTES)
        except FileNotFoundError:
            continue  # removed meanwhile
        entry, why = opened(key, name, data, signer, environment.cache_trust)
        if why:
            told.append(f"{name} refused: {why}")
            count("refused")
            continue
        with safe_folder(local, create=True) as folder:
            write_file(folder, local_name(name), (entry,))
        taken.append(name)
        count("fetched")
    if taken:
        misses.write_facts(local.parent.parent, key, facts)
        told.append(f"{len(taken)} fetched from {_shown()}")


def _wanted(names: list[str], signer: bytes, there: set[str]) -> tuple[list[str], int]:
    """The files to read, those of this signer before others; and how many entries only others have signed."""
    own = signer_id(signer) if signer else None
    found: dict[str, str] = {}
    strangers: set[str] = set()
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or local_name(name) in there:
            continue
        digest, by = match.groups()
        if own is not None and by == own:
            found[digest] = name
        elif environment.cache_trust:
            found.setdefault(digest, name)
        else:
            strangers.add(digest)
    return list(found.values()), len(strangers - found.keys())


def _local_names(local: Path) -> set[str]:
    try:
        with safe_folder(local) as folder:
            return {name for name, _ in plain_files(folder)}
    except FileNotFoundError:
        return set()


def _nearest(place: Place, facts: Mapping[str, str]) -> str:
    """The fact that differs from what the place has for this callable. Its facts are told and decide nothing."""
    path = f"{layout.FACTS}/{misses.name_of(facts)}"
    stored = []
    for name in place.names(path)[: misses.COMPARED]:
        found = misses.from_bytes(place.read(path, name, misses.LIMIT_FILE_BYTES))
        if found is not None:
            stored.append(found)
    why = misses.in_words(facts, stored)
    return f"; {why}" if why else ""


def send(key: str, facts: Mapping[str, str], name: str, entry: bytes, note: Note, count: Callable[[str], None]) -> None:
    """Writes an entry to the shared place, signed where there is a key. What fails is a warning, once."""
    if "written" in _given_up:
        return
    signer = _signer()
    if signer is None:
        return

    url = cache_url()

    def write() -> None:
        place = _place(url)
        path, remote = f"{layout.ENTRIES}/{key}", remote_name(name, signer)
        place.write(path, remote, sealed(key, entry, signer))
        path = f"{layout.FACTS}/{misses.name_of(facts)}"
        if f"{key}.json" not in place.names(path):
            place.write(path, f"{key}.json", misses.to_bytes(facts))

    try:
        within(environment.cache_timeout, write)
    except Exception as error:
        _fails("written", error)
        note(f"shared: not sent: {type(error).__name__}: {error}")
    else:
        count("sent")


# Files in the place -------------------------------------------------------------------------------------------------


def signer_id(key: bytes) -> str:
    """What names of files say of who signed them: no secret."""
    return signatures.signature(key, b"lampwork signer")[:16]


def remote_name(name: str, signer: bytes) -> str:
    """The name in the place of the entry that is `name` in the local folder."""
    return name if not signer else f"{name.removesuffix(layout.SUFFIX)}-{signer_id(signer)}{layout.SUFFIX}"


def local_name(name: str) -> str:
    """The name in the local folder of the entry that is `name` in the place."""
    return name[:32] + layout.SUFFIX


def sealed(key: str, entry: bytes, signer: bytes) -> bytes:
    """The file for the place: `entry`, which is stored for the cache key `key`, with its signature before it."""
    seal = signatures.signature(signer, _signed(key, entry)) if signer else _UNSIGNED
    return _LINE + seal.encode() + b"\n" + entry


def opened(key: str, name: str, data: bytes, signer: bytes, trust: bool) -> tuple[bytes, str]:
    """The entry in the file `name` of the place, which holds `data`; and what keeps it from being taken, else empty."""
    line, _, entry = data.partition(b"\n")
    seal = line[len(_LINE) :].decode("ascii", "replace")
    if not line.startswith(_LINE):
        return b"", "it is no file of ours, or only a part of one"
    if not trust and not (signer and seal.isascii() and signatures.is_signed(signer, _signed(key, entry), seal)):
        return b"", "its signature is wrong" if seal != _UNSIGNED else "it is not signed"
    return entry, layout.why_no_entry(local_name(name), entry)


def _signed(key: str, entry: bytes) -> bytes:
    return b"lampwork entry of " + key.encode() + b"\n" + entry


def check() -> str:
    """What keeps the shared cache from being of use, in words; empty where nothing does."""
    url, path = cache_url(), environment.cache_key_file
    try:
        if path:
            key_in(path)
        elif not environment.cache_trust:
            return "nothing is read from it: set LAMPWORK_CACHE_KEY_FILE, or LAMPWORK_CACHE_TRUST=1"
        within(environment.cache_timeout, lambda: _reached(url))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _reached(url: str) -> None:
    _place(url).names(layout.ENTRIES)


# The place and the key ----------------------------------------------------------------------------------------------


def folder() -> Folder | None:
    """The shared place, where it is a folder and nothing has failed, so that there can be locks in it."""
    try:
        return folder_at(cache_url()) if cache_url() and not _given_up else None
    except UnusablePlace:
        return None


#: Made in the thread that has a time limit: some connect to a server. What cannot be had is not remembered here.
_place = functools.cache(place_at)
forks.in_child(_place.cache_clear)  # connections are the parent's


def _signer() -> bytes | None:
    """The key that entries are signed with; empty where none is named; None, with a warning, where one is that cannot
    be used."""
    path = environment.cache_key_file
    if not path:
        return b""
    try:
        return key_in(path)
    except (OSError, ValueError) as error:
        _warn_once(
            "key", f"LAMPWORK_CACHE_KEY_FILE={path} is not used: {error}", "Without it nothing is read or written."
        )
        return None


def key_in(path: str) -> bytes:
    """The key in a file. Raises OSError and ValueError, as `signatures.read_key`; and ValueError for a file that others
    may write to, who could put their own key there."""
    status = os.stat(path)
    if status.st_mode & stat.S_IWOTH:
        raise ValueError(f"everybody may write to it: chmod go-w {path}")
    return signatures.read_key(path)


def _fails(what: str, error: Exception) -> None:
    _given_up.update(("read", "written") if isinstance(error, UnusablePlace) else (what,))
    remedy = "Check LAMPWORK_CACHE_URL, or unset it; LAMPWORK_CACHE_TIMEOUT is how many seconds it may take."
    _warn_once(what, f"it cannot be {what} ({type(error).__name__}: {error})", remedy)


def _warn_once(kind: str, text: str, remedy: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        where = _shown()
        warnings.warn(f"lampwork: the shared cache {where}: {text}. {remedy}", LampworkWarning, stacklevel=3)


def _shown() -> str:
    return without_secrets(cache_url())
