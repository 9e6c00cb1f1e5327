"""Backward programs for tangents in other layouts than those that were expected: under `numerics="eager"`, where a copy
in the expected layout would have what is called add up in another order. One is compiled when it is first needed."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import collector, forks, signals
from lampwork.config import Settings, environment
from lampwork.ir.differentiation import Backward, Tangent
from lampwork.ir.replay import EagerBackward
from lampwork.runtime.cache.codec import Decoder
from lampwork.runtime.launch.host import Host

Run = Callable[..., Sequence[Any]]

#: Combinations of sizes and layouts that programs are compiled for.
_MOST = 16


class Relaid:
    """The backward programs of an entry for other layouts. Safe to use from many threads."""

    def __init__(self, link: Backward, settings: Settings, device: str) -> None:
        self.link, self.settings, self.device = link, settings, device
        #: By what `key_of` says of the inputs; None: it cannot be compiled.
        self.programs: dict[Any, Run | None] = {}
        self.lock = threading.Lock()

    def is_needed(self, tangents: Sequence[Any], layouts: Sequence[Tangent]) -> bool:
        """Whether a tangent is laid out otherwise than it was expected to be, and can be read as it is."""
        return self.link.eager is not None and any(
            is_other(tangent, layout) for tangent, layout in zip(tangents, layouts, strict=True)
        )

    def program(self, values: Sequence[Any], strides: Sequence[Any]) -> Run | None:
        """What takes these `values` of the backward program's inputs, which was expected to have `strides`; None where
        there is none."""
        key = tuple([_key_of(each) for each in values])
        if key not in self.programs:
            with self.lock:
                if key not in self.programs:
                    self.programs[key] = self.made(values, strides) if len(self.programs) < _MOST else None
        return self.programs[key]

    def made(self, values: Sequence[Any], strides: Sequence[Any]) -> Run | None:
        pipeline = importlib.import_module("lampwork.pipeline")  # every compiler stage: only for layouts that are new
        half = self.link.eager
        try:
            if isinstance(half, bytes):
                half = Decoder(half).next()
            assert isinstance(half, EagerBackward)
            with forks.compiling(), collector.paused():
                return Host(pipeline.relaid_backward(half, values, strides, self.device, self.settings)).call
        except Exception as error:
            if environment.strict or signals.raised_by_handler(error):
                raise
            return None


def is_other(tangent: Any, layout: Tangent) -> bool:
    """Whether `tangent` has other strides than `layout`, and a backward program can take it as it is."""
    return (
        type(tangent) is torch.Tensor
        and tangent.stride() != layout.strides
        and not tangent.is_conj()
        and not tangent.is_neg()
    )


def _key_of(value: Any) -> Any:
    return (tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value
