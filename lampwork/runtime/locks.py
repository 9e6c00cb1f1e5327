"""Entries of programs that take locks: see `capture/natives/locks.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from lampwork.ir.source import Source
from lampwork.runtime.guards.interpreter import Scope, read


def under_locks(locks: Sequence[Source], holds: Callable, serve: Callable, miss: object) -> Callable:
    """`serve`, with the locks at these sources held. They are taken in this order, where the guards hold (`holds`) and
    only then, as eager would come to them; what another thread changed while this one waited, `serve` sees: it checks
    the guards itself."""

    def locked(function: object, args: tuple, kwargs: dict) -> Any:
        if not holds(function, args, kwargs):
            return miss
        scope = Scope(function, args, kwargs)
        with ExitStack() as taken:
            for source in locks:
                taken.enter_context(read(source, scope))
            return serve(function, args, kwargs)

    return locked
