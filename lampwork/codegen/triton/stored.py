"""What compiling for a GPU has found out, kept for other processes: bytes by name, in folders that are safe.

A kernel's machine code is a line of JSON, then the machine code: see `to_bytes`. The same goes between this process and
those that compile beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from lampwork.codegen.triton.worker import ANSWER, from_bytes
from lampwork.files import ABANDONED_SECONDS, WRITING, plain_files, read_file, remove, safe_folder, touch, write_file

#: The largest file that is read.
LIMIT_FILE_BYTES = 64 << 20


def read(folder: str | os.PathLike[str], name: str) -> bytes | None:
    """What is stored under `name`; None where nothing is, or something that others could have written."""
    try:
        with safe_folder(folder) as opened:
            data = read_file(opened, name, LIMIT_FILE_BYTES)
            touch(opened, name)
            return data
    except OSError:
        return None


def write(folder: str | os.PathLike[str], name: str, parts: Iterable[bytes]) -> bool:
    """Whether it could be stored; where not, that is no error."""
    try:
        with safe_folder(folder, create=True) as opened:
            write_file(opened, name, parts)
    except OSError:
        return False
    return True


def trim(folder: str | os.PathLike[str], limit_bytes: int) -> None:
    """Remove the least recently used files until `limit_bytes` are left, and what killed processes left."""
    try:
        with safe_folder(folder) as opened:
            files = sorted((status.st_mtime, status.st_size, name) for name, status in plain_files(opened))
            total = sum(size for _, size, _ in files)
            for used, size, name in files:
                if total > limit_bytes or (name.startswith(WRITING) and used + ABANDONED_SECONDS < time.time()):
                    remove(opened, name)
                    total -= size
    except OSError:
        pass


def answer_of(data: bytes) -> dict[str, object] | None:
    """What compilation fills in, verified; None where the bytes are something else."""
    try:
        answer = from_bytes(data)
    except (ValueError, TypeError, KeyError):
        return None
    types = dict(ANSWER)
    if not isinstance(answer, dict) or answer.keys() != types.keys():
        return None
    return answer if all(type(answer[name]) is kind for name, kind in ANSWER) else None
