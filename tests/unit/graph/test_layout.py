"""Convolutions with channels last. The pass is run on the CPU, whose convolutions follow their operands' layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.record.recorder import record
from lampwork.config import make_settings
from lampwork.debug.interpret.graphs import run_functional
from lampwork.graph.freeze import fold_batch_norms
from lampwork.graph.functionalize import functionalize
from lampwork.graph.layout import order_convolutions
from lampwork.graph.simplify import embed_literals, remove_dead
from lampwork.ir.region import FunctionalGraph
from lampwork.lower import lower

aten = torch.ops.aten
X = torch.randn(2, 4, 6, 6)
FIRST, SECOND = torch.randn(5, 4, 3, 3), torch.randn(3, 5, 3, 3)


def ordered(function: Any, *inputs: torch.Tensor, freeze: bool = False) -> FunctionalGraph:
    """The graph after the pass, whose results are compared with eager's."""
    settings = make_settings(options={"freeze": freeze})
    with torch.no_grad():
        functional = embed_literals(functionalize(record(function, inputs)))
        if freeze:
            functional = remove_dead(fold_batch_norms(functional))
        functional = order_convolutions(functional, settings, wanted=lambda node: True)
        functional.graph.lint()
        torch.manual_seed(0)
        results = run_functional(functional, [each.clone() for each in inputs])
        torch.manual_seed(0)
        expected = function(*inputs)
        for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
            assert result.stride() == wanted.stride()
        lower(functional, settings)
    for node in functional.graph.nodes:
        if node.target is aten.convolution.default:
            assert node.meta["val"].is_contiguous(memory_format=torch.channels_last)
    return functional


def copies(functional: FunctionalGraph) -> int:
    return sum(node.target is aten.clone.default for node in functional.graph.nodes)


def test_between_convolutions_nothing_is_copied():
    def function(x, first, second):
        return F.conv2d(F.relu(F.conv2d(x, first)), second).tanh()

    assert copies(ordered(function, X, FIRST, SECOND)) == 4  # image, two weights, result
    frozen = ordered(function, X, FIRST, SECOND, freeze=True)
    assert [recipe[0] for recipe in frozen.derived].count("channels_last") >= 2


@pytest.mark.parametrize("function", [
    lambda x, w: F.max_pool2d(F.conv2d(x, w), 2),
    lambda x, w: (F.conv2d(x, w), F.conv2d(x, w).flatten(1)),
    lambda x, w: F.conv2d(x, w).view(2, -1).softmax(1),
    lambda x, w: F.group_norm(F.conv2d(x, w), 5).relu(),
    lambda x, w: F.layer_norm(F.conv2d(x, w), (4, 4)),
    lambda x, w: F.dropout(F.conv2d(x, w), 0.5),
    lambda x, w: F.conv2d(x, w) * torch.rand_like(F.conv2d(x, w)),
    lambda x, w: F.conv2d(x, w).as_strided((2, 3), (7, 2), 1),
    lambda x, w: F.conv2d(x, w).transpose(0, 1)[1:, :, ::2].sum(2),
    lambda x, w: F.conv2d(x, w).flatten(2).transpose(1, 2) @ torch.ones(5, 2),
    lambda x, w: torch.cat([F.conv2d(x, w), x[:, :, :4, :4]], 1).mean((2, 3)),
    lambda x, w: F.batch_norm(F.conv2d(x, w), torch.zeros(5), torch.ones(5)),
    lambda x, w: F.scaled_dot_product_attention(*[F.conv2d(x, w)] * 3),
    lambda x, w: F.conv_transpose2d(F.conv2d(x, w), w).clone(),
    lambda x, w: F.conv2d(x, w).sort(1),
    lambda x, w: F.interpolate(F.conv2d(x, w), scale_factor=2.0),
    lambda x, w: F.conv2d(x, w).to(torch.float64).cumsum(2),
    lambda x, w: F.conv2d(x, w)[torch.tensor([1, 0])],
])  # fmt: skip
def test_what_follows_computes_the_same(function):
    ordered(function, X, FIRST)


