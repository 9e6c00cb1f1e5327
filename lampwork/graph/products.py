"""Matrix products through the vendor library's linear operator, which fuses bias and activation.

    %t = t(%weight)                                          %linear = mkldnn._linear_pointwise(%x, %weight, %bias,
    %addmm = addmm(%bias, %x, %t)              ->                                               "gelu", [], "none")
    %view = view(%addmm, [4, 32, 3072])                      %view = view(%linear, [4, 32, 3072])
    %gelu = gelu(%view)

Licence: reassociates (another order of sums than eager's library, and no rounding between product and activation).
Non-goals: products of two activations (bmm, attention); packed weights (see freeze.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.shapes import same_sizes
from lampwork.fakes.symbolic import large_hint_of, may_be_zero
from lampwork.graph.build import emit, place
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten

#: Operators that only reshape: an activation after them can move before them.
_RESHAPES = {aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default}


def activation_of(node: Node, of_numbers: bool = False) -> tuple[str, str] | None:
    """The vendor's names (attribute, algorithm) of an activation, None if it has none for it. Its relu makes 0 of NaN:
    it has that name where that is taken for an answer (`of_numbers`)."""
    if node.target is aten.relu.default:
        return ("relu", "") if of_numbers else None
    if node.target is aten.gelu.default:
        return "gelu", node.kwargs.get("approximate", node.args[1] if len(node.args) > 1 else "none")
    name = _ACTIVATIONS.get(node.target)
    return None if name is None else (name, "")


_ACTIVATIONS = {
    aten.silu.default: "swish",
    aten.tanh.default: "tanh",
    aten.sigmoid.default: "sigmoid",
}


@cache
def _is_amd() -> bool:
    try:
        with open("/proc/cpuinfo") as info:
            return "AuthenticAMD" in info.read(4096)
    except OSError:
        return False


def unpacked_pays(rows: int, inner: int, columns: int, dtype: torch.dtype) -> bool:
    """Whether the vendor's linear on a plain weight beats `addmm` on a product [rows, inner] x [inner, columns].

    Measured on one core of an AVX-512 AMD machine, PyTorch 2.13, time of addmm over time of the vendor's linear:
    float32: 0.89 at 1x768x768, 0.98 at 4x, 1.02 at 8x, 1.05 at 16x, 1.08 at 128x, 1.25 at 128x768x3072, 1.39 at
    128x768x20000; 0.63 at 128x64x64, 0.87 at 512x64x64, 1.04 at 2048x64x64. On Intel `addmm` uses a library that is as
    fast.
    bfloat16 (addmm is the same library, with more work around it): 1.00 to 1.13 everywhere. A product that ATen keeps
    from the library is left to ATen: the library reads numbers below the smallest normal one as zeros.
    That is for x by rows. Gradients of weights have x by columns, and often results too large for memory that malloc
    has at hand, where `mm` writes into planned memory: 0.85 to 0.94 at 512x8192x512, 0.83 at 32000x256x512, 0.65 at
    30522x128x768, 1.07 to 1.25 for results of less than 10 MiB over at most 400 rows, whose memory is new in a program.
    A Llama's step takes 0.8 of the time where they are left to `mm`.
    """
    if dtype == torch.bfloat16:
        return _torch.vendor_multiplies_bfloat16(rows, inner, columns)
    return dtype == torch.float32 and _is_amd() and rows >= 16 and rows * inner * columns >= 8_000_000


def linear_parts(node: Node) -> tuple[Node, Node, Node | None] | None:
    """(x [M, K], weight factor [K, N], bias [N] or None) of a product that is a linear layer, None for others."""
    if node.target is aten.mm.default:
        x, factor = node.args
        return x, factor, None
    if node.target is not aten.addmm.default or node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1:
        return None
    bias, x, factor = node.args[:3]
    if not same_sizes(bias.meta["val"].size(), (factor.meta["val"].size()[1],)):
        return None
    return x, factor, bias


def following_activation(product: Node) -> tuple[Node, tuple[str, str]] | None:
    """The activation that alone reads `product`, directly or through reshapes, with the vendor's name for it."""
    node = product
    while len(node.users) == 1:
        (user,) = node.users
        if user.op != "call_function":
            return None
        found = activation_of(user)
        if found is not None and user.args[0] is node:
            return user, found
        if user.target not in _RESHAPES:
            return None
        node = user
    return None


def use_vendor_products(
    functional: FunctionalGraph, pays: Callable[[int, int, int, torch.dtype], bool] = unpacked_pays
) -> FunctionalGraph:
    """`functional` with linear layers through the vendor's operator where `pays(rows, inner, columns, dtype)`."""
    if not _torch.has_vendor_products():
        return functional
    for node in list(functional.graph.nodes):
        parts = linear_parts(node) if node.op == "call_function" else None
        if parts is None:
            continue
        x, factor, bias = parts
        rows, inner = map(large_hint_of, x.meta["val"].size())
        if may_be_zero(x.meta["val"].size()[1]):
            continue  # the vendor's operator refuses products over nothing
        columns = large_hint_of(factor.meta["val"].size()[1])
        by_rows = large_hint_of(x.meta["val"].stride()[1]) == 1 or x.meta["val"].dtype != torch.float32
        if factor.meta["val"].is_cpu and by_rows and pays(rows, inner, columns, x.meta["val"].dtype):
            with functional.graph.inserting_before(node):
                weight = transposed(functional.graph, factor)
            replace_product(functional.graph, node, x, weight, bias)
    return functional


def transposed(graph: torch.fx.Graph, factor: Node) -> Node:
    """The weight [N, K] of a factor [K, N]: what was transposed, or a transposed view."""
    if factor.target is aten.t.default or (
        factor.target in (aten.transpose.int, aten.permute.default) and factor.meta["val"].dim() == 2
    ):
        source = factor.args[0]
        if source.meta["val"].stride() != factor.meta["val"].stride():
            return source
    return emit(graph, aten.t.default, (factor,), {}, factor)


def in_a_row(graph: torch.fx.Graph, bias: Node | None) -> Node | None:
    """`bias`, or a copy of it, whose elements follow each other: vendor operators read it so, whatever strides say."""
    if bias is None:
        return None
    stride = bias.meta["val"].stride()[0]
    if type(stride) is int and stride == 1:
        return bias
    return emit(graph, aten.clone.default, (bias,), {"memory_format": torch.contiguous_format}, bias)


def replace_product(graph: torch.fx.Graph, node: Node, x: Node, weight: Node, bias: Node | None) -> Node:
    """Put the vendor's linear in place of product `node` and the activation after it; returns the new node."""
    found = following_activation(node)
    attribute, algorithm = found[1] if found else ("none", "")
    with graph.inserting_before(node):
        arguments: tuple[Any, ...] = (x, weight, in_a_row(graph, bias), attribute, [], algorithm)
        new = place(graph, torch.ops.mkldnn._linear_pointwise.default, arguments, {}, node.meta["val"], node)
    if found:
        activation = found[0]
        activation.replace_all_uses_with(activation.args[0])
        graph.erase_node(activation)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    return new
