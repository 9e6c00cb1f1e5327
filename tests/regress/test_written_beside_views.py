"""What `as_strided` reaches outside of a tensor, in its storage, is read and written where it lies."""

from __future__ import annotations

import pytest
import torch

import lampwork


def _before(x):
    return x.as_strided((2, 2), (1, 2), 0), x.fill_(3.0)


def _behind(x):
    reached = x.as_strided((2, 2), (1, 2), 4)
    x.fill_(3.0)
    return reached + 1, reached


def _both_written(x):
    reached = x.as_strided((2,), (2,), 1)
    reached.mul_(2)
    x.add_(1)
    return reached + 1, x * reached[0]


def _outside_alone(x):
    x.as_strided((2,), (1,), 1).mul_(2)
    return x + 1


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [_before, _behind, _both_written, _outside_alone])
def test_memory_outside_of_an_argument(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic)
    for offset in (3, 3, 4):
        found = []
        for function in (program, compiled):
            memory = torch.arange(9.0)
            results = function(memory.as_strided((2,), (1,), offset))
            found.append((memory, *(results if isinstance(results, tuple) else (results,))))
        for ours, expected in zip(found[1], found[0], strict=True):
            assert torch.equal(ours, expected) and ours.stride() == expected.stride()
    assert not lampwork.stats(compiled)["fallbacks"]


def test_places_count_from_the_beginning_of_the_storage():
    program = lambda x, y: torch.as_strided_scatter(x, y, (2,), (2,), 3)
    compiled = lampwork.compile(program)
    for offset in (0, 3, 1, 3):
        x, y = torch.arange(12.0).as_strided((2, 3), (3, 1), offset), torch.tensor([50.0, 60.0])
        assert torch.equal(compiled(x, y), program(x, y))


def test_nothing_is_written():
    """Through a view that begins behind the end of what it is a view of."""

    def program(x, y):
        wide = x.expand_as(y)
        wide[:, 1:] = y[:, 1:]
        return wide

    x, y = torch.rand(6).as_strided((1, 1, 1), (3, 3, 1), 3), torch.rand(1, 1, 2)
    assert torch.equal(lampwork.compile(program)(x, y), program(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.int16])
def test_planned_memory(dtype):
    """The base lies deep in planned memory, from whose beginning ATen's operator would count."""

    def program(x, index, y):
        taken = torch.take(x, index % 24)
        windows = taken.unfold(0, 2, 1)
        torch.square(x, out=windows)
        return windows, torch.as_strided_scatter(taken * 2, y, (2,), (2,), 1)

    x, index = torch.arange(4).view(1, 2, 2).to(dtype), torch.tensor([[2, 2], [0, 2]])
    y = torch.tensor([7.0, 8.0], dtype=torch.float64)
    for ours, expected in zip(lampwork.compile(program)(x, index, y), program(x, index, y), strict=True):
        assert torch.equal(ours, expected)
