"""Private names of PyTorch that are read when Lampwork is loaded: one that a release lacks switches off what needs it.

`private("_C._SDPBackend")` is `torch._C._SDPBackend`. Where there is none, it is a class without instances: a table
that has it has a row that nothing matches, and a call of it raises `MissingName`. So the program that needed it runs
eagerly, with a warning, and all others are compiled. `lampwork doctor` tells what was missing.
"""

from __future__ import annotations

from typing import Any

import torch

#: The names that were looked for and that this PyTorch lacks.
missing: list[str] = []


class MissingName(NotImplementedError):
    """Something private that Lampwork leans on is not in this release of PyTorch. Another release of either has it."""


class _Missing(type):
    """The class of what stands for names that are missing."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise MissingName(f"PyTorch {torch.__version__} has no {cls.__name__}, on which this leans")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{cls.__name__}.{name}", (), {})

    def __instancecheck__(cls, instance: object) -> bool:
        return False

    def __subclasscheck__(cls, subclass: type) -> bool:
        return False


def private(path: str) -> Any:
    """`torch.<path>`, or what stands for it where it is missing."""
    value: Any = torch
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            missing.append(f"torch.{path}")
            return _Missing(f"torch.{path}", (), {})
    return value


def is_missing(value: object) -> bool:
    """Whether `value` stands for a name that is missing."""
    return type(value) is _Missing
