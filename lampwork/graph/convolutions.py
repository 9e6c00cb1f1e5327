"""Convolutions that are cheaper as another call of the vendor's, with the bias added by a kernel of our own.

    %c = convolution(%x, %weight, %bias, ...)   # 1x1       %m = mm(view(%weight, [64, 128]), view(%x, [128, 256]))
                                                      ->    %v = view(%m, [1, 64, 16, 16])
                                                            %c = add(%v, view(%bias, [1, 64, 1, 1]))

    %c = convolution(%x, %weight, %bias, ...)   # 3x3       %v = convolution(%x, %weight, None, ...)
                                                      ->    %c = add(%v, view(%bias, [1, 64, 1, 1]))

The addition fuses into whatever reads it. `split_biases` is the part of it for GPUs. There, the gradient of a bias
is a sum of ours, too, which fuses into whatever makes what is summed (`sum_bias_gradients`):

    %d = convolution_backward(%g, ..., [True, True, True])     %d = convolution_backward(%g, ..., [True, True, False])
    %b = getitem(%d, 2)                                   ->   %b = sum(%g, [0, 2, 3])

Licence: reassociates (the bias is added last, the gradient's terms in another order). Preconditions: packed
convolutions are placed already (freeze.py), and so are vendor products (products.py), which must not see these: they
are measured against the plain product. Non-goals: large and several images, grouped and transposed convolutions (as
products).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.symbolic import large_hint_of
from lampwork.graph.build import emit, same_metadata
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten

#: Multiplications up to which a 1x1 convolution of one image is cheaper as a product.
SMALL = 8_000_000


def simplify_convolutions(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with small 1x1 convolutions of one image as matrix products and without biases that cost a pass.

    Measured on an AVX-512 AMD machine, PyTorch 2.13, one and two cores. Time of a 1x1 convolution over time of the
    product: 1.8 at 384x128x8x8 (input and output channels, height, width), 2.1 at 128x64x16x16, 1.2 at 960x160x7x7; for
    8 images 0.7 to 1.1. Above SMALL it is 1.0 to 1.2, at 56x56 up to 2.6, when timed alone, but within ResNet-50 the
    products gained nothing on one core and lost up to a twentieth on two busy ones. ATen's plain algorithm
    writes the bias before it adds the products: without it, 64x64x16x16 and 256x256x4x4 with 3x3 kernels take 0.8 of
    the time. The vendor's others add a bias for nothing.
    """
    for node in list(functional.graph.nodes):
        if node.op == "call_function" and node.target is aten.convolution.default:
            _simplify(functional.graph, node)
    return functional


def _simplify(graph: torch.fx.Graph, node: Node) -> None:
    x, weight, bias, stride, padding, dilation, is_transposed, output_padding, groups = node.args
    value = x.meta["val"]
    if is_transposed or not value.is_cpu or not value.dtype.is_floating_point or value.dtype.itemsize < 4:
        return
    geometry = (stride, padding, dilation, is_transposed, output_padding, groups)
    with graph.inserting_before(node):
        if is_product(node):
            new = _as_product(graph, node, x, weight)
        elif bias is not None and _torch.convolution_writes_bias_first(value, weight.meta["val"], *geometry):
            new = emit(graph, aten.convolution.default, (x, weight, None, *geometry), {}, node)
        else:
            return
        if bias is not None:
            row = [1, -1, *[1] * (value.dim() - 2)]
            new = emit(graph, aten.add.Tensor, (new, emit(graph, aten.view.default, (bias, row), {}, node)), {}, node)
    if not same_metadata(new.meta["val"], node.meta["val"]):
        return  # what was added is dead
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def is_product(node: Node) -> bool:
    """Whether convolution `node` multiplies one small contiguous image [1, K, ...] by a matrix [N, K, 1, ...]."""
    x, weight, _, stride, padding, dilation, is_transposed, _, groups = node.args
    value, kernel = x.meta["val"], weight.meta["val"]
    return (
        not is_transposed
        and groups == 1
        and value.dim() == kernel.dim()
        and value.size()[0] == 1
        and all(size == 1 for size in kernel.size()[2:])
        and all(step == 1 for step in stride)
        and all(step == 1 for step in dilation)  # others begin their sums with 0
        and all(width == 0 for width in padding)
        and value.is_contiguous()
        and kernel.is_contiguous()
        and 0 < large_hint_of(value.numel() * kernel.size()[0]) <= SMALL
    )


def split_biases(functional: FunctionalGraph) -> FunctionalGraph:
    """For GPUs: `functional` with the biases of cuDNN's convolutions added by whichever kernel reads the results.

    ATen adds them in a pass of its own over the output.
    """
    for node in list(functional.graph.nodes):
        if node.op == "call_function" and node.target is aten.convolution.default and node.args[2] is not None:
            x, weight, bias, *geometry = node.args
            value, kernel = x.meta["val"], weight.meta["val"]
            if _torch.convolution_adds_bias_last(value, kernel, *geometry):
                with functional.graph.inserting_before(node):
                    plain = emit(functional.graph, aten.convolution.default, (x, weight, None, *geometry), {}, node)
                _replace_by_sum(functional.graph, node, plain, bias)
    return functional


def sum_bias_gradients(functional: FunctionalGraph) -> FunctionalGraph:
    """For GPUs: `functional` with the gradients of convolutions' biases summed by kernels of ours.

    ATen sums them after the library's derivatives, in a launch of its own that reads the gradient again. Where nothing
    but the bias has a gradient, the derivative goes. Metadata and where sums are rounded are eager's. On CPUs oneDNN
    makes the sum beside that of the weight.
    """
    for node in list(functional.graph.nodes):
        if node.op != "call_function" or node.target is not aten.convolution_backward.default:
            continue
        gradient: Any = node.args[0]
        wanted: Any = node.args[10]
        if not wanted[2]:
            continue
        sums = [user for user in node.users if user.target is _torch.getitem and user.args[1] == 2]
        pixels = [0, *range(2, gradient.meta["val"].dim())]
        for each in sums:
            with functional.graph.inserting_before(each):
                new = emit(functional.graph, aten.sum.dim_IntList, (gradient, pixels), {}, each)
            if not same_metadata(new.meta["val"], each.meta["val"]):
                break  # what was added is dead
            each.replace_all_uses_with(new)
            functional.graph.erase_node(each)
        else:
            node.update_arg(10, [*wanted[:2], False])
            node.meta["val"] = (*node.meta["val"][:2], None)
            if not node.users:
                functional.graph.erase_node(node)
    return functional


def _replace_by_sum(graph: torch.fx.Graph, node: Node, plain: Node, bias: Node) -> None:
    """Puts `plain` plus `bias` in the place of convolution `node`, where that is laid out as `node` is."""
    with graph.inserting_before(node):
        row = [1, -1, *[1] * (node.meta["val"].dim() - 2)]
        new = emit(graph, aten.add.Tensor, (plain, emit(graph, aten.view.default, (bias, row), {}, node)), {}, node)
    if same_metadata(new.meta["val"], node.meta["val"]):  # else what was added is dead
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _as_product(graph: torch.fx.Graph, node: Node, x: Node, weight: Node) -> Node:
    channels, *space = x.meta["val"].size()[1:]
    outputs = weight.meta["val"].size()[0]
    factor = emit(graph, aten.view.default, (weight, [outputs, channels]), {}, node)
    pixels = emit(graph, aten.view.default, (x, [channels, math.prod(space)]), {}, node)
    product = emit(graph, aten.mm.default, (factor, pixels), {}, node)
    return emit(graph, aten.view.default, (product, [1, outputs, *space]), {}, node)
