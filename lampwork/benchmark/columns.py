"""A column of the tables: which compiler makes it, and what can be learnt of a compiled function of ours."""

from __future__ import annotations

import contextlib
import importlib
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lampwork.benchmark.record import Found
from lampwork.benchmark.zoo import Workload

if TYPE_CHECKING:
    from lampwork.benchmark.job import Job
    from lampwork.benchmark.plan import Settings


def is_ours(column: str) -> bool:
    return column.startswith(("lampwork", "freeze"))


def compile_by(kind: str, function: Callable, settings: Settings, mode: str | None) -> Any:
    """`function` as columns of this kind run it: "eager", "peer" (`torch.compile`), "lampwork" or "freeze"."""
    import torch

    if kind == "eager":
        return function
    if kind == "peer":
        return torch.compile(function, mode=mode, backend=settings.peer_backend)
    module, _, name = settings.compiler.partition(":")
    compiler = getattr(importlib.import_module(module), name)
    options = {"options": {"freeze": True}} if kind == "freeze" else {}
    return compiler(function, mode=mode, **options)


def grad_mode(name: str) -> contextlib.AbstractContextManager[object]:
    import torch

    return {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[name]()


@contextlib.contextmanager
def reporting(found: Found, key: str = "error") -> Any:
    """Turn an exception of the block into an entry of `found`: the last line, and the traceback beside it."""
    try:
        yield
    except Exception as error:
        found[key] = f"{type(error).__name__}: {error}"[:2000]
        found[f"{key}_traceback"] = traceback.format_exc()[-6000:]


def tiny(x: Any) -> Any:
    """A function that computes almost nothing."""
    return (x + 1) * 2


def compile_tiny(
    job: Job[Any], columns: dict[str, Found], x: Any, compile_column: Callable, calls: int = 1
) -> dict[str, Callable]:
    """`tiny` as each column of the job runs it, right in its first `calls` calls.

    A column that fails is left out; `columns` says why.
    """
    import torch

    compiled: dict[str, Callable] = {}
    for column in job.columns:
        job.say(column, "compiling")
        with reporting(columns[column]):
            made = compile_column(column, tiny)
            for _ in range(calls):
                if not torch.equal(made(x), tiny(x)):
                    raise AssertionError(f"{column} computed {made(x)} instead of {tiny(x)}")
            compiled[column] = made
    job.say("eager", "timing in turns")
    return compiled


def stats_of(function: Callable) -> Found | None:
    """`lampwork.stats` as JSON; None where there is none."""
    stats = getattr(importlib.import_module("lampwork"), "stats", None)
    return None if stats is None else plain(stats(function))


def plain(value: object) -> Any:
    """`value` in JSON's types; what has none becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def guard_time_us(column: str, function: Callable, workload: Any) -> float | None:
    """Microseconds of one check of the entry's guards; None where the compiler does not let that be measured."""
    from lampwork import _torch
    from lampwork.benchmark import measure

    if column == "peer":
        check = _torch.peer_guard_check(lambda: workload.function(*workload.args, **workload.kwargs))
    else:
        check = own_guard_check(function, workload)
    if check is None:
        return None
    timing = measure.measure_interleaved({"check": check}, seconds=0.5, min_rounds=20, calls_per_sample=20)
    return timing["check"].median_ms * 1e3


def own_guard_check(function: Callable, workload: Workload) -> Callable[[], bool] | None:
    """The check that opens the entry which serves this call, as a call runs it; None if no entry does."""
    entry = serving_entry(function, workload)
    if entry is None:
        return None
    from lampwork.runtime.wrappers import compiled_of

    original, args, kwargs = compiled_of(function).function, workload.args, workload.kwargs
    return lambda: entry.holds(original, args, kwargs)


def serving_entry(function: Callable, workload: Any) -> Any:
    """The entry of the compiled function that serves this call; None if no entry does."""
    from lampwork.runtime.wrappers import compiled_of

    compiled = compiled_of(function)
    for entry in compiled.entries:
        if entry.holds(compiled.function, workload.args, workload.kwargs):
            return entry
    return None
