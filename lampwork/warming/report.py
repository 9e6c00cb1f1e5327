"""What a warm-up did: `Warmup`, which prints as a table."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from lampwork.ir.record import record

#: What became of a call, the best first.
COMPILED, LOADED, READY, BREAKS, EAGER = "compiled", "loaded", "ready", "breaks", "eager"


@record
class WarmCall:
    """One call of a warm-up.

    call      its arguments, in words
    state     "compiled" now; "loaded" from the on-disk cache; "ready": an entry was there that serves it; "breaks":
              compiled up to a graph break, what follows is compiled when the call is made; "eager": it runs eagerly
    why       why it breaks or runs eagerly
    stored    whether other processes find its entry in the on-disk cache; `why` says why not
    seconds   that it took
    """

    call: str
    state: str
    why: str
    stored: bool
    seconds: float

    @property
    def is_warm(self) -> bool:
        """Whether the next such call compiles nothing and runs no part of it eagerly."""
        return self.state in (COMPILED, LOADED, READY)

    def to_dict(self) -> dict[str, Any]:
        """Data, as JSON can hold it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@record
class Warmup:
    """The answer of `lampwork.warmup`: true where every call is warm. `str()` is a table.

    name      of what was compiled
    calls     in the order in which they were given
    seconds   all in all
    jobs      processes that compiled
    """

    name: str
    calls: tuple[WarmCall, ...]
    seconds: float
    jobs: int

    def __bool__(self) -> bool:
        return all(each.is_warm for each in self.calls)

    @property
    def is_stored(self) -> bool:
        """Whether other processes find all entries in the on-disk cache."""
        return all(each.stored for each in self.calls)

    def __str__(self) -> str:
        width = max([len(each.call) for each in self.calls] + [4])
        lines = [f"{self.name}: {len(self.calls)} calls, {self.seconds:.1f} s, {self.jobs} processes"]
        for each in self.calls:
            state = each.state if each.stored or not each.is_warm else f"{each.state}, not stored"
            why = f"  {each.why}" if each.why else ""
            lines.append(f"  {each.call:{width}}  {state:8}  {each.seconds:6.2f} s{why}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Data, as JSON can hold it."""
        calls = [each.to_dict() for each in self.calls]
        return {"name": self.name, "warm": bool(self), "stored": self.is_stored, "seconds": self.seconds,
                "jobs": self.jobs, "calls": calls}  # fmt: skip
