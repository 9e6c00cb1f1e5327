"""Fusion: which operators share a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lampwork.ir.loops import Buffer
from lampwork.ir.target import Target
from lampwork.schedule.group import FusionGroup, group_of
from lampwork.schedule.inline import Operator


@dataclass(frozen=True)
class Refused:
    """Two operators (by position) that stayed apart although they share `bytes` of memory traffic."""

    producer: int
    consumer: int
    reason: str
    bytes: int


def fuse(
    operators: Sequence[Operator],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    target: Target,
) -> tuple[list[FusionGroup], list[Refused]]:
    """Groups in a valid order, and the fusions refused."""
    return [group_of(operator) for operator in operators], []
