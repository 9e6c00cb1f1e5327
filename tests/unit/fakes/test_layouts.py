"""Types, layouts and common shapes against eager's own, over all small cases: what every shape rule is made of."""

from __future__ import annotations

import itertools

import pytest
import torch

from lampwork.fakes import strides
from lampwork.fakes.promotion import as_float, promoted
from lampwork.fakes.shapes import wrap_dim, wrap_dims

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
)
NUMBERS = (True, 3, 2.5, 1j)


@pytest.fixture(params=[torch.float32, torch.float64, torch.float16], ids=str)
def default_dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def test_promotion(default_dtype):
    """Of every two tensors, with dimensions or without, and of every tensor and number."""
    tensors = [torch.zeros(shape, dtype=dtype) for dtype in DTYPES for shape in ((), (2,))]
    for left, right in itertools.product(tensors, [*tensors, *NUMBERS]):
        expected = torch.result_type(left, right)
        assert promoted((left, right)) == promoted((right, left)) == expected, (left, right)
    for left in tensors:
        assert as_float(left.dtype) == torch.sqrt(left).dtype


def test_promotion_of_three():
    with_dims, without, number = torch.zeros(2, dtype=torch.float16), torch.zeros((), dtype=torch.float64), 1.5
    for each in itertools.permutations((with_dims, without, number)):
        assert promoted(each) == torch.float16
    assert promoted((torch.zeros(2, dtype=torch.int8), torch.zeros((), dtype=torch.int64), True)) == torch.int8


SHAPES = list(itertools.product((0, 1, 2, 3), repeat=3))


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_fresh_tensors(rank):
    for shape in itertools.product((0, 1, 2, 3), repeat=rank):
        assert strides.contiguous(shape) == torch.empty(shape).stride()
        for order in itertools.permutations(range(rank)):
            seen = torch.empty([shape[k] for k in order]).permute([order.index(k) for k in range(rank)])
            assert strides.permuted(shape, order) == seen.stride()
            assert strides.preserved(seen) == torch.empty_like(seen).stride(), (shape, order)


def test_like_tensors_with_gaps_and_repetitions():
    for shape in itertools.product((1, 2, 3), repeat=3):
        for steps in itertools.product((0, 1, 2, 7), repeat=3):
            seen = torch.empty(60).as_strided(shape, steps)
            assert strides.preserved(seen) == torch.empty_like(seen).stride(), (shape, steps)
            assert strides.is_contiguous(shape, steps) == seen.is_contiguous()


def test_channels_last():
    for shape in itertools.product((1, 2, 3), repeat=4):
        seen = torch.empty(shape, memory_format=torch.channels_last)
        assert strides.channels_last(shape) == seen.stride()
        assert strides.is_channels_last(shape, seen.stride())
        assert strides.in_memory_format(torch.empty(shape), torch.channels_last) == seen.stride()
    volume = (2, 3, 4, 5, 6)
    assert strides.channels_last(volume) == torch.empty(volume, memory_format=torch.channels_last_3d).stride()


def operands():
    """Tensors that fit (2, 3, 4), in all orders of memory, with gaps, repeated, and of fewer dimensions."""
    for order in itertools.permutations(range(3)):
        shape = [(2, 3, 4)[k] for k in order]
        back = [order.index(k) for k in range(3)]
        yield torch.zeros(shape).permute(back)
        yield torch.zeros([*shape[:-1], shape[-1] * 2])[..., ::2].permute(back)
        for k in range(3):
            yield torch.zeros([1 if k == each else (2, 3, 4)[each] for each in order]).permute(back)
    yield from (torch.zeros(4), torch.zeros(4, 3).t(), torch.zeros(()), torch.zeros(2, 1, 1).expand(2, 3, 4))


def test_results_of_several_operands():
    """The layout of an elementwise operator's result, of every two operands."""
    for left, right in itertools.product(list(operands()), repeat=2):
        shape = strides.broadcast((left.shape, right.shape))
        expected = left + right
        assert shape == expected.shape
        found = strides.iterated((left, right), shape, left.shape == right.shape == expected.shape)
        assert found == expected.stride(), (left.shape, left.stride(), right.shape, right.stride())


def test_common_shapes():
    for left, right in itertools.product(SHAPES, repeat=2):
        left, right = left[:2], right
        try:
            expected = torch.broadcast_shapes(left, right)
        except RuntimeError:
            with pytest.raises(RuntimeError, match="must match"):
                strides.broadcast((left, right))
            continue
        assert strides.broadcast((left, right)) == strides.broadcast((right, left)) == expected


def test_dimensions_from_the_end():
    for rank in (1, 2, 4):
        assert [wrap_dim(k, rank) for k in range(-rank, rank)] == [*range(rank)] * 2
        for beyond in (rank, -rank - 1):
            with pytest.raises(IndexError, match="Dimension out of range"):
                wrap_dim(beyond, rank)
    assert (wrap_dim(0, 0), wrap_dim(-1, 0)) == (0, 0)
    assert wrap_dims((-1, 0), 3) == (2, 0)
