"""Strides of eager's results on a GPU (torch 2.11 on an H100), by the shape rules on fakes of CUDA tensors."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from lampwork.capture.record.recorder import Recorder
from lampwork.fakes.fake import TensorSpec, make_fake
from lampwork.fakes.shapes import infer
from tests.cuda_stand_in import CUDA, cuda_stand_in

aten = torch.ops.aten


def on_gpu(shape, strides=None, dtype=torch.float32):
    strides = torch.empty(shape, device="meta").stride() if strides is None else strides
    return make_fake(TensorSpec(shape, strides, dtype, CUDA))


def strides_of(op, *args):
    with cuda_stand_in(), torch.no_grad():
        found = infer(op, args, {})
    return [None if each is None else each.stride() for each in found]


ROWS = [
    ((1, 2), (1, 1)), ((1, 1, 1, 33), (1, 33, 33, 1)), ((0, 1), (1, 1)), ((2, 1, 0), (1, 2, 2)), ((1, 1, 2), (2, 1, 1)),
    ((2, 1, 1, 1), (1, 2, 2, 2)), ((3, 4), (1, 3)), ((2, 4), (0, 1)), ((2, 3, 4, 5), (60, 1, 15, 3)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize(("shape", "strides"), ROWS)
def test_rms_norm_writes_rows_in_order(shape, strides, dtype):
    x, weight = on_gpu(shape, strides, dtype), on_gpu(shape[-1:], (1,), dtype)
    dense, rows = torch.empty(shape).stride(), (*shape[:-1], 1)
    statistics = torch.empty(rows).stride()
    for each in (weight, None):
        assert strides_of(aten._fused_rms_norm.default, x, shape[-1:], each, None) == [dense, statistics]
    rstd = on_gpu(rows, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    backward = aten._fused_rms_norm_backward.default
    assert strides_of(backward, x, x, shape[-1:], rstd, weight, [True, True]) == [dense, (1,)]
    assert strides_of(backward, x, x, shape[-1:], rstd, None, [True, False]) == [dense, None]


#: Shape and strides of the input and of the weight -> strides of their gradients, the result's being contiguous.
IMAGES = {
    torch.float64: [
        ((1, 2, 1, 1, 1), (2, 1, 2, 2, 2), (1, 2, 1, 1, 1), None, (2, 1, 1, 1, 1), (2, 1, 1, 1, 1)),
        ((2, 3, 4, 4, 4), (192, 1, 48, 12, 3), (2, 3, 2, 2, 2), None, (192, 64, 16, 4, 1), (24, 8, 4, 2, 1)),
        ((2, 3, 4, 4), (48, 1, 12, 3), (2, 3, 2, 2), (12, 1, 6, 3), (48, 16, 4, 1), (12, 4, 2, 1)),
    ],
    torch.float32: [
        ((1, 2, 1, 1, 1), (2, 1, 2, 2, 2), (1, 2, 1, 1, 1), None, (2, 1, 1, 1, 1), (2, 1, 2, 2, 2)),
        ((1, 2, 1, 1, 1), (2, 1, 1, 1, 1), (1, 2, 1, 1, 1), (2, 1, 2, 2, 2), (2, 1, 2, 2, 2), (2, 1, 1, 1, 1)),
        ((2, 3, 4, 4, 4), (192, 64, 16, 4, 1), (2, 3, 2, 2, 2), (24, 1, 12, 6, 3), (192, 1, 48, 12, 3), (24, 1, 12, 6, 3)),
        ((2, 3, 4, 4), (48, 1, 12, 3), (2, 3, 2, 2), None, (48, 1, 12, 3), (12, 1, 6, 3)),
        ((2, 3, 4, 4), (48, 16, 4, 1), (2, 3, 2, 2), None, (48, 16, 4, 1), (12, 4, 2, 1)),
        ((1, 2, 1), (2, 1, 2), (1, 2, 1), None, (2, 1, 1), (2, 1, 2)),
        ((2, 3, 4), (12, 1, 3), (2, 3, 2), None, (12, 4, 1), (6, 2, 1)),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "row"), [(dtype, row) for dtype, rows in IMAGES.items() for row in rows])
def test_gradients_of_convolutions_by_cudnn(dtype, row):
    shape, strides, kernel, kernel_strides, of_input, of_weight = row
    dims = len(shape) - 2
    x, weight = on_gpu(shape, strides, dtype), on_gpu(kernel, kernel_strides, dtype)
    out = [shape[0], kernel[0], *(a - b + 1 for a, b in zip(shape[2:], kernel[2:]))]
    geometry = ([0], [1] * dims, [0] * dims, [1] * dims, False, [0] * dims, 1, [True, True, False])
    with mock.patch("lampwork._torch.convolution_adds_bias_last", lambda *args: True):
        found = strides_of(aten.convolution_backward.default, on_gpu(tuple(out), dtype=dtype), x, weight, *geometry)
    assert found == [of_input, of_weight, None]


MIXED = [
    ((2, 2), (0, 2), torch.float32, (1, 1, 2, 2), (1, 2, 1, 2), torch.float64, (1, 2, 1, 2)),
    ((2, 1), (1, 2), torch.float32, (2, 1), (0, 1), torch.bfloat16, (1, 2)),
    ((2, 1), (0, 1), torch.bfloat16, (2, 1), (1, 2), torch.float32, (1, 2)),
]


@pytest.mark.parametrize(
    "op", [aten.remainder.Tensor, aten.mul.Tensor, aten.add.Tensor, aten.div.Tensor, aten.lt.Tensor]
)
@pytest.mark.parametrize("row", MIXED)
def test_operands_of_another_type_are_cast_as_they_are_read(row, op):
    """On a CPU a copy is cast, whose strides count."""
    *one, other_shape, other_strides, other_dtype, expected = row
    one, other = on_gpu(*one), on_gpu(other_shape, other_strides, other_dtype)
    with cuda_stand_in(), torch.no_grad():
        assert infer(op, (one, other), {}).stride() == expected


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (3, 2), (1, 1, 4), (3, 1, 1), (2, 3, 4)])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_is_picked_lies_as_on_a_cpu(shape, count):
    """Kernels that read indices are not asked on a GPU."""
    expected = torch.ones(shape)[torch.zeros(count, dtype=torch.int64)]
    with cuda_stand_in(), torch.no_grad():
        found = infer(aten.index.Tensor, (on_gpu(shape), [on_gpu((count,), dtype=torch.int64)]), {})
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("strides", [(1, 1, 0, 1), (1, 1, 1, 1), (7, 3, 2, 5)])
def test_gradients_of_losses_of_one_point(strides):
    """They are made like the input, whose dimensions of one element may have any strides."""
    x, gradient, target = on_gpu((1, 1, 1, 1), strides), on_gpu((1, 1, 1)), on_gpu((1, 1, 1), dtype=torch.int64)
    with cuda_stand_in(), torch.no_grad():
        found = infer(aten.nll_loss2d_backward.default, (gradient, x, target, None, 0, -100, on_gpu(())), {})
    assert found.stride() == strides


#: Shape and strides of the input -> strides of what is normalised: by ATen's kernels, and by cuDNN's if it takes it.
NORMALISED = [
    ((3, 2), (1, 3), (1, 3), None), ((2, 3, 4), (1, 2, 6), (1, 2, 6), None), ((2, 3, 4), (2, 4, 12), (1, 2, 6), None),
    ((2, 1, 4), (4, 8, 1), (4, 8, 1), (4, 4, 1)), ((2, 3, 2, 3), (36, 2, 18, 6), (18, 1, 9, 3), None),
    ((2, 3, 2, 3), (18, 1, 9, 3), (18, 1, 9, 3), (18, 1, 9, 3)), ((1, 2, 2, 1), (1, 2, 1, 1), (1, 2, 1, 1), (4, 2, 1, 1)),
    ((2, 3, 1, 1), (3, 1, 3, 3), (3, 1, 3, 3), (3, 1, 3, 3)), ((2, 2, 0, 3), (12, 6, 6, 2), (12, 6, 6, 2), None),
    ((2, 3, 9, 9, 9), (1, 1458, 162, 18, 2), (1, 1458, 162, 18, 2), None),
]  # fmt: skip


@pytest.mark.parametrize("row", NORMALISED)
def test_batch_norms_preserve_the_order_of_dimensions(row):
    shape, strides, expected, by_cudnn = row
    for dtype in (torch.float32, torch.bfloat16):
        x, channels = on_gpu(shape, strides, dtype), [on_gpu(shape[1:2]) for _ in range(4)]
        for op in (aten._native_batch_norm_legit_functional.default, aten.native_batch_norm.default):
            training = op is not aten.native_batch_norm.default
            assert strides_of(op, x, *channels, training, 0.1, 1e-5)[0] == expected
    if by_cudnn is not None:
        recorder, channels = Recorder(), [torch.ones(shape[1:2]) for _ in range(4)]
        with cuda_stand_in(), torch.no_grad():
            arguments = [recorder.input(each) for each in (torch.empty_strided(shape, strides), *channels)]
            with recorder.recording():
                assert aten.cudnn_batch_norm.default(*arguments, True, 0.1, 1e-5)[0].stride() == by_cudnn


@pytest.mark.parametrize(
    ("shape", "gradient", "strides", "expected"),
    [
        ((3, 2), (1, 3), (1, 3), (2, 1)), ((2, 3, 4), (1, 2, 6), (2, 4, 12), (12, 4, 1)),
        ((2, 3, 4), (12, 1, 3), (12, 1, 3), (12, 4, 1)), ((2, 3, 2, 3), (18, 1, 9, 3), (18, 1, 9, 3), (18, 1, 9, 3)),
        ((2, 3, 2, 2, 2), (24, 8, 4, 2, 1), (1, 2, 6, 12, 24), (24, 8, 4, 2, 1)),
        ((2, 3, 2, 2, 2), (24, 1, 12, 6, 3), (24, 1, 12, 6, 3), (24, 1, 12, 6, 3)),
    ],
)  # fmt: skip
def test_gradients_of_batch_norms_are_contiguous_or_channels_last(shape, gradient, strides, expected):
    channels = on_gpu(shape[1:2])
    arguments = on_gpu(shape, gradient), on_gpu(shape, strides), *[channels] * 5
    assert strides_of(aten.native_batch_norm_backward.default, *arguments, True, 1e-5, [True] * 3)[0] == expected


@pytest.mark.parametrize(("shape", "strides"), [((2, 1, 3, 2), (6, 1, 2, 1)), ((2, 3, 1, 1), (3, 1, 3, 3))])
def test_group_norms_take_for_contiguous_what_may_be(shape, strides):
    sizes = shape[0], shape[1], shape[2] * shape[3], 1
    found = strides_of(aten.native_group_norm.default, on_gpu(shape, strides), None, None, *sizes, 1e-5)
    assert found[0] == torch.empty(shape).stride()


@pytest.mark.parametrize("shape", [(1, 1, 0), (1, 1, 0, 1), (2, 3, 0), (2, 0, 3), (1, 0, 1)])
@pytest.mark.parametrize("index", [(1,), (2, 1), (1, 2)])
def test_what_is_picked_of_nothing_lies_as_on_a_cpu(shape, index):
    for each in (torch.empty(shape), torch.empty(shape[::-1]).permute(*range(len(shape))[::-1])):
        place = (slice(None),) * (shape[0] == 0 or shape[1] != 0) + (torch.zeros(index, dtype=torch.int64),)
        expected = each[place]
        picked = [None] * (len(place) - 1) + [on_gpu(index, dtype=torch.int64)]
        with cuda_stand_in(), torch.no_grad():
            found = infer(aten.index.Tensor, (on_gpu(shape, each.stride()), picked), {})
        assert found.stride() == expected.stride() and found.device == CUDA
