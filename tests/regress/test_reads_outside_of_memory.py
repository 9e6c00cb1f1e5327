"""Programs whose kernels once read beside their tensors: inputs lie among numbers that show in every result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import lampwork
from tests.dynamic.support import compare

#: Elements on either side of every input.
MARGIN = 64


def among_others(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, of the same strides, in the middle of memory that holds other numbers."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    other = 777 if not tensor.is_floating_point() else float("nan")
    memory = torch.full((span + 2 * MARGIN,), other, dtype=tensor.dtype)
    return memory.as_strided(tensor.shape, tensor.stride(), MARGIN).copy_(tensor)


def two_parts(x):
    b, a = x.chunk(2)
    return b + a


PROGRAMS: dict[str, tuple[Callable, Callable[[int], torch.Tensor], tuple[int, ...]]] = {
    # (s + 1) // 2 == s - (s + 1) // 2 is a guard, and so is s - (s + 1) // 2 == 1, which broadcasts
    "two parts": (two_parts, lambda n: torch.randn(n, 3), (4, 3, 6, 2, 1, 5)),
    "a part of one row": (lambda x: x[: (x.shape[0] + 1) // 2] + x[(x.shape[0] + 1) // 2 :], lambda n: torch.randn(n, 3), (3, 4, 2)),
    "thirds": (lambda x: sum(x.split((x.shape[0] + 2) // 3)), lambda n: torch.randn(n, 3), (6, 3, 9, 7)),
    "half of each": (lambda x: x[::2] * x[1::2], lambda n: torch.randn(n, 3), (4, 3, 6, 2)),
    # what a loop keeps in memory for the next one has a layout of its own, which loops must respect
    "classes of what is transposed": (lambda x: F.one_hot(x % 4, 4), lambda n: torch.arange(3 * n).view(3, n).t(), (4, 5, 7, 1)),
    "kept beside a sum": (
        lambda x: ((y := torch.exp(x)).sum(), (y.unsqueeze(-1) + torch.arange(4)).contiguous()),
        lambda n: torch.randn(3, n).t(),
        (4, 5, 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_of_the_inputs_alone(name, dynamic):
    program, make, sizes = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for size in sizes:
        x = among_others(make(size))
        try:
            expected = program(x)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            compare(compiled(x), expected)
    # Where the program raises, eager has the last word.
    assert {each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]} <= {"exception"}


def test_padding_that_is_all_of_a_piece():
    """Of nothing but padding, nothing was read; where it was put beside others, it read behind the end of memory."""
    program = lambda x: torch.column_stack([F.pad(x, (-1, 0, 2, -1, 1, 3))] * 2)
    x = torch.randn(3, 1, 3)
    assert torch.equal(lampwork.compile(program, options={"cache": False})(x), program(x))
    program = lambda x, y: torch.cat([F.pad(x, (2, 1, 2, 2, 2, -1))[1:], y], 0)
    x, y = torch.randn(3, 3, 3), torch.randn(1, 7, 6)
    assert torch.equal(lampwork.compile(program, options={"cache": False})(x, y), program(x, y))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_derivatives_of_rows_that_are_not_there(mode):
    """Kernels are asked while the program is captured, with places in a tensor without rows."""
    program = lambda x, index, offsets: F.embedding_bag(index, x, offsets, include_last_offset=True, mode=mode)
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for shape in ((0, 0), (0, 3)):
        x = torch.zeros(shape, requires_grad=True)
        for index in (torch.tensor([0, 0, 1]), torch.zeros(0, dtype=torch.int64)):
            offsets = torch.tensor([0, len(index)])
            if len(index):
                with pytest.raises((RuntimeError, IndexError), match="not in the valid range|idx < num_embeddings"):
                    compiled(x, index, offsets)
            else:
                assert torch.equal(compiled(x, index, offsets), program(x, index, offsets))
