"""Kernels for derivatives, in Triton's interpreter: what the loop nests say, and what eager gives."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import torch

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.graph.operands import forget_contents, keep_places_in_windows
from lampwork.graph.simplify import remove_dead
from lampwork.graph.statistics import decompose_norms
from lampwork.ir.program import Launch
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from lampwork.lower.lower import Lowering
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import compare, run_program, scheduled
from tests.unit.lower.graphs import functional_graph, operators

pytestmark = pytest.mark.skipif(bool(available()), reason=available())
aten = torch.ops.aten


def check(function, *arguments, launches=None, passes=()):
    """Generated for a GPU, without calls of ATen, and equal to eager; in so many launches if that is given."""
    graph = replace(functional_graph(function, arguments), device="cuda:0")
    for each in (*passes, remove_dead):
        graph = each(graph)
    with mock.patch.object(Lowering, "device_of", lambda self, tensor: ""):
        lowered = lower(graph, Settings())
    verify_lowered(lowered)
    assert not operators(lowered)[1], "called through ATen"
    program = scheduled(lowered)
    found = run_program(program, arguments)
    compare(found, interpret_lowered(lowered, arguments))
    expected = function(*arguments)
    for ours, theirs in zip(found, expected if isinstance(expected, tuple) else (expected,)):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    if launches is not None:
        assert sum(isinstance(step, Launch) for step in program.steps) <= launches


def rows(*shape):
    return torch.randn(*shape)


def test_gelu_and_the_gradient_of_its_bias():
    def gradients(g, x):
        of_input = aten.gelu_backward(g, x)
        return of_input, of_input.sum(0)

    check(gradients, rows(64, 96), rows(64, 96))


@pytest.mark.parametrize("name", ["silu_backward", "mish_backward", "hardswish_backward", "tanh_backward"])
def test_activations(name):
    check(getattr(aten, name), rows(33, 70), rows(33, 70), launches=1)


def test_layer_norm():
    x, w = rows(48, 80), rows(80)
    _, mean, rstd = aten.native_layer_norm(x, [80], w, w, 1e-5)
    mask = [True, True, True]
    check(
        lambda g, x, m, r, w: aten.native_layer_norm_backward(g, x, [80], m, r, w, w, mask), rows(48, 80), x, mean,
        rstd, w,
    )  # fmt: skip


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm(train):
    x, w = rows(4, 6, 5, 7), rows(6)
    mean, rstd = x.mean((0, 2, 3)), x.var((0, 2, 3)).rsqrt()
    check(
        lambda g, x, w, m, r: aten.native_batch_norm_backward(g, x, w, m, r, m, r, train, 1e-5, [True, True, True]),
        rows(4, 6, 5, 7), x, w, mean, rstd,
    )  # fmt: skip


def test_group_norm():
    x, w = rows(3, 6, 4, 5), rows(6)
    _, mean, rstd = aten.native_group_norm(x, w, w, 3, 6, 20, 2, 1e-5)
    mask = [True, True, True]
    check(
        lambda g, x, m, r, w: aten.native_group_norm_backward(g, x, m, r, w, 3, 6, 20, 2, mask), rows(3, 6, 4, 5), x,
        mean, rstd, w,
    )  # fmt: skip


def test_softmax():
    y = rows(40, 70).softmax(-1)
    check(lambda g, y: aten._softmax_backward_data(g, y, -1, torch.float32), rows(40, 70), y, launches=1)


def test_cross_entropy():
    def gradient(logits, target):
        y = aten._log_softmax(logits, 1, False)
        loss, total = aten.nll_loss_forward(y, target, None, 1, -100)
        picked = aten.nll_loss_backward(loss, y, target, None, 1, -100, total)
        return loss, aten._log_softmax_backward_data(picked, y, 1, torch.float32)

    target = torch.randint(0, 50, (32,))
    target[3] = -100
    check(gradient, rows(32, 50), target)


def test_cross_entropy_of_padded_rows():
    """As a product made wider gives them, and asks for their gradient."""

    def gradient(logits, target, top, total, count, g):
        y = logits[:, :50] - top - total.log()
        picked = aten.nll_loss_backward(g, y, target, None, 1, -100, count)
        return aten.constant_pad_nd(aten._log_softmax_backward_data(picked, y, 1, torch.float32), [0, 6])

    logits, target = rows(32, 56), torch.randint(0, 50, (32,))
    target[3] = -100
    top = logits[:, :50].amax(1, True)
    total = (logits[:, :50] - top).exp().sum(1, True)
    check(gradient, logits, target, top, total, torch.tensor(31.0), torch.tensor(0.5), launches=1)


def test_slices():
    def gradient(a, b):
        return aten.slice_backward(a, [16, 64], 1, 0, 40, 1) + aten.slice_backward(b, [16, 64], 1, 40, 64, 1)

    check(gradient, rows(16, 40), rows(16, 24), launches=1)


@pytest.mark.parametrize("kernel, stride, padding", [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_pools(kernel, stride, padding):
    x = rows(2, 3, 9, 10)
    geometry = [kernel] * 2, [stride] * 2, [padding] * 2
    values, indices = aten.max_pool2d_with_indices(x, *geometry)
    check(
        lambda g, x, at: aten.max_pool2d_with_indices_backward(g, x, *geometry, [1, 1], False, at),
        torch.randn_like(values), x, indices,
    )  # fmt: skip
    check(lambda x: aten.max_pool2d_with_indices(x, *geometry), x)
    check(
        lambda g, x: aten.avg_pool2d_backward(g, x, *geometry, False, False, None), torch.randn_like(values), x,
    )  # fmt: skip


@pytest.mark.parametrize("kernel, stride, padding, width", [(2, 2, 0, 10), (3, 2, 1, 10), (3, 2, 1, 140)])
def test_pools_that_keep_places_in_windows(kernel, stride, padding, width):
    x = rows(1, 2, 9, width)
    geometry = [kernel] * 2, [stride] * 2, [padding] * 2

    def both(g, x):
        values, at = aten.max_pool2d_with_indices(x, *geometry)
        return values, aten.max_pool2d_with_indices_backward(g, x, *geometry, [1, 1], False, at)

    shape = aten.max_pool2d_with_indices(x, *geometry)[0].shape
    check(both, rows(*shape), x, passes=(keep_places_in_windows, forget_contents))


@pytest.mark.parametrize("affine", [True, False])
def test_norms_taken_apart(affine):
    x, w, b = rows(3, 6, 4, 5), rows(6) if affine else None, rows(6) if affine else None
    operands = (w, b) if affine else ()

    def group(x, w=None, b=None):
        return tuple(aten.native_group_norm(aten.sin(x), w, b, 3, 6, 20, 2, 1e-5))

    def batch(x, w=None, b=None):
        return tuple(aten._native_batch_norm_legit.no_stats(aten.sin(x), w, b, True, 0.1, 1e-5))

    for function in (group, batch):
        check(function, x, *operands, passes=(decompose_norms,))


def test_repeated_pixels():
    check(lambda g: aten.upsample_nearest2d_backward(g, [8, 12], [2, 3, 4, 6]), rows(2, 3, 8, 12), launches=1)


def test_gather_from_the_gradient_of_a_diagonal():
    """Rows that a computed number of columns decides."""
    index = torch.randint(0, 4, (5, 1, 10))
    check(lambda g, i: aten.gather(aten.diagonal_backward(g, [5, 4, 10], 1, 0, 1), 1, i % 5), rows(10, 3), index)
