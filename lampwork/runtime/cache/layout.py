"""How entries lie in the cache folder, in a shared place and in packs: names, and the header line of a file.

    CACHE_DIR/v1/KEY/DIGEST.entry      a header line with the checksum of what follows, then the entry (`codec.py`)
    CACHE_DIR/facts/NAME/KEY.json      what KEY was made of, by the name of the callable (`misses.py`)
    CACHE_DIR/locks/KEY-CALL.lock      held by who compiles such a call now (`ranks.py`)

Names that come from elsewhere are matched as a whole before they are used: none of them leads out of its folder.
"""

from __future__ import annotations

import hashlib
import re

from lampwork.runtime.cache import schema

ENTRIES, FACTS, LOCKS = "v1", "facts", "locks"
#: The largest entry that is stored or read.
LIMIT_ENTRY_BYTES = 512 << 20

HEADER = b"lampwork entry 3 "
#: No header line is longer.
HEADER_BYTES = 1 << 10
SUFFIX = ".entry"

_KEY = re.compile(r"[0-9a-f]{32}")
_ENTRY = re.compile(r"[0-9a-f]{32}\.entry")


def is_key(text: str) -> bool:
    """Whether `text` is a key, and so a name of one folder."""
    return _KEY.fullmatch(text) is not None


def is_entry_name(text: str) -> bool:
    """Whether a file of that name is an entry."""
    return _ENTRY.fullmatch(text) is not None


def entry_name(checksum: str) -> str:
    """The name of the file with an entry of this checksum."""
    return f"{checksum[:32]}{SUFFIX}"


def header(checksum: str) -> bytes:
    """The first line of the file with an entry of this checksum, as this Lampwork writes it."""
    return HEADER + schema.digest().encode() + b" " + checksum.encode() + b"\n"


def is_of_another_release(line: bytes) -> bool:
    """Whether `line` is the header of an entry whose format this Lampwork does not read."""
    return line.startswith(HEADER) and line[len(HEADER) :].partition(b" ")[0] != schema.digest().encode()


def why_no_entry(name: str, data: bytes) -> str:
    """What keeps the file `name`, which came from elsewhere and holds `data`, from being an entry of this Lampwork;
    empty where nothing does. What follows its header is read, and verified, by who loads it."""
    line, _, body = data.partition(b"\n")
    if not is_entry_name(name):
        return "its name is none of an entry"
    if is_of_another_release(line):
        return "another Lampwork has written it"
    checksum = hashlib.sha256(body).hexdigest()
    if line + b"\n" != header(checksum):
        return "its checksum is another one"
    return "" if name == entry_name(checksum) else "its name is another one's"
