"""Sizes from which the compiler does something else, set for a while: small programs are compiled as large ones are."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def thresholds(values: Mapping[str, float]) -> Iterator[None]:
    """Sets the numbers named `module.NAME` meanwhile. Modules that import a number by name have one of their own."""
    from lampwork.schedule import segment

    segment._memo.clear()  # kernels are remembered by what they compute, not by how they were chosen
    with contextlib.ExitStack() as stack:
        stack.callback(segment._memo.clear)
        for name, value in values.items():
            path, _, constant = name.rpartition(".")
            module = importlib.import_module(path)
            stack.callback(setattr, module, constant, getattr(module, constant))
            setattr(module, constant, value)
        yield
