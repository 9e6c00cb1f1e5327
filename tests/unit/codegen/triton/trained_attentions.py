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
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import lampwork.capture.autograd.flex_attention as flex
import lampwork.graph.prepare as graph_stage
from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.ir.differentiation import Backward
from lampwork.ir.program import Lowered
from lampwork.lower import lower
from tests.unit.codegen.triton import attentions
from tests.unit.codegen.triton.attentions import causal, documents, factors, later, outside, window
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
        on_gpu = patch.object(flex, "_is_on_gpu", lambda tensor: True)
        with differentiable(), on_gpu, patch.object(graph_stage, "program_device", lambda graph: "cuda:0"):
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


def blocks(rows, keys, size):
    """q, k and v of these lengths, the documents of their tokens, and the lists of blocks that leave a mask of them."""
    q, k, v = factors(2, 1, rows, keys)
    ids = torch.arange(max(rows, keys)) // 70

    def allowed(b, h, i, j):
        return (ids[i] == ids[j]) & (i + b * 10 >= j)

    mask = create_block_mask(allowed, 2, None, rows, keys, device="cpu", BLOCK_SIZE=size)
    lists = (getattr(mask, name) for name in LISTS)
    return q, k, v, ids, *lists


LISTS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
    "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


def masked(size):
    """Attention within documents, by lists of blocks."""

    def function(q, k, v, ids, *lists):
        def allowed(b, h, i, j):
            return (ids[i] == ids[j]) & (i + b * 10 >= j)

        lengths = q.size(2), k.size(2)
        mask = BlockMask(seq_lengths=lengths, BLOCK_SIZE=(size, size), mask_mod=allowed, **dict(zip(LISTS, lists)))
        return flex_attention(q, k, v, block_mask=mask, return_lse=True)

    return function


#: Name: the program, and what makes its arguments.
PROGRAMS: dict[str, tuple[Callable, Callable[[], tuple]]] = {
    "plain": (attentions.flex(), lambda: factors(dtype=torch.float16)),
    "statistics": (attentions.flex(return_lse=True), lambda: factors(2, rows=40, keys=130, inner=48, column=24)),
    "causal": (attentions.flex(causal), lambda: factors(heads=1, rows=300, keys=300)),
    "window": (attentions.flex(window), lambda: factors(heads=1, rows=200, keys=200)),
    "outside": (attentions.flex(outside), lambda: factors(heads=1, rows=200, keys=200)),
    "rows_without_keys": (attentions.flex(later, return_lse=True), factors),
    "documents": (attentions.flex(documents), lambda: (*factors(), torch.arange(100) // 30)),
    "capped": (attentions.flex(capped), factors),
    "given_bias": (attentions.flex(biased), lambda: (*factors(), torch.randn(2, 100, 100))),
    "listed_blocks": (masked(128), lambda: blocks(200, 200, 128)),
    "grouped": (grouped, lambda: factors(heads=4)),
    "float32": (attentions.flex(causal, return_lse=True), lambda: factors(dtype=torch.float32)),
}  # fmt: skip
