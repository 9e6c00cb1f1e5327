"""Which fact missed: what each cache key was made of is kept beside the entries, and compared where a key is not found.

    CACHE_DIR/facts/NAME/KEY.json      the facts of KEY, by name; NAME is a digest of the name of the callable

Facts are told to people and decide nothing: a file that says something else makes for a wrong sentence, no more.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lampwork.files import folder_in, plain_files, read_file, remove, safe_folder, write_file
from lampwork.runtime.cache import layout

#: Kept for one callable; the oldest go first.
LIMIT_FILES = 64
#: The newest so many are compared.
COMPARED = 16
LIMIT_FILE_BYTES = 1 << 16
#: A value is told up to so many characters.
SHOWN = 80

#: Facts whose values are digests, or long: what they stand for, which is all that is told.
DIGESTS = {
    "code": "its code",
    "sources": "the files of Lampwork itself (a working copy)",
}
#: Facts in words, where their name is none.
WORDS = {
    "torch": "PyTorch",
    "python": "Python",
    "lampwork": "Lampwork",
    "format": "the format of entries",
    "implementation": "the implementation of Python",
    "machine": "the machine",
    "features": "the features of the CPU",
    "caps": "the instruction sets in use",
    "kernels": "the instruction set of eager's kernels",
    "poison": "LAMPWORK_POISON",
    "mode": "the mode",
}


def name_of(facts: Mapping[str, str]) -> str:
    """The folder for facts of this callable."""
    return hashlib.sha256(facts["callable"].encode(errors="surrogatepass")).hexdigest()[:32]


def to_bytes(facts: Mapping[str, str]) -> bytes:
    """The file that holds `facts`."""
    return json.dumps(dict(facts), indent=0).encode()


def from_bytes(data: bytes) -> dict[str, str] | None:
    """The facts in a file; None where it holds none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if type(found) is not dict or not {str}.issuperset(map(type, found.values())) or "callable" not in found:
        return None
    return found


def write_facts(cache: Path, key: str, facts: Mapping[str, str]) -> None:
    """Notes in the cache folder what `key` was made of. What fails costs a reason in words, and no more."""
    try:
        with safe_folder(cache / layout.FACTS / name_of(facts), create=True) as folder:
            there = plain_files(folder)
            if not any(name == f"{key}.json" for name, _ in there):
                write_file(folder, f"{key}.json", (to_bytes(facts),))
                for _, name in sorted((status.st_mtime_ns, name) for name, status in there)[: 1 - LIMIT_FILES]:
                    remove(folder, name)
    except OSError:
        pass


def why_missed(cache: Path, facts: Mapping[str, str]) -> str:
    """How `facts` differ from the nearest ones of the same callable for which there are entries; empty where none are.

    Of those that differ in as many facts the newest counts.
    """
    return in_words(facts, _stored_facts(cache, facts))


def _stored_facts(cache: Path, facts: Mapping[str, str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    try:
        with safe_folder(cache) as top, folder_in(top, layout.FACTS) as all_facts:
            with folder_in(all_facts, name_of(facts)) as folder, folder_in(top, layout.ENTRIES) as entries:
                files = sorted(((status.st_mtime_ns, name) for name, status in plain_files(folder)), reverse=True)
                for _, name in files:
                    key = name.removesuffix(".json")
                    if len(found) < COMPARED and layout.is_key(key) and _has_entries(entries, key):
                        stored = from_bytes(read_file(folder, name, LIMIT_FILE_BYTES))
                        if stored is not None:
                            found.append(stored)
    except OSError:
        pass
    return found


def _has_entries(entries: int, key: str) -> bool:
    """Whether there is one: facts outlive the entries that they were written with."""
    try:
        with folder_in(entries, key) as folder:
            return any(layout.is_entry_name(name) for name in os.listdir(folder))
    except OSError:
        return False


def in_words(facts: Mapping[str, str], stored: Iterable[Mapping[str, str]]) -> str:
    """What sets `facts` apart from the nearest of `stored`, which are sorted from the newest on; empty where there are
    none."""
    nearest = min((differences(facts, each) for each in stored), key=len, default=())
    return f"what is stored differs in {' and '.join(nearest)}" if nearest else ""


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """Each fact that differs, in words, in the order of `here`."""
    names = dict.fromkeys((*here, *there))
    return tuple(_told(name, there.get(name), here.get(name)) for name in names if here.get(name) != there.get(name))


def _told(name: str, there: str | None, here: str | None) -> str:
    what = DIGESTS.get(name)
    if what is not None:
        return what
    function = name.removeprefix("patched ")
    if function != name:
        state = "another function" if there and here else "replaced there" if there else "replaced here"
        return f"{function} ({state})"
    what = WORDS.get(name, name)
    if name == "features" and there and here:
        more, less = set(there.split()) - set(here.split()), set(here.split()) - set(there.split())
        parts = ([f"{_short(' '.join(sorted(more)))} there alone"] if more else []) + (
            [f"{_short(' '.join(sorted(less)))} here alone"] if less else []
        )
        return f"{what} ({', '.join(parts)})"
    return f"{what} ({_value(there)} there, {_value(here)} here)"


def _value(text: str | None) -> str:
    return "none" if not text else _short(text)


def _short(text: str) -> str:
    """Printable: facts of a shared place are whatever somebody has written there."""
    shown = "".join(each if each.isprintable() else "?" for each in text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
