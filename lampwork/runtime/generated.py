"""Generated Python, compiled and run. Entries of one artifact, of equal modules, have the same texts: each is compiled
once."""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any

#: Texts whose code is kept: those of some deep models' blocks.
_KEPT = 256


@functools.lru_cache(_KEPT)
def _code(text: str, name: str) -> CodeType:
    return compile(text, name, "exec")


def run_text(text: str, name: str, namespace: dict[str, Any]) -> None:
    """Runs generated Python in `namespace`. `name`: what tracebacks show in place of a file."""
    exec(_code(text, name), namespace)
