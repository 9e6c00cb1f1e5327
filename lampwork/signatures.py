"""Signatures of files that come from elsewhere: HMAC-SHA256 (RFC 2104) with a key that writer and reader share.

A signature says that whoever wrote a file had the key, and that the file is as it was. It hides nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

#: Keys shorter than this are refused: they can be guessed.
LEAST_BYTES = 16


def signature(key: bytes, data: bytes) -> str:
    """The signature of `data` as 64 hexadecimal digits. Raises ValueError for a key shorter than `LEAST_BYTES`."""
    _check(key)
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def is_signed(key: bytes, data: bytes, given: str) -> bool:
    """Whether `given` is the signature of `data` with this key. Takes as long for a wrong one as for a right one."""
    return hmac.compare_digest(signature(key, data), given)


def read_key(path: str | Path) -> bytes:
    """The key in a file: its bytes without white space at the ends. Raises OSError where it cannot be read, and
    ValueError where it is too short; `python -c "import secrets; print(secrets.token_hex(32))"` makes one."""
    key = Path(path).read_bytes().strip()
    _check(key)
    return key


def _check(key: bytes) -> None:
    if len(key) < LEAST_BYTES:
        raise ValueError(
            f"a key of {len(key)} bytes can be guessed: give at least {LEAST_BYTES}, such as those that "
            'python -c "import secrets; print(secrets.token_hex(32))" prints'
        )
