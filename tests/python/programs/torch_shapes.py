"""Quantities computed from shapes."""

from __future__ import annotations

import math

import torch

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(2, 6, 4)


@program(together=lambda: (_x(),))
def sizes_in_arithmetic(x):
    batch, length, width = x.shape
    return x.reshape(batch * length, width) / math.sqrt(width), batch * length // 3, length % 4


@program(together=lambda: (_x(),))
def reshapes(x):
    return x.reshape(-1, 4), x.view(2, -1), x.flatten(1), x.unflatten(1, (2, 3)), x.view(*x.shape[:-1], 2, 2)


@program(together=lambda: (_x(),))
def permutations(x):
    return (
        x.permute(2, 0, 1),
        x.transpose(1, 2),
        x.movedim(0, -1),
        x.swapaxes(0, 1).contiguous(),
        x.squeeze().unsqueeze(1),
    )


@program(together=lambda: (_x(), 2))
def split_into_heads(x, heads):
    batch, length, width = x.size()
    y = x.view(batch, length, heads, width // heads).transpose(1, 2)
    return y.reshape(batch, heads, length, -1), y.transpose(1, 2).contiguous().view(batch, length, width)


@program(together=lambda: (_x(),))
def masks_from_sizes(x):
    length = x.size(1)
    causal = torch.full((length, length), float("-inf")).triu(1)
    valid = torch.arange(length)[None, :] < torch.tensor([[3], [6]])
    return causal, valid, x.masked_fill(~valid[..., None], 0.0)


@program(together=lambda: (_x(),))
def padded_to_a_multiple(x):
    extra = (4 - x.shape[1] % 4) % 4
    padded = torch.nn.functional.pad(x, (0, 0, 0, extra)) if extra else x
    return padded.view(2, -1, 4, 4).mean(2)


@program(together=lambda: (_x(),))
def windows(x):
    return x.unfold(1, 3, 2), x.unfold(1, 3, 1).mean(-1)


@program(together=lambda: (_x(),))
def broadcasting(x):
    row, column = x[:, :1], x[..., :1]
    return (
        x + row * column,
        torch.broadcast_shapes(row.shape, column.shape),
        torch.broadcast_to(row, x.shape),
        row.expand_as(x),
    )


@program(together=lambda: (_x(),))
def shape_compared_and_unpacked(x):
    if x.shape == (2, 6, 4) and x.shape[-1] == 4 and x.shape[1:] == torch.Size([6, 4]):
        x = x * 2
    first, *rest = x.shape
    return x, first, rest, tuple(x.shape), list(x.size()), x.shape.numel()


@program(together=lambda: (_x(),))
def chunks_by_size(x):
    return [part.sum() for part in x.split(4, dim=1)], torch.tensor_split(x, 4, dim=1)[0], len(x.chunk(5, dim=1))


@program(together=lambda: (_x(),))
def tensors_iterated_and_unpacked(x):
    first, second = x
    rows = [row.sum() for row in first]
    return first + second, rows, len(x), [a - b for a, b in zip(*x)][0]


@program(together=lambda: (values(3), torch.tensor(2.0)))
def membership_and_counts(x, y):
    a, b, c = x
    return a + b + c, y.dim(), x.ndim
