"""Attention that is differentiated, by `flex_attention`: both halves of its region as a GPU's, over tensors of the CPU.

Eager refuses to differentiate `flex_attention` on a CPU; where it is not asked whether it may, it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.attention.flex_attention as module
from torch.nn.attention.flex_attention import flex_attention

import lampwork.graph.prepare as graph_stage
from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.ir.differentiation import Backward
from lampwork.ir.program import Lowered
from lampwork.lower import lower
from tests.unit.codegen.triton.attentions import causal, documents, factors, flex, later, outside, slopes, window
from tests.unit.lower.graphs import _flatten


def _any_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    pass


@contextmanager
def differentiable() -> Iterator[None]:
    """Eager's `flex_attention` has gradients on a CPU."""
    with patch.object(module, "_validate_device", _any_device):
        with torch.no_grad():
            flex_attention(*(torch.zeros(1, 1, 4, 4),) * 3)  # imports that are not part of any program
        yield


class Trained:
    """A differentiated program: its halves, and how they fit together."""

    def __init__(self, function: Callable, arguments: Sequence[torch.Tensor], settings: Settings = Settings()) -> None:
        with differentiable(), patch.object(graph_stage, "program_device", lambda graph: "cuda:0"):
            self.region = capture(function, tuple(arguments), {}, settings)
            assert self.region.joint is not None, self.region.undifferentiated
            halves = graph_stage.prepare_halves(self.region, settings)
            assert halves.backward is not None
        self.link: Backward = halves.link
        self.forward, self.backward = (
            lower(replace(half, device="cpu"), settings) for half in (halves.forward, halves.backward)
        )

    def run(
        self, run: Callable[[Lowered, list[Any]], list[Any]], arguments: Sequence[torch.Tensor], tangents: Sequence[Any]
    ) -> tuple[list[Any], dict[int, torch.Tensor]]:
        """The results, and gradients by the argument's place. `run`: gives the results of a program."""
        inputs = [arguments[source.index].detach() for source in self.region.inputs]
        results = run(self.forward, list(inputs))
        saved = [inputs[place] for place in self.link.saved_inputs]
        saved += [results[place] for place in self.link.saved_results]
        given = [torch.tensor(True) for _ in self.link.told]
        assert not self.link.numbers
        gradients = run(self.backward, [*saved, *tangents, *given])
        joint = self.link.joint
        places = [self.region.inputs[index].index for index in joint.wanted]
        return results[: joint.results], dict(zip(places, gradients, strict=True))


def eager(function: Callable, arguments: Sequence[torch.Tensor], tangents: Sequence[Any] = ()) -> tuple[list, list]:
    """Results and gradients, None for arguments that have none."""
    copies = [each.detach().clone().requires_grad_(each.requires_grad) for each in arguments]
    with differentiable():
        results = _flatten(function(*copies))
    if tangents:
        torch.autograd.backward([each for each in results if each.requires_grad], list(tangents))
    return [each.detach() for each in results], [each.grad for each in copies]


def trained(*arguments: torch.Tensor, wanted: int = 3) -> tuple[torch.Tensor, ...]:
    """The arguments, of which the first ones have gradients."""
    return tuple([each.detach().requires_grad_(place < wanted) for place, each in enumerate(arguments)])


def tangents_of(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.randn(each.shape).to(each.dtype) for each in results if each.is_floating_point()]


def grouped(q, k, v):
    return flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True)


def capped(score, b, h, i, j):
    return 5 * torch.tanh(score / 5)


def biased(score, b, h, i, j, bias):
    return score + bias[h, i, j]


#: Name: the program, and what makes its arguments.
PROGRAMS: dict[str, tuple[Callable, Callable[[], tuple]]] = {
    "plain": (flex(), lambda: factors(dtype=torch.float16)),
    "statistics": (flex(return_lse=True), lambda: factors(2, rows=40, keys=130, inner=48, column=24)),
    "causal": (flex(causal), lambda: factors(heads=1, rows=300, keys=300)),
    "window": (flex(window), lambda: factors(heads=1, rows=200, keys=200)),
    "outside": (flex(outside), lambda: factors(heads=1, rows=200, keys=200)),
    "rows_without_keys": (flex(later, return_lse=True), factors),
    "documents": (flex(documents), lambda: (*factors(), torch.arange(100) // 30)),
    "slopes": (flex(slopes), lambda: (*factors(), torch.tensor([0.5, 0.25]))),
    "capped": (flex(capped), factors),
    "given_bias": (flex(biased), lambda: (*factors(), torch.randn(2, 100, 100))),
    "grouped": (grouped, lambda: factors(heads=4)),
    "float32": (flex(causal, return_lse=True), lambda: factors(dtype=torch.float32)),
}  # fmt: skip
