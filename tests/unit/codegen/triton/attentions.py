"""Attention as programs write it: by hand, by `flex_attention`, with masks, biases, statistics and other layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention.flex_attention import flex_attention

from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Lowered
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in
from tests.unit.codegen.triton.programs import copied

INFINITE = float("inf")
half = torch.bfloat16


def lowered_of(
    function: Callable, arguments: Sequence[torch.Tensor], settings: Settings = Settings()
) -> tuple[Lowered, Callable[[Sequence[torch.Tensor]], list[Any]]]:
    """The program on a GPU, and what gives its inputs; those that are no arguments are only guarded."""
    with torch.no_grad():
        try:
            flex_attention(*(torch.zeros(1, 1, 4, 4),) * 3)  # imports that are not part of any program
        except RuntimeError:
            pass
        with cuda_stand_in():
            region = capture(function, tuple(arguments), {}, settings)
            lowered = lower(prepare(region, settings), settings)

    def inputs(values: Sequence[torch.Tensor]) -> list[Any]:
        places = [getattr(source, "index", None) for source in region.inputs]
        return [copied(values[place]) if isinstance(place, int) else torch.zeros(1) for place in places]

    return lowered, inputs


def factors(batch=1, heads=2, rows=100, keys=100, inner=32, column=32, dtype=half):
    shapes = ((rows, inner), (keys, inner), (keys, column))
    return tuple(torch.randn(batch, heads, *shape, dtype=dtype) for shape in shapes)


def flex(change: Callable | None = None, **options: Any) -> Callable:
    return lambda q, k, v, *more: flex_attention(
        q, k, v, score_mod=(lambda *at: change(*at, *more)) if change is not None else None, **options
    )


def by_hand(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v


def spelled_out(q, k, v):
    scores = (q @ k.transpose(-2, -1)).float() * 0.125
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(v.dtype) @ v


def divided_last(q, k, v):
    scores = (q @ k.mT).float()
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers.to(q.dtype) @ v) / powers.sum(-1, keepdim=True).to(q.dtype), scores.logsumexp(-1)


def with_bias(q, k, v, bias):
    return torch.softmax(q @ k.transpose(-2, -1) / 8 + bias, -1) @ v


def padded(q, k, v, padding):
    scores = (q @ k.transpose(-2, -1) / 8).masked_fill(padding[:, None, None, :], -INFINITE)
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v


def biased_product(q, k, v, bias):
    scores = torch.baddbmm(bias, q[0], k[0].mT, beta=0.5, alpha=0.2)
    return torch.bmm(torch.softmax(scores, -1), v[0])


def unused_bias(q, k, v):
    scores = torch.baddbmm(q.new_full((1, 1, 1), INFINITE), q[0], k[0].mT, beta=0, alpha=0.2)
    return torch.bmm(torch.softmax(scores, -1), v[0])


def heads_last(q, k, v):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 4
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)


def repeated_heads(q, k, v):
    k, v = k[:, :1].repeat_interleave(2, 1), v[:, :1].expand_as(v)
    return torch.softmax(q @ k.mT * 0.1, -1) @ v


def two_dimensions(q, k, v):
    return torch.softmax(q[0, 0] @ k[0, 0].T, -1) @ v[0, 0]


def twice(q, k, v):
    return torch.softmax(by_hand(q, k, v) @ k.mT, -1) @ v


def causal(score, b, h, i, j):
    return torch.where(i >= j, score, -INFINITE)


def window(score, b, h, i, j):
    return torch.where((i >= j) & (i - j < 40), 5 * torch.tanh(score / 5), -INFINITE)


def outside(score, b, h, i, j):
    return torch.where((j > i + 20) | (j < 10), score, -INFINITE)


def later(score, b, h, i, j):
    return torch.where(j > i + 20, score, -INFINITE)


def documents(score, b, h, i, j, ids):
    return torch.where((ids[i] == ids[j]) & (i >= j), score, -INFINITE)


def slopes(score, b, h, i, j, slope):
    return score + slope[h] * (j - i)


def many_heads():
    return tuple(each.transpose(1, 2).contiguous() for each in factors())


#: Name: the program, and what makes its arguments.
PROGRAMS: dict[str, tuple[Callable, Callable[[], tuple]]] = {
    "by_hand": (by_hand, lambda: factors(keys=131, inner=48, column=24)),
    "spelled_out": (spelled_out, factors),
    "divided_last": (divided_last, factors),
    "with_bias": (with_bias, lambda: (*factors(), torch.randn(2, 100, 100, dtype=half))),
    "biased_product": (biased_product, lambda: (*factors(), torch.randn(2, 1, 100, dtype=half))),
    "unused_bias": (unused_bias, factors),
    "padded": (padded, lambda: (*factors(2), torch.rand(2, 100) > 0.7)),
    "heads_last": (heads_last, many_heads),
    "heads_last_in_memory": (heads_last, lambda: tuple(each.transpose(1, 2) for each in factors())),
    "repeated_heads": (repeated_heads, factors),
    "two_dimensions": (two_dimensions, factors),
    "twice": (twice, lambda: factors(inner=16, column=16)),
    "with_gaps": (by_hand, lambda: (factors(rows=200)[0][:, :, ::2], *(each[:, :, ::3] for each in factors(keys=300)[1:]))),
    "plain": (flex(), lambda: factors(dtype=torch.float16)),
    "statistics": (flex(return_lse=True), lambda: factors(2, rows=33, keys=200)),
    "causal": (flex(causal), lambda: factors(heads=1, rows=300, keys=300)),
    "window": (flex(window), lambda: factors(heads=1, rows=200, keys=200)),
    "outside": (flex(outside), lambda: factors(heads=1, rows=200, keys=200)),
    "rows_without_keys": (flex(later, return_lse=True), factors),
    "documents": (flex(documents), lambda: (*factors(), torch.arange(100) // 30)),
    "slopes": (flex(slopes), lambda: (*factors(), torch.tensor([0.5, 0.25]))),
    "grouped": (lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True), lambda: factors(heads=4)),
    "float32": (flex(causal, return_lse=True), lambda: factors(dtype=torch.float32)),
}  # fmt: skip
