"""`kept`: what runs while a call is compiled stays nameable for a profile that is being taken.

`torch.profiler` with `with_stack=True` notes addresses of names and file names, and reads them when the profile ends.
Of code that is gone by then (what a module runs when it is imported, what is made and run once) it reads whatever lies
there, and raises UnicodeDecodeError where that is no text. An eager program imports nothing between its operators; a
compile does, so all code that it runs under such a profile is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from lampwork import _torch

#: By address: equal code objects are equal keys, and the names of each are noted.
_kept: dict[int, CodeType] = {}


@contextmanager
def kept() -> Iterator[None]:
    """Code that runs meanwhile is never freed, if PyTorch's profiler notes the stacks of this thread."""
    if not _torch.are_stacks_profiled() or sys.gettrace() is not None:
        yield
        return
    sys.settrace(_keep)
    try:
        yield
    finally:
        if sys.gettrace() is _keep:
            sys.settrace(None)


def _keep(frame: FrameType, event: str, argument: object) -> None:
    _kept[id(frame.f_code)] = frame.f_code
