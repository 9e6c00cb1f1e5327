"""Compiled results beside eager's, in a loop whose steps must happen once.

Eager's forward pass is run first, on copies of the arguments and without gradients; then buffers and generators are put
back, and the compiled pass does what the step does. Where that would be seen (arguments that are objects and may be
written, random numbers that a GPU draws otherwise) nothing is compared, and `why_not` says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from lampwork.verdict.snapshot import Snapshot
from lampwork.verdict.verify import Comparison, compare

Forward = Callable[..., Any]


class Compared:
    """The first call of each module. `seconds` are those that eager's call beside ours has taken."""

    def __init__(self) -> None:
        self.result: Comparison | None = None
        self.why_not = ""
        self.seconds = 0.0
        self.done = False
        self._modules: set[int] = set()

    def beside(self, module: torch.nn.Module, eager: Forward, compiled: Forward) -> Forward:
        """`compiled`, whose first call is compared."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.done = True
            if id(module) in self._modules:
                return compiled(*args, **kwargs)
            self._modules.add(id(module))
            started = time.perf_counter()
            expected, known = self._eagerly(module, eager, args, kwargs)
            self.seconds += time.perf_counter() - started
            result = compiled(*args, **kwargs)
            if known:
                started = time.perf_counter()
                found = compare(result, expected)
                if self.result is None or self.result.accepted:
                    self.result = found
                self.seconds += time.perf_counter() - started
            return result

        return forward

    def _eagerly(self, module: torch.nn.Module, eager: Forward, args: Any, kwargs: Any) -> tuple[Any, bool]:
        try:
            copied_args, copied_kwargs = _copied((args, kwargs))
        except _NotPlain:
            self.why_not = "its arguments are objects that a second call might change"
            return None, False
        snapshot = Snapshot(only_buffers=True)
        snapshot.add(module)
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        before = torch.cuda.get_rng_state_all() if on_gpu else []
        try:
            with torch.no_grad():
                expected = eager(*copied_args, **copied_kwargs)
            after = torch.cuda.get_rng_state_all() if on_gpu else []
        finally:
            snapshot.restore()
        if any(not torch.equal(one, other) for one, other in zip(before, after)):
            self.why_not = "it draws random numbers on a GPU, which are others when compiled"
            return None, False
        return expected, True


class _NotPlain(Exception):
    """Something is among the arguments that cannot be copied without knowing what it is."""


def _copied(value: Any) -> Any:
    """Plain data and tensors as copies. Raises `_NotPlain` where something else is among them."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value.detach().clone()
    if value is None or isinstance(value, int | float | str | bool | complex | torch.dtype | torch.device):
        return value
    if type(value) in (tuple, list):
        return type(value)(_copied(each) for each in value)
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    raise _NotPlain
