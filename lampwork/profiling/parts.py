"""Where the time of a call goes, and what compiling could gain at most. Arithmetic on what was measured.

    waiting    for data
    Python     the program's own, and what PyTorch does around operators (autograd, dispatch, hooks); on a GPU only as
               far as the device waits for it
    launches   what each operator costs however little it computes
    memory     operators whose time is that of moving what they read and write
    compute    operators whose time is that of arithmetic: products, convolutions, attention
    other      what operators take beyond `EXPLAINED` times what they move and compute explains: sorting, waiting for
               threads on a busy machine, kernels that are far from what the machine can do

A compiler keeps what waits and what computes. It replaces Python by a check of guards, and launches by a few; of what
goes through memory stays what must: each tensor that the program is given is read once, each that it leaves written.
"""

from __future__ import annotations

import os

from lampwork.ir.record import record
from lampwork.profiling.machine import Machine
from lampwork.profiling.operators import Operator, outside_bytes

PARTS = ("waiting", "Python", "launches", "memory", "compute", "other")
#: An operator may take so many times as long as the machine's best speeds say; the rest has another reason.
EXPLAINED = 4.0

#: What a compiled call costs besides its work: guards, and the call itself.
GUARDS_SECONDS = 15e-6


@record
class Group:
    """Operators of one name on one line, together. `part`: what most of their time is."""

    name: str
    line: str
    calls: int
    seconds: float
    part: str


@record
class Parts:
    """Seconds of one call by part, in the order of `PARTS`; they add up to `call`.

    bound    what the call would take if a compiler did all that one can
    groups   the operators that take longest
    """

    call: float
    seconds: dict[str, float]
    bound: float
    operators: int
    groups: tuple[Group, ...]

    @property
    def gain(self) -> float:
        """How many times faster the best compiler could make the call."""
        return self.call / self.bound if self.bound else 1.0

    def share(self, part: str) -> float:
        return self.seconds[part] / self.call if self.call else 0.0


def parts_of(call: float, waiting: float, operators: list[Operator], machine: Machine) -> Parts:
    """Of a call that takes `call` seconds, `waiting` of which it waits, and makes these operators."""
    seconds = dict.fromkeys(PARTS, 0.0)
    seconds["waiting"] = min(waiting, call)
    by_group: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for each in operators:
        launch = min(each.seconds, machine.operator)
        work = each.seconds - launch
        arithmetic, moving = machine.compute_seconds(each.flops, each.dtype), machine.memory_seconds(each.moved_bytes)
        part = "compute" if each.flops and arithmetic >= moving else "memory"
        explained = min(work, EXPLAINED * (max(arithmetic, moving) + machine.operator))
        seconds["launches"] += launch
        seconds[part] += explained
        seconds["other"] += work - explained
        part = "other" if work > 2 * explained else part
        line = f"{os.path.basename(each.location.file)}:{each.location.line}" if each.location.file else ""
        by_group.setdefault((each.name, line), []).append((each.seconds, part if work > launch else "launches"))
    inside = sum(each.seconds for each in operators)
    if inside > call - seconds["waiting"] and inside:
        # Alone, with a wait after each, operators take longer than in a row: shares are theirs, the sum is the call's.
        factor = (call - seconds["waiting"]) / inside
        for part in ("launches", "memory", "compute", "other"):
            seconds[part] *= factor
    seconds["Python"] = max(0.0, call - sum(seconds.values()))
    least_traffic = machine.memory_seconds(outside_bytes(operators))
    bound = seconds["waiting"] + seconds["compute"] + min(seconds["memory"], least_traffic) + GUARDS_SECONDS
    groups = [
        Group(name, line, len(found), sum(time for time, _ in found), _most([part for _, part in found]))
        for (name, line), found in by_group.items()
    ]
    groups.sort(key=lambda each: -each.seconds)
    return Parts(call, seconds, min(bound, call), len(operators), tuple(groups[:12]))


def _most(words: list[str]) -> str:
    return max(set(words), key=words.count)
