"""What users make passes with: `lampwork.GraphPass` and `lampwork.digest`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from lampwork.errors import OptionError


class GraphPass:
    """A function over a graph (or, in the stage "fused", over a program) with a name and a digest.

    function   edits the `torch.fx.Graph` that it is given, or returns another one
    name       what errors and reports call it; the function's own name if left out
    digest     what tells this code from any other, such as `lampwork.digest(__file__)`: a part of the key of stored
               entries. Without one nothing is stored that the pass had a hand in
    """

    def __init__(self, function: Callable[[Any], Any], *, name: str = "", digest: str | bytes | None = None) -> None:
        if not callable(function):
            raise OptionError(f"a pass is a function of a graph, not {function!r}")
        self.function = function
        self.name = name or getattr(function, "__qualname__", type(function).__qualname__)
        self.digest = digest

    def __call__(self, graph: Any) -> Any:
        return self.function(graph)

    def __repr__(self) -> str:
        return f"<pass {self.name}>"


def digest(*parts: object) -> str:
    """A digest of `parts`: contents of files that exist, where a text is the path of one, and of the file that a
    function or class was written in; else the text itself.

        lampwork.digest(__file__)             # whatever is edited in this file is another digest
        lampwork.digest(__file__, "eps=1e-6")

    Raises TypeError for anything else, and for a function without a file.
    """
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, (FunctionType, MethodType, type)):
            part = _file_of(part)
        if isinstance(part, os.PathLike) or isinstance(part, str) and os.path.isfile(part):
            with open(part, "rb") as file:
                content = file.read()
        elif isinstance(part, (str, bytes)):
            content = part if isinstance(part, bytes) else part.encode()
        elif isinstance(part, (int, float)):
            content = repr(part).encode()
        else:
            raise TypeError(f"lampwork.digest takes paths, texts, numbers, functions and classes, not {part!r}")
        found.update(b"%d:" % len(content))
        found.update(content)
    return found.hexdigest()


def _file_of(value: Any) -> os.PathLike[str]:
    import inspect
    from pathlib import Path

    try:
        return Path(inspect.getfile(value))
    except (OSError, TypeError):
        raise TypeError(f"{value!r} was written in no file: give its digest as a text") from None
