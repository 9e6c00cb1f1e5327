"""`Package`: what `lampwork.load(path)` returns, a callable that needs neither model nor compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from lampwork._torch import is_called_natively
from lampwork.errors import NotServedError
from lampwork.ir.artifact import Artifact
from lampwork.ir.guard import Equals
from lampwork.ir.source import State
from lampwork.runtime.entry import MISS, Entry
from lampwork.runtime.launch.host import AssumptionFailed, Rerun
from lampwork.shipping import words


class Package:
    """A compiled program with its weights. Call it as the model was called when the package was made.

    A call that none of its programs is for raises `NotServedError`, which lists those that are served; nothing is ever
    compiled. Gradients and inference mode are as they were then, whatever they are around the call; other state of the
    process, such as autocast, must be as it was. Safe to call from many threads at once.
    """

    def __init__(
        self, name: str, path: str, weights: dict[str, torch.Tensor], artifacts: Sequence[Artifact], mode: str
    ) -> None:
        self.name, self.path = name, path
        self._weights = weights
        self._artifacts = tuple(artifacts)
        self._entries = [Entry(artifact, never, mode=mode) for artifact in artifacts]
        self._serves: dict[tuple[bool | None, bool | None], list[Callable]] = {}
        for artifact, entry in zip(artifacts, self._entries):
            modes = (_state(artifact, "grad_mode"), _state(artifact, "inference_mode"))
            self._serves.setdefault(modes, []).append(entry.serve)

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        """The weights by name. They are constants of the programs: do not write to them."""
        return MappingProxyType(self._weights)

    @property
    def serves(self) -> list[str]:
        """The calls that there are programs for."""
        return [words.serves(artifact.guards) for artifact in self._artifacts]

    def __repr__(self) -> str:
        return f"<lampwork package of {self.name}, which serves\n{words.listed(self.serves)}>"

    @is_called_natively
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        failure = None
        for (gradients, inference), serves in self._serves.items():
            with _modes(gradients, inference):
                try:
                    for serve in serves:
                        result = serve(self, args, kwargs)
                        if result is not MISS:
                            return result
                except Rerun as stop:
                    failure = stop
                    break
        if failure is None:
            raise self._not_served(args, kwargs)
        cause = failure.__cause__
        if failure.stage != "run" or cause is None or isinstance(cause, AssumptionFailed):
            raise self._not_served(args, kwargs, str(cause or failure)) from cause
        raise cause  # what the program itself raises for such arguments

    def _not_served(self, args: tuple, kwargs: dict, why: str = "") -> NotServedError:
        every = [artifact.guards for artifact in self._artifacts]
        if not why:
            gradients, inference = next(iter(self._serves))
            with _modes(gradients, inference):
                why = words.nearest(every, self, args, kwargs)
        return NotServedError(
            f"{self.path} has no program for this call of {self.name}: {why}.\n"
            f"It serves:\n{words.listed(self.serves)}\n"
            "Make calls like these, or package the model again after calls like this one."
        )


def never(*_: object) -> Any:
    """What runs a call of a package eagerly: nothing does."""
    raise AssertionError("entries of a package do not run eagerly")


def _state(artifact: Artifact, name: str) -> bool | None:
    """The state that the program was compiled in; None where it does not depend on it."""
    for guard in artifact.guards:
        if isinstance(guard.source, State) and guard.source.name == name and isinstance(guard.test, Equals):
            return bool(guard.test.value)
    return None


@contextlib.contextmanager
def _modes(gradients: bool | None, inference: bool | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if inference is not None and inference != torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(inference))
        if gradients is not None and gradients != torch.is_grad_enabled():
            stack.enter_context(torch.set_grad_enabled(gradients))
        yield
