"""Passes of the user's: which run in which stage, by which name and digest. No torch.

A pass is code that a stored entry was made with, so its digest is part of every key. One without a digest cannot be
told from what it will be after an edit: what it had a hand in is not stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lampwork.ir.record import record

#: Where passes run, in this order (see docs/passes.md).
STAGES = ("program", "joint", "forward", "backward", "fused")

#: What a digest may be made of.
_PLAIN = (str, bytes, int, type(None))


@record
class UserPass:
    """`function(graph)`, or `function(program)` in the stage "fused". `digest`: empty where it has none."""

    function: Callable[[Any], Any]
    name: str
    digest: str = ""


@record
class Passes:
    """Those of one compiled function, in order. As text, it tells apart what is to have other entries: passes without
    a digest by the functions that they are, in this process alone."""

    program: tuple[UserPass, ...] = ()
    joint: tuple[UserPass, ...] = ()
    forward: tuple[UserPass, ...] = ()
    backward: tuple[UserPass, ...] = ()
    fused: tuple[UserPass, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.program or self.joint or self.forward or self.backward or self.fused)

    def __repr__(self) -> str:
        told = [f"{stage} {each.name} {each.digest or id(each.function)}" for stage, each in self._each()]
        return " ".join(told) or "none"

    def _each(self) -> Iterator[tuple[str, UserPass]]:
        return ((stage, each) for stage in STAGES for each in getattr(self, stage))

    def rows(self) -> list[list[str]]:
        """(stage, name, digest) of each."""
        return [[stage, each.name, each.digest] for stage, each in self._each()]

    @property
    def without_digest(self) -> str:
        """The name of the first that has none; empty where all have."""
        return next((name for _, name, digest in self.rows() if not digest), "")


def passes_of(value: object) -> Passes:
    """The passes in `{"forward": [f, g], ...}`. Raises ValueError for anything else, with what is wrong."""
    example = '{"forward": [my_pass]}'
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a dict of lists of passes by stage, such as {example}, not {value!r}")
    found: dict[str, tuple[UserPass, ...]] = {}
    for stage, listed in value.items():
        if stage not in STAGES:
            raise ValueError(f"has no stage {stage!r}; stages: {', '.join(STAGES)}")
        if callable(listed) and not isinstance(listed, Iterable):
            raise ValueError(f"must have a list of passes for {stage!r}: write [{name_of(listed)}]")
        if not isinstance(listed, (list, tuple)):
            raise ValueError(f"must have a list of passes for {stage!r}, not {listed!r}")
        for each in listed:
            if not callable(each) or isinstance(each, type):
                kind = "a class: give an instance" if isinstance(each, type) else "which cannot be called"
                raise ValueError(f"has {each!r} for {stage!r}, {kind}")
        found[stage] = tuple([UserPass(each, name_of(each), digest_of_pass(each)) for each in listed])
    return Passes(**found)


def name_of(function: object) -> str:
    """What a pass is called: its attribute `name`, else its own name or that of its class."""
    name = getattr(function, "name", None) or getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name)


def digest_of_pass(function: object) -> str:
    """What a pass says of itself: its attribute `digest`, or what its method `uuid` gives, as PyTorch's classes of
    passes have one. Empty where it says nothing. Raises ValueError for what is no digest."""
    told = getattr(function, "digest", None)
    if told is None:
        uuid = getattr(function, "uuid", None)
        told = uuid() if callable(uuid) else None
    if told is None or told == "":
        return ""
    if not _is_plain(told):
        raise ValueError(f"has a pass {name_of(function)} whose digest {told!r} is no text, bytes or number")
    return hashlib.sha256(repr(told).encode()).hexdigest()[:24]


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or isinstance(value, (tuple, list)) and all(map(_is_plain, value))
