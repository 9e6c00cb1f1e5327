"""`lampwork.warmup`: entries for calls that will come, compiled and stored before they do.

A call is prepared and not made (`CompiledFunction.prepare`): it is captured on fakes, so nothing of the program runs,
and no state changes. With `run` it is made, which is the only way to compile what follows a graph break.

Several jobs are processes, each of which imports what is compiled by its name and takes every n-th call. They leave
their entries in the on-disk cache; this process loads them from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from lampwork.config import environment
from lampwork.errors import Diagnostic, GraphBreak, OptionError
from lampwork.ir.region import Continue, RunEagerly
from lampwork.runtime.entry import Entry
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.wrappers import compiled_of, is_wrapper
from lampwork.warming import jobs as processes
from lampwork.warming import named, shapes
from lampwork.warming.named import Call
from lampwork.warming.report import BREAKS, COMPILED, EAGER, LOADED, READY, WarmCall, Warmup

Compile = Callable[..., Any]


def warm(
    target: Callable | str, inputs: Iterable[Any], jobs: int, run: bool, compile: Compile, options: Mapping[str, Any]
) -> Warmup:
    """See `lampwork.warmup`. `compile`: `lampwork.compile`, for what is not compiled yet."""
    start = time.perf_counter()
    if type(jobs) is not int or jobs < 1:
        raise OptionError(f"jobs must be a number of processes, 1 or more, not {jobs!r}")
    calls = [as_call(each) for each in inputs]
    name = target if isinstance(target, str) else named.name_of(target)
    spread = jobs > 1 and name is not None and len(calls) > 1 and environment.cache
    used = min(jobs, len(calls)) if spread else 1
    by_name: list[WarmCall | str] = []
    if spread and isinstance(target, str):
        by_name = processes.spread(target, calls, used, run, options)
        answers = [each for each in by_name if isinstance(each, WarmCall)]
        if len(answers) == len(calls):  # nothing is needed here, which would have to be imported
            return Warmup(target, tuple(answers), time.perf_counter() - start, used)
    if isinstance(target, str):
        target, call = named.found(target)
        if not calls and call is not None:
            calls = [call]
    if not calls:
        raise OptionError("nothing to compile for: give inputs, such as [('float32[8,128]',)]")
    compiled = compiled_with(target, compile, options)
    if run and compiled.background is not None:
        raise OptionError("mode 'auto' compiles beside calls, which are not waited for: leave run=True out")
    if spread and not by_name:
        assert name is not None
        by_name = processes.spread(name, calls, used, run, options)
    done = []
    for index, call in enumerate(calls):
        made = warm_call(compiled, call, run)
        done.append(_joined(made, by_name[index]) if by_name else made)
    return Warmup(name or compiled.name, tuple(done), time.perf_counter() - start, used)


def compiled_with(target: Callable, compile: Compile, options: Mapping[str, Any]) -> CompiledFunction:
    """`target`, compiled with these options of `lampwork.compile`. Raises OptionError where it is compiled already."""
    if is_wrapper(target) and options:
        raise OptionError(f"{', '.join(options)}: it is compiled already, with options of its own; leave these out")
    return compiled_of(target if is_wrapper(target) else compile(target, **options))


def as_call(item: Any) -> Call:
    """The arguments of a call, of what users give: a tuple of arguments, a dict of keywords, a pair of both, or one
    argument; texts such as "float32[8,128]" stand for tensors. Raises OptionError for anything else."""
    if type(item) is tuple and len(item) == 2 and type(item[0]) is tuple and type(item[1]) is dict:
        return item
    if type(item) is tuple or type(item) is list:
        return tuple(item), {}
    if type(item) is dict:
        if not all(type(each) is str for each in item):
            raise OptionError(f"a dict is of keywords, whose names are texts, not {next(iter(item))!r}")
        return (), item
    if isinstance(item, (str, torch.Tensor)):
        return (item,), {}
    raise OptionError(
        "an input is a tuple of arguments, a dict of keywords, a pair (args, kwargs), or one tensor such as "
        f"'float32[8,128]', not {item!r:.100}"
    )


def warm_call(compiled: CompiledFunction, call: Call, run: bool) -> WarmCall:
    """Makes sure that an entry serves such a call, and says what was needed for it. Raises ValueError for a text that
    describes no tensor."""
    told = shapes.words(call)
    args, kwargs = shapes.made(call)
    start = time.perf_counter()
    before = _counted(compiled)
    raised = ""
    try:
        if run:
            compiled.call(args, kwargs)
        elif _serving(compiled, args, kwargs) is None:
            compiled.prepare(args, kwargs)
    except GraphBreak as stop:
        raised = str(stop.diagnostic)
    except Exception as error:  # of the program's own, where its call is made; else what the user asked to be raised
        raised = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    after = _counted(compiled)
    state, why = _state(compiled, args, kwargs, run, before, after)
    if raised:
        state, why = EAGER, raised
    stored = after["stored"] > before["stored"] or state in (LOADED, EAGER)
    if state == READY:
        stored = bool(after["hits"] or after["stored"])
    if not stored:
        notes = compiled.counters.cache_notes
        why = why or next(
            (each for each in reversed(notes) if each.startswith("not stored")), "the on-disk cache is off"
        )
    return WarmCall(told, state, why, stored, seconds)


def _counted(compiled: CompiledFunction) -> dict[str, Any]:
    """Counters of a function and of what follows its breaks."""
    parts = (compiled, *compiled.continuations.values())
    return {
        "captures": sum(each.counters.captures for each in parts),
        "hits": sum(each.counters.cache_hits for each in parts),
        "stored": sum(each.counters.cache["stored"] for each in parts),
        "fallbacks": {
            record.diagnostic: record.count for each in parts for record in each.counters.snapshot(())["fallbacks"]
        },
    }


def _state(
    compiled: CompiledFunction, args: tuple, kwargs: dict, run: bool, before: Mapping, after: Mapping
) -> tuple[str, str]:
    eager = [each for each, count in after["fallbacks"].items() if count > before["fallbacks"].get(each, 0)]
    if eager:
        return EAGER, "; ".join(map(_words, eager))
    entry = _serving(compiled, args, kwargs)
    outcome = None if entry is None else entry.artifact.outcome
    if isinstance(outcome, RunEagerly):
        return EAGER, _words(Diagnostic(outcome.id, outcome.reason, outcome.location, outcome.remedy))
    if isinstance(outcome, Continue) and not run:
        reason = outcome.reason
        told = Diagnostic(reason.id, reason.reason, reason.location, reason.remedy)
        return BREAKS, f"{_words(told)} What follows is compiled when the call is made."
    if entry is None and not run:  # a call that is made may change what it was served for
        return EAGER, "no entry serves such a call"
    if after["captures"] > before["captures"]:
        return COMPILED, ""
    return (LOADED if after["hits"] > before["hits"] else READY), ""


def _words(diagnostic: Diagnostic) -> str:
    return f"{diagnostic} See {diagnostic.page}."


def _serving(compiled: CompiledFunction, args: tuple, kwargs: dict) -> Entry | None:
    """The entry in memory that serves such a call."""
    return next((each for each in compiled.entries if each.holds(compiled.function, args, kwargs)), None)


def _joined(here: WarmCall, there: WarmCall | str) -> WarmCall:
    """What is told of a call that another process has compiled, and this one has then looked up. A text: what became of
    that process."""
    if isinstance(there, str):
        return WarmCall(here.call, here.state, here.why or there, here.stored, here.seconds)
    if here.state not in (LOADED, READY):
        return WarmCall(here.call, here.state, here.why or there.why, here.stored, here.seconds + there.seconds)
    return WarmCall(here.call, there.state if there.is_warm else here.state, here.why, here.stored, there.seconds)
