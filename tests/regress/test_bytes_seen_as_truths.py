"""A view as bool of other bytes: a write to a part of it leaves the other bytes as they are."""

from __future__ import annotations

import pytest
import torch

import lampwork


def _part(x):
    x.view(torch.bool)[..., :2][::2] = -2.0
    return x


def _parts(x):
    truths = x.view(torch.bool)
    truths[3:9].view(2, 3).t()[0] = False
    return x, truths, truths.view(torch.uint8), truths.float()


def _pieces(x):
    left, right = x.view(torch.bool).chunk(2)
    left.logical_not_()
    return right, x


@pytest.mark.parametrize("program", [_part, _parts, _pieces])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_bytes(program, dtype):
    made = lambda: torch.tensor([-0.25, 3.0, 0.0]).view(dtype)
    compiled = lampwork.compile(program)
    x, y = made(), made()
    ours, expected = compiled(x), program(y)
    for mine, theirs in zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(expected)):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: x.view(torch.bool).expand_as(y),
        lambda x, y: x.view(torch.bool).narrow(1, 0, y.shape[1]),
        lambda x, y: torch.take_along_dim(y.view(torch.bool), y % 3, 1),
    ],
)
def test_views_of_sizes_that_vary(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for rows, columns in ((3, 3), (4, 5), (2, 7)):
        x, y = (
            torch.arange(rows * columns).view(rows, columns) % 2 > 0,
            torch.arange(rows * columns).view(rows, columns),
        )
        assert torch.equal(compiled(x, y), program(x, y))
    assert not lampwork.stats(compiled)["fallbacks"]


def _own(x):
    truths = x > 0
    bytes_of = truths.view(torch.uint8)
    bytes_of.add_(3)
    return bytes_of * 2, truths.view(torch.int8)


def _of_an_input(x):
    x = x.view(torch.int8)[1:]
    return x.mul_(5), x + 1


@pytest.mark.parametrize("program", [_own, _of_an_input])
def test_writes_to_bytes_of_truths(program):
    """A bool tensor's memory holds whatever was written to it as bytes, and the graph's would hold 0 or 1."""
    compiled = lampwork.compile(program)
    x, y = (torch.tensor([True, False, True, True]) for _ in range(2))
    for mine, theirs in zip(compiled(x), program(y), strict=True):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))
    assert [each.id for each in lampwork.stats(compiled)["breaks"]] == ["aliasing"]
