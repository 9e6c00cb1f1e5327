"""`lampwork.assess`: does compiling pay for this function, for so many calls?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from lampwork.errors import OptionError
from lampwork.verdict.candidate import Allowed
from lampwork.verdict.program import Program
from lampwork.verdict.search import Found, Say, Search
from lampwork.verdict.starting import starting
from lampwork.verdict.verdict import Verdict, judge


def assess_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    calls: int | None = None,
    restarts: int = 0,
    seconds: float = 60.0,
    price: float | None = None,
    dtypes: Iterable[torch.dtype] = (),
    freeze: bool = True,
    peer: bool = False,
    backward: bool | None = None,
    progress: bool | None = None,
) -> Verdict:
    """See `lampwork.assess`."""
    _check(calls, restarts, seconds, price)
    began = time.perf_counter()
    notes = busy()
    program = Program(function, args, kwargs, backward)
    with telling(progress) as say:
        say("one eager call")
        program.observe()
        device = "cuda" if "cuda" in program.devices() else "cpu"
        say("measuring what loading a compiler costs in a new process")
        cost = starting(device)
        allowed = Allowed(tuple(dtypes), peer, freeze)
        horizon = float("inf") if calls is None else float(calls)
        found = Search(program, horizon, restarts, allowed, cost, seconds, say).run()
    variable, holder = program.variables
    return judge(
        found, calls, name=program.name, variables=(variable,), holder=holder, unit="call", task=program.task,
        price=price, restarts=restarts, seconds=time.perf_counter() - began, notes=(*notes, *fresh_memory(found)),
    )  # fmt: skip


#: What a call takes from the system that is worth a word.
FRESH_MIB = 1.0
KEEP_MEMORY = "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1000000000"


def _check(calls: int | None, restarts: int, seconds: float, price: float | None) -> None:
    if calls is not None and (not isinstance(calls, int) or calls < 1):
        raise OptionError(f"calls must be a number of calls, 1 or more, not {calls!r}; leave it out if it is not known")
    if not isinstance(restarts, int) or restarts < 0:
        raise OptionError(f"restarts must be 0 or more, not {restarts!r}")
    if not seconds > 0:
        raise OptionError(f"seconds must be more than 0, not {seconds!r}")
    if price is not None and price < 0:
        raise OptionError(f"price must be that of an hour, 0 or more, not {price!r}")


def busy() -> tuple[str, ...]:
    """A note where other programs leave this one less than its processors; nothing where they do not."""
    processors = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if load < 1.5 * processors:
        return ()
    return (f"The machine is busy: {load:.0f} programs wanted its {processors} processors. Times hold for that.",)


def fresh_memory(found: Found) -> tuple[str, ...]:
    """A note where eager's time hangs on whether the C library keeps memory: it gives large blocks back to the system
    in some states of a process and keeps them in others (mallopt(3), M_TRIM_THRESHOLD), and fresh pages cost time."""
    eager = found.eager.fresh_mib
    if eager < FRESH_MIB:
        return ()
    return (
        f"Eager takes {eager:.0f} MiB from the system anew in each call. Where the process keeps its memory, it may be "
        f"much faster: start with {KEEP_MEMORY} and ask again.",
    )


@contextmanager
def telling(progress: bool | None) -> Iterator[Say]:
    """Shows on stderr what is being done; None: where that is a terminal."""
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda text: None
        return
    from rich.console import Console

    console = Console(file=sys.stderr)
    with console.status("") as status:
        yield status.update
