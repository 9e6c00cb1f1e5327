"""`x.shape[:1] + (int(index.max()) + 1,)`: what a tensor holds becomes a size of a `torch.Size`."""

from __future__ import annotations

import torch

import lampwork


def scattered(source, index):
    count = int(index.max()) + 1
    size = source.size()[:0] + (count,) + source.size()[1:]
    return source.new_zeros(size).index_add_(0, index, source), size


def made(source, index):
    count = int(index.max()) + 1
    size = torch.Size((count, 3)) + source.shape
    return size.numel(), size, size[0], (count,) + source.shape, source.shape + torch.Size([2])


def test_the_program_is_one_graph():
    for program in (scattered, made):
        compiled = lampwork.compile(program, fullgraph=True)
        for rows in (3, 3, 5, 7):
            arguments = torch.randn(rows, 4), torch.randint(0, rows, (rows,))
            expected, found = program(*arguments), compiled(*arguments)
            for one, other in zip(expected, found):
                assert type(one) is type(other)
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        assert lampwork.stats(compiled)["entries"] <= 2 and not lampwork.stats(compiled)["fallbacks"]
