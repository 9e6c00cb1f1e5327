"""What a stored entry depends on of whole libraries: functions that their users vouch for.

A function marked `allow_in_graph` or `assume_constant` runs natively while a program is captured, and nothing sees what
it calls. In one process that is the promise of whoever marked it. In another process the function, or one that it
calls, may have been edited since. The sources of an installed library are digested as a whole (einops marks its
functions so); what lies in a user's own files may call anything, and such an entry is not stored.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

#: Folders that installers write to, and nobody edits.
_INSTALLED = frozenset({"site-packages", "dist-packages"})
#: Files and bytes of a library that is digested: beyond them, reading it would cost more than an entry is worth.
_MOST_FILES, _MOST_BYTES = 400, 4 << 20


def digests(libraries: Iterable[str]) -> dict[str, str]:
    """A digest of the sources of each library, by name; empty for one that is not installed as a whole."""
    return {name: _digest(name) for name in libraries}


def changed(made_of: Mapping[str, str]) -> str:
    """The first library whose sources are others in this process; empty if there is none."""
    return next((name for name, digest in made_of.items() if _digest(name) != digest), "")


@functools.cache
def _digest(library: str) -> str:
    file = getattr(sys.modules.get(library), "__file__", None)
    if not file or _INSTALLED.isdisjoint(PurePath(file).parts):
        return ""
    digest, count, size = hashlib.sha256(), 0, 0
    is_package = os.path.basename(file).startswith("__init__.")
    try:
        for path in sorted(_sources(os.path.dirname(file))) if is_package else [file]:
            with open(path, "rb") as source:
                text = source.read(_MOST_BYTES + 1)
            count, size = count + 1, size + len(text)
            if count > _MOST_FILES or size > _MOST_BYTES:
                return ""
            digest.update(f"{os.path.relpath(path, os.path.dirname(file))} {len(text)}\n".encode())
            digest.update(text)
    except OSError:
        return ""
    return digest.hexdigest()[:24]


def _sources(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(place, name) for name in names)
