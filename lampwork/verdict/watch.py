"""`lampwork.watch`: the loop form of `assess`, on the user's own batches."""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar, cast

import torch

from lampwork.errors import OptionError
from lampwork.verdict.assess import busy, telling
from lampwork.verdict.candidate import Allowed
from lampwork.verdict.starting import starting
from lampwork.verdict.steps import Trial
from lampwork.verdict.verdict import Verdict, judge

T = TypeVar("T")


class Watch(Generic[T]):
    """The items of `loader`, whose steps are assessed; `verdict` is there once the trial, or the loop, is over."""

    def __init__(self, loader: Iterable[T], calls: int | None, steps: int, allowed: Allowed, price: float | None,
                 progress: bool | None, names: dict[str, Any]) -> None:  # fmt: skip
        self.loader, self.calls, self.steps = loader, calls, steps
        self.allowed, self.price, self.progress, self.names = allowed, price, progress, names
        self.verdict: Verdict | None = None

    def __len__(self) -> int:
        return len(cast(Sized, self.loader))

    def __iter__(self) -> Iterator[T]:
        if self.verdict is not None:
            yield from self.loader  # a later epoch
            return
        horizon = float("inf") if self.calls is None else float(self.calls)
        with contextlib.ExitStack() as telling_so_far:
            say = telling_so_far.enter_context(telling(self.progress))
            trial = Trial(self.steps, horizon, self.allowed, starting, say, loaded_ahead(self.loader))
            items = iter(self.loader)
            try:
                while not trial.over:
                    trial.begin()
                    started = time.perf_counter()
                    try:
                        item = next(items)
                    except StopIteration:
                        break
                    trial.wait(time.perf_counter() - started)
                    yield item
            finally:  # the loop may be left early: then what is known so far is the answer
                trial.end()
                self.verdict = concluded(trial, self.calls, self.price, self.names)
        if self.progress is not False:
            print(self.verdict, file=sys.stderr)
        yield from items


def watch_loop(
    loader: Iterable[T], calls: int | None, steps: int, price: float | None, peer: bool, progress: bool | None
) -> Watch[T]:
    """See `lampwork.watch`."""
    if calls is not None and (not isinstance(calls, int) or calls < 1):
        raise OptionError(f"calls must be a number of steps, 1 or more, not {calls!r}; leave it out if it is not known")
    if not isinstance(steps, int) or steps < 20:
        raise OptionError(f"steps must be 20 or more, not {steps!r}: fewer cannot be compared")
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    names = {} if caller is None else {**caller.f_globals, **caller.f_locals}
    return Watch(loader, calls, steps, Allowed(peer=peer), price, progress, names)


def concluded(trial: Trial, calls: int | None, price: float | None, names: dict[str, Any]) -> Verdict:
    """The verdict on a trial's steps."""
    modules = trial.compiled
    variables = [_variable(each, names) or f"model{number or ''}" for number, each in enumerate(modules)]
    return judge(
        trial.found(), calls, name=type(modules[0]).__name__ if modules else "the loop",
        variables=tuple(variables) or ("model",),
        unit="step", task="train" if trial.watched.optimizers else "infer", price=price,
        seconds=time.perf_counter() - trial.began, shares=trial.shares,
        notes=(*busy(), *_notes(trial)),
    )  # fmt: skip


def _variable(module: torch.nn.Module, names: dict[str, Any]) -> str:
    """What the loop calls a module; empty where it has no name for it."""
    return next((name for name, value in names.items() if value is module and not name.startswith("_")), "")


def _notes(trial: Trial) -> Iterator[str]:
    for each in trial.tried:
        why = trial.why_not_compared(each)
        if why and not each.failure:
            yield f"Numbers of {each.candidate.name} were not compared: {why}."


def loaded_ahead(loader: Any) -> int:
    """How many batches the workers of a `DataLoader` may have loaded before a step begins."""
    if isinstance(loader, torch.utils.data.DataLoader) and loader.num_workers:
        return loader.num_workers * (loader.prefetch_factor or 2)
    return 0
