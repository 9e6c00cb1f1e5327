"""Gradients of convolutions' biases as sums of ours. The pass is for GPUs; here its graphs are interpreted on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lampwork.capture.record.recorder import record
from lampwork.debug.interpret.graphs import run_functional
from lampwork.graph.convolutions import sum_bias_gradients
from lampwork.graph.functionalize import functionalize
from lampwork.graph.simplify import remove_dead
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten
MASKS = [(True, True, True), (True, False, True), (False, True, True), (False, False, True)]


def taken_apart(function: Any, *inputs: torch.Tensor, **tolerance: float) -> FunctionalGraph:
    """The graph after the pass, whose results are compared with eager's."""
    with torch.no_grad():
        functional = sum_bias_gradients(functionalize(record(function, inputs)))
        functional.graph.lint()
        expected = function(*inputs)
        results = run_functional(functional, inputs)
    for result, wanted in zip(results, expected, strict=True):
        assert (result.dtype, result.stride()) == (wanted.dtype, wanted.stride())
        torch.testing.assert_close(result, wanted, **tolerance)
    return functional


def derivatives(functional: FunctionalGraph) -> list[torch.fx.Node]:
    return [node for node in functional.graph.nodes if node.target is aten.convolution_backward.default]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(("transposed", "groups"), [(False, 1), (False, 2), (True, 1), (True, 2)])
def test_the_derivative_leaves_the_sum_to_us(dims, transposed, groups, mask):
    x = torch.randn(2, 4, *[5] * dims)
    weight = torch.randn(4 if transposed else 6, (6 if transposed else 4) // groups, *[3] * dims)
    geometry = ([2] * dims, [1] * dims, [1] * dims, transposed, [1 if transposed else 0] * dims, groups)
    gradient = torch.randn_like(aten.convolution(x, weight, None, *geometry))

    def function(gradient, x, weight):
        found = aten.convolution_backward(gradient, x, weight, [6], *geometry, list(mask))
        return tuple(each for each, wanted in zip(found, mask) if wanted)

    functional = taken_apart(function, gradient, x, weight, rtol=1e-4, atol=1e-4)
    assert [list(node.args[10]) for node in derivatives(functional)] == ([[*mask[:2], False]] if any(mask[:2]) else [])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_types_and_layouts(dtype, layout):
    x, weight = torch.randn(2, 4, 6, 5, dtype=dtype).to(memory_format=layout), torch.randn(8, 4, 3, 3, dtype=dtype)
    gradient = torch.randn(2, 8, 4, 3, dtype=dtype).to(memory_format=layout)
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

    def function(gradient, x, weight):
        return (aten.convolution_backward(gradient, x, weight, [8], *geometry, [False, True, True])[2],)

    taken_apart(function, gradient, x, weight, rtol=1e-2 if dtype.itemsize == 2 else 1e-12, atol=1e-12)


def test_a_sum_that_nobody_reads_is_not_made():
    x, weight, gradient = torch.randn(2, 4, 6, 5), torch.randn(8, 4, 3, 3), torch.randn(2, 8, 4, 3)
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

    def function(gradient, x, weight):
        return aten.convolution_backward(gradient, x, weight, [8], *geometry, [True, True, True])[:2]

    functional = remove_dead(taken_apart(function, gradient, x, weight))
    assert not any(node.target is aten.sum.dim_IntList for node in functional.graph.nodes)
    assert [list(node.args[10]) for node in derivatives(functional)] == [[True, True, False]]