def derivatives(x, w, gradient, images=True, weights=True, bias=False):
    return aten.convolution_backward(
        gradient, x, w, [w.size(0)], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [images, weights, bias]
    )


GRADIENT = torch.randn(2, 5, 4, 4)


@pytest.mark.parametrize("function", [
    lambda x, w, g: tuple(derivatives(x, w, g, bias=True)),
    lambda x, w, g: derivatives(x, w, g)[1].float() * 2,
    lambda x, w, g: derivatives(x.relu(), w, g * F.conv2d(x.relu(), w))[0].tanh() + x,
    lambda x, w, g: [each for each in derivatives(x, w, g, images=False) if each is not None][0],
    lambda x, w, g: [each for each in derivatives(x, w, g, weights=False) if each is not None][0].view(2, -1),
    lambda x, w, g: aten.upsample_nearest2d_backward(derivatives(x, w, g)[0], [6, 6], [2, 4, 3, 3], 2.0, 2.0),
    lambda x, w, g: aten.native_group_norm_backward(
        derivatives(x, w, g)[0], x, torch.ones(2, 2), torch.ones(2, 2), torch.ones(4), 2, 4, 36, 2, [True, True, True]
    )[0],
    lambda x, w, g: aten.native_batch_norm_backward(
        derivatives(x, w, g)[0], x.sin(), torch.rand(4), None, None, torch.ones(4), torch.ones(4), True, 1e-5,
        [True, True, True],
    )[0],
    lambda x, w, g: aten.max_pool2d_with_indices_backward(
        F.conv2d(derivatives(x, w, g)[0], w), F.conv2d(x, w), [1, 1], [1, 1], [0, 0], [1, 1], False,
        aten.max_pool2d_with_indices(F.conv2d(x, w), [1, 1])[1],
    ),
    lambda x, w, g: aten.native_group_norm_backward(
        derivatives(x, w, g)[0], derivatives(x, w, g.sin())[0], torch.ones(2, 2), torch.ones(2, 2), torch.ones(4),
        2, 4, 36, 2, [True, True, True],
    )[0],
    lambda x, w, g: derivatives(x, w[:, :, :1, :1].contiguous(), torch.ones(2, 5, 6, 6))[1].view(5, 4),
])  # fmt: skip
def test_derivatives_compute_the_same(function):
    made = ordered(function, X, FIRST, GRADIENT)
    for node in made.graph.nodes:
        if node.target is aten.convolution_backward.default:
            assert all(each.meta["val"].is_contiguous(memory_format=torch.channels_last) for each in node.args[:3])


def test_both_passes_share_what_is_copied():
    """The image and the weight once, the gradient, what comes out."""

    def function(x, w, gradient):
        result = F.conv2d(x, w)
        return derivatives(x, w, gradient * result.cos())[:2]

    made = ordered(function, X, FIRST, GRADIENT)
    assert copies(made) == 5  # two operands, the gradient, two results
    (forward,) = [node for node in made.graph.nodes if node.target is aten.convolution.default]
    (backward,) = [node for node in made.graph.nodes if node.target is aten.convolution_backward.default]
    assert forward.args[:2] == backward.args[1:3]


def test_writes_and_views_of_inputs():
    def function(x, w, running):
        running.copy_(F.conv2d(x, w))
        return running.relu()

    ordered(function, X, FIRST, torch.zeros(2, 5, 4, 4))


def test_folded_weights_are_made_with_channels_last():
    statistics = [torch.rand(5) + 0.5 for _ in range(4)]

    def function(x, w, mean, variance, gamma, beta):
        return F.batch_norm(F.conv2d(x, w), mean, variance, gamma, beta).relu()

    frozen = ordered(function, X, FIRST, *statistics, freeze=True)
    assert [recipe[2] for recipe in frozen.derived if "weight" in recipe[0]] == [(1e-5, ("channels_last",))]
    assert copies(frozen) == 2  # image and result
