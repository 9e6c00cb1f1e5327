"""Small tensors that are laid out as large ones are."""

from __future__ import annotations

import random

import pytest
import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.stand_ins import CannotAsk, Reduced, TooLarge


def fake(size, stride):
    return _torch.tensor_without_memory(Fake, tuple(size), tuple(stride), torch.float32, torch.device("cpu"))


def test_what_is_dense_stays_dense_and_what_has_gaps_keeps_them():
    dense, spaced = fake((2, 512, 64), (32768, 64, 1)), fake((512, 64), (128, 1))
    small = Reduced((dense, spaced))
    assert small.layout(dense) == ((2, 4, 3), (12, 3, 1))
    size, stride = small.layout(spaced)
    assert size == (4, 3) and stride[0] > 3 and stride[1] == 1
    assert small.stride((512, 1, 64), (64, 64, 1)) == (3, 3, 1)
    assert small.stride((512, 1, 64), (64, 32768, 1)) == (3, 12, 1)
    assert small.stride((512, 1, 64), (64, 1, 1)) == (3, 1, 1)
    assert small.stride((512, 64), (0, 1)) == (0, 1)


def test_sizes_keep_their_order():
    tensors = [fake((7, 1000, 30, 2, 1), (0,) * 5), fake((30, 8), (8, 1))]
    small = Reduced(tensors)
    assert small.size((1, 2, 7, 8, 30, 1000)) == (1, 2, 3, 4, 5, 6)


def test_what_nothing_small_stands_for():
    with pytest.raises(TooLarge):
        Reduced([fake((3, 4, 5, 6, 7, 8, 9), (0,) * 7)])
    overlapping = fake((60, 70), (1, 1))
    with pytest.raises(CannotAsk):
        Reduced([overlapping]).layout(overlapping)


def test_kernels_lay_out_small_operands_as_large_ones():
    """The order of dimensions that `TensorIterator` chooses for two operands, of any layouts."""
    choose = random.Random(0)
    compared = 0
    for _ in range(300):
        sizes = [choose.choice((1, 2, 30, 50)) for _ in range(choose.choice((2, 3)))]
        operands = []
        for _ in range(2):
            order = choose.sample(range(len(sizes)), len(sizes))
            gap = choose.choice((0, 0, 3))
            made = torch.zeros([sizes[dim] + gap for dim in order]).permute([order.index(d) for d in range(len(sizes))])
            operands.append(made[tuple(slice(size) for size in sizes)])
        fakes = [fake(each.size(), each.stride()) for each in operands]
        small = Reduced(fakes)
        try:
            stand_ins = [torch.empty_strided(*small.layout(each)) for each in fakes]
        except CannotAsk:
            continue
        compared += 1
        large, little = operands[0] + operands[1], stand_ins[0] + stand_ins[1]
        assert small.size(large.size()) == tuple(little.size())
        assert small.stride(large.size(), large.stride()) == little.stride()
    assert compared > 200
