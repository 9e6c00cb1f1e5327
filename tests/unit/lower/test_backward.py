"""Derivatives as ATen computes them: special values, half types, layouts, and what shall not be computed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.ir.loops import LoopNest
from lampwork.lower import lower
from lampwork.lower.lower import Lowering
from tests.unit.lower.graphs import assert_like_eager, functional_graph, operators

aten = torch.ops.aten
EDGES = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 3.0, -3.0, 0.5, -0.5, 1.0, -1.0, 2.5, 30.0])
GRADIENT = torch.linspace(-2, 3, len(EDGES))

ACTIVATIONS = {
    "silu": lambda g, x: aten.silu_backward(g, x),
    "hardswish": lambda g, x: aten.hardswish_backward(g, x),
    "hardsigmoid": lambda g, x: aten.hardsigmoid_backward(g, x),
    "sigmoid": lambda g, y: aten.sigmoid_backward(g, y),
    "tanh": lambda g, y: aten.tanh_backward(g, y),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.5),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -0.5, 1.0),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "elu": lambda g, x: aten.elu_backward(g, 1.5, 2.0, 0.7, False, x),
    "elu of its result": lambda g, x: aten.elu_backward(g, 1.5, 2.0, 0.7, True, x),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 2.0, 20.0),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "logit": lambda g, x: aten.logit_backward(g, x, None),
    "logit, bounded": lambda g, x: aten.logit_backward(g, x, 0.1),
    "log_sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]),
    "mish": lambda g, x: aten.mish_backward(g, x),
    "gelu": lambda g, x: aten.gelu_backward(g, x),
    "gelu by tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "prelu": lambda g, x: aten._prelu_kernel_backward(g, x, torch.ops.aten.mul(x, 0.25)),
    "smooth_l1": lambda g, x: aten.smooth_l1_loss_backward(g, x, aten.neg(g), 1, 0.5),
    "smooth_l1 of nothing": lambda g, x: aten.smooth_l1_loss_backward(g, x, aten.neg(g), 1, 0.0),
    "huber": lambda g, x: aten.huber_loss_backward(g, x, aten.neg(g), 2, 0.5),
    "mse": lambda g, x: aten.mse_loss_backward(g, x, aten.neg(g), 1),
    "soft_margin": lambda g, x: aten.soft_margin_loss_backward(g, x, aten.sign(g), 0),
    "binary cross entropy": lambda g, x: aten.binary_cross_entropy_backward(g, x, aten.abs(g), None, 1),
}
#: Infinite inputs of eager's vectorised kernels give NaN where its scalar ones give numbers.
FINITE_ONLY = {"silu", "mish", "gelu", "gelu by tanh", "softplus", "elu"}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_derivatives_at_the_edges(name, dtype):
    g, x = GRADIENT.to(dtype), EDGES.to(dtype)
    if name in FINITE_ONLY:
        g, x = g[3:], x[3:]
    if dtype == torch.float64:
        g, x = g[1:], x[1:]  # NaN: eager's scalar and vectorised kernels differ
    if name == "logit":
        x = torch.where(x == 0, 0, x)  # -0.0: inf of eager's scalar kernel, -inf of its vectorised one
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    lowered = assert_like_eager(ACTIVATIONS[name], g, x, **tolerance)
    assert not operators(lowered)[1], "called through ATen"


@pytest.mark.parametrize("dims", [(0,), (0, 1)])
def test_softmax_of_half_types_sums_in_float32(dims):
    x = torch.randn(4, 5, 6).to(torch.bfloat16)
    y = x.float().softmax(-1).to(torch.bfloat16)
    assert_like_eager(lambda g, y: aten._softmax_backward_data(g, y, -1, torch.bfloat16), x, y, rtol=2e-2, atol=2e-2)


def test_a_picked_class_is_not_summed():
    """The gradient of cross entropy is one nest over the logits: no sum over the classes, nothing scattered."""
    logits, target = torch.randn(5, 7), torch.tensor([0, 6, -100, 3, 3])

    def gradient(logits, target):
        y = aten._log_softmax(logits, 1, False)
        loss, total = aten.nll_loss_forward(y, target, None, 1, -100)
        picked = aten.nll_loss_backward(loss, y, target, None, 1, -100, total)
        return aten._log_softmax_backward_data(picked, y, 1, torch.float32)

    lowered = assert_like_eager(gradient, logits, target)
    nests = [item for item in lowered.items if isinstance(item, LoopNest)]
    assert not any(nest.partial for nest in nests)
    assert not any(nest.reduction and nest.origin.op.endswith("softmax_backward_data.default") for nest in nests)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_over_images(weighted, reduction):
    x, target = torch.randn(2, 3, 4, 5).log_softmax(1), torch.randint(0, 3, (2, 4, 5))
    target[0, 0, 0] = -100
    weight = torch.rand(3) if weighted else None
    total = torch.tensor(float((target >= 0).sum()))
    g = torch.randn(2, 4, 5) if reduction == 0 else torch.tensor(1.5)

    def gradient(g, x, target, total, *weight):
        picked = aten.nll_loss2d_backward(g, x, target, weight[0] if weight else None, reduction, -100, total)
        return aten._log_softmax_backward_data(picked, x, 1, torch.float32)

    assert_like_eager(gradient, g, x, target, total, *([weight] if weighted else []))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_batch_norm_of_both_layouts(channels_last, train):
    x, g = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    if channels_last:
        x, g = (each.to(memory_format=torch.channels_last) for each in (x, g))
    mean, rstd = x.mean((0, 2, 3)), 1 / (x.var((0, 2, 3), unbiased=False) + 1e-5).sqrt()

    def gradient(g, x, w, mean, rstd):
        return aten.native_batch_norm_backward(g, x, w, mean, rstd, mean, rstd, train, 1e-5, [True, True, True])

    lowered = assert_like_eager(gradient, g, x, torch.randn(3), mean, rstd, rtol=1e-4, atol=1e-5)
    assert not operators(lowered)[1]


def test_slices_that_are_added_are_not_stored():
    """Gradients of slices among zeros: one nest each, which inlining puts into the sum."""
    a, b = torch.randn(3, 4), torch.randn(3, 2)

    def gradient(a, b):
        return aten.slice_backward(a, [3, 6], 1, 0, 4, 1) + aten.slice_backward(b, [3, 6], 1, 4, 6, 1)

    lowered = assert_like_eager(gradient, a, b)
    assert not operators(lowered)[1]


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_windows_that_overlap_are_added(step):
    count = (11 - 3) // step + 1
    windows = torch.randn(2, count, 3)
    lowered = assert_like_eager(lambda g: aten.unfold_backward(g, [2, 11], 1, 3, step), windows)
    assert not operators(lowered)[1]


# Pooling ----------------------------------------


def _channels_last(*tensors):
    return tuple(each.to(memory_format=torch.channels_last) for each in tensors)


@pytest.mark.parametrize(
    "kernel, stride, padding, ceil, counted", [
        (2, 2, 0, False, True), (3, 2, 1, False, True), (3, 2, 1, True, False), (3, 3, 0, False, True),
        (2, 3, 1, True, True), (3, 1, 1, False, False),
    ],
)  # fmt: skip
def test_averages(kernel, stride, padding, ceil, counted):
    (x,) = _channels_last(torch.randn(2, 3, 7, 9))
    geometry = ([kernel] * 2, [stride] * 2, [padding] * 2, ceil, counted, None)
    (g,) = _channels_last(torch.randn_like(aten.avg_pool2d(x, *geometry)))
    lowered = assert_like_eager(lambda g, x: aten.avg_pool2d_backward(g, x, *geometry), g, x, rtol=1e-4, atol=1e-5)
    assert not operators(lowered)[1]


@pytest.mark.parametrize(
    "kernel, stride, padding, dilation, ceil",
    [(2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 2, False), (2, 3, 1, 1, False)],
)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_maxima(kernel, stride, padding, dilation, ceil, on_gpu, monkeypatch):
    """Indices are ATen's; the derivative is generated for GPUs."""
    x = torch.randn(2, 3, 7, 9)
    x[0, 0, :3, :3] = 1.0  # the first of equal ones counts
    geometry = ([kernel] * 2, [stride] * 2, [padding] * 2, [dilation] * 2, ceil)
    if not on_gpu:
        lowered = assert_like_eager(lambda x: aten.max_pool2d_with_indices(x, *geometry), x)
        assert not operators(lowered)[1]
        return
    values, indices = aten.max_pool2d_with_indices(x, *geometry)
    gradient = lambda g, x, at: aten.max_pool2d_with_indices_backward(g, x, *geometry, at)
    arguments = torch.randn_like(values), x, indices
    functional = dataclasses.replace(functional_graph(gradient, arguments), device="cuda:0")
    monkeypatch.setattr(Lowering, "device_of", lambda self, tensor: "")
    lowered = lower(functional, Settings())
    assert not operators(lowered)[1]
    torch.testing.assert_close(interpret_lowered(lowered, arguments)[0], gradient(*arguments))


@pytest.mark.parametrize("factor", [2, 3])
def test_repeated_pixels(factor):
    (g,) = _channels_last(torch.randn(2, 3, 4 * factor, 5 * factor))
    sizes = [4 * factor, 5 * factor], [2, 3, 4, 5]
    lowered = assert_like_eager(lambda g: aten.upsample_nearest2d_backward(g, *sizes), g, rtol=1e-4, atol=1e-5)
    assert not operators(lowered)[1]


@pytest.mark.parametrize("weighted", [False, True])
def test_group_norm(weighted):
    x, g = torch.randn(2, 6, 4, 5), torch.randn(2, 6, 4, 5)
    weight = torch.randn(6) if weighted else None
    _, mean, rstd = aten.native_group_norm(x, weight, None, 2, 6, 20, 3, 1e-5)

    def gradient(g, x, mean, rstd, *weight):
        mask = [True, bool(weight), bool(weight)]
        found = aten.native_group_norm_backward(g, x, mean, rstd, weight[0] if weight else None, 2, 6, 20, 3, mask)
        return found if weight else found[0]

    lowered = assert_like_eager(gradient, g, x, mean, rstd, *([weight] if weighted else []), rtol=1e-4, atol=1e-5)
    assert not operators(lowered)[1]
