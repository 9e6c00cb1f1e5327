"""`lampwork verdict train.py`: a script of the user's, run as it is, end to end, for so many of its steps.

A step is what lies between two steps of an optimizer, or, in a script without one, between two calls of the module that
is called first. The script's own arguments are its own; it is left once the trial is over, and what it wrote stays.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from lampwork.errors import OptionError
from lampwork.verdict.assess import telling
from lampwork.verdict.candidate import Allowed
from lampwork.verdict.starting import starting
from lampwork.verdict.steps import Trial
from lampwork.verdict.verdict import Verdict
from lampwork.verdict.watch import concluded, loaded_ahead


class Steps(Protocol):
    """Is told where steps begin and what they wait for. `over`: the script is left at the next step."""

    over: bool
    ahead: int

    def begin(self) -> None: ...

    def wait(self, seconds: float) -> None: ...


class Enough(BaseException):
    """The trial is over: the script is left. No `except Exception` of the script's takes it."""


def assess_script(
    path: Path, arguments: Sequence[str], calls: int | None, steps: int, price: float | None, peer: bool,
    progress: bool | None,
) -> Verdict:  # fmt: skip
    """Runs the script. Raises `OptionError` where it made no step, and what the script itself raises."""
    horizon = float("inf") if calls is None else float(calls)
    names: dict[str, Any] = {}
    with telling(progress) as say:
        trial = Trial(steps, horizon, Allowed(peer=peer), starting, say)
        try:
            with as_main(path, arguments), stepping(trial), contextlib.suppress(Enough):
                names = runpy.run_path(str(path), run_name="__main__")
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        finally:
            trial.end()
    if not trial.done:
        raise OptionError(f"{path} made no step: no optimizer stepped, and no module was called twice")
    return concluded(trial, calls, price, names or vars(sys.modules["__main__"]))


@contextlib.contextmanager
def as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """`sys.argv` and `sys.path` are those of `python path arguments`."""
    argv, paths = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv = argv
        sys.path[:] = paths


@contextlib.contextmanager
def stepping(trial: Steps) -> Iterator[None]:
    """`trial.begin` where steps begin, `trial.wait` for what `DataLoader`s take."""
    boundary = Boundary(trial)
    iterate = torch.utils.data.DataLoader.__iter__
    torch.utils.data.DataLoader.__iter__ = lambda loader: _Timed(iterate(loader), loader, trial)
    try:
        yield
    finally:
        torch.utils.data.DataLoader.__iter__ = iterate
        boundary.close()


class Boundary:
    """Finds out where the script's steps end: at an optimizer's step, or where its first module has been called.

    Hooks of all modules are there until that is known, and no longer: they would be compiled with the modules.
    """

    def __init__(self, trial: Steps) -> None:
        self.trial = trial
        self.optimizer: torch.optim.Optimizer | None = None
        self._inside: list[torch.nn.Module] = []
        self._looking = [register_module_forward_pre_hook(self._enters), register_module_forward_hook(self._leaves)]
        self._hooks = [register_optimizer_step_post_hook(self._stepped)]

    def close(self) -> None:
        self._stop_looking()
        for hook in self._hooks:
            hook.remove()

    def _stop_looking(self) -> None:
        for hook in self._looking:
            hook.remove()
        self._looking = []

    def _begin(self) -> None:
        self.trial.begin()
        if self.trial.over:
            raise Enough

    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self.optimizer is None:
            self.optimizer = optimizer  # of several, the first one's steps are counted
            self._stop_looking()
        if optimizer is self.optimizer:
            self._begin()

    def _enters(self, module: torch.nn.Module, args: Any) -> None:
        if not torch.compiler.is_dynamo_compiling():  # a function that `torch.cond` was given
            self._inside.append(module)

    def _leaves(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        while self._inside and self._inside.pop() is not module:
            pass  # left by an exception
        if self._inside or torch.is_grad_enabled() and module.training:
            return
        self._stop_looking()
        self._hooks.append(module.register_forward_hook(self._called))
        self._begin()

    def _called(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self.optimizer is None:
            self._begin()


class _Timed:
    """The iterator of a `DataLoader`; what a batch takes is waiting."""

    def __init__(self, items: Any, loader: Any, trial: Steps) -> None:
        self._items, self._trial = items, trial
        trial.ahead = max(trial.ahead, loaded_ahead(loader))

    def __iter__(self) -> _Timed:
        return self

    def __next__(self) -> Any:
        started = time.perf_counter()
        try:
            return next(self._items)
        finally:
            self._trial.wait(time.perf_counter() - started)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)

    def __len__(self) -> int:
        return len(self._items)
