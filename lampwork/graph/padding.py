"""Products of an odd width, made wider on GPUs: where rows of the result do not start at multiples of 16 bytes, cuBLAS
takes kernels that are two to seven times slower.

    %t = t(%weight)              # weight [30522, 768]      %pad = constant_pad_nd(%weight, [0, 0, 0, 6])
    %mm = mm(%x, %t)             # [8192, 30522]            %t = t(%pad)
                                                      ->    %mm = mm(%x, %t)                     # [8192, 30528]
                                                            %slice = slice(%mm, 1, 0, 30522)
                                                            %clone = clone(%slice, contiguous)

The copy at the end fuses into kernels that read the result; only what leaves the program, or goes to an operator of
ATen's, is really copied. The weight is copied in every call, for the caller may change it; declared constant by
`options={"freeze": True}`, it is copied once (a derived input). Exact but for the order of sums.

Preconditions: rows of the factors are aligned; half precision (float32 loses little). Non-goals: odd inner sizes, where
both factors would be copied; batched products.
"""

from __future__ import annotations

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.config import Settings
from lampwork.fakes.fake import Fake
from lampwork.fakes.shapes import contiguous
from lampwork.fakes.symbolic import large_hint_of
from lampwork.graph.build import emit, same_metadata
from lampwork.graph.freeze import Freezer
from lampwork.graph.products import linear_parts
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten

#: Elements of half precision in 16 bytes.
ALIGNED = 8

# Measured on an H100, bfloat16, PyTorch 2.11 (microseconds; product / product of padded weight / padding / copy):
# 8192x768x30522 1579/539/54/593, 8192x768x50257 6432/885/83/977, 2048x2048x32001 2548/351/132/159, 8192x4096x4095
# 2753/341/39/84, 1024x768x30522 220/76/55/79, 128x768x50257 126/37/83/12, 128x768x30522 33/25/54/14.
#: Operations per second of products whose rows start at odd elements, at even ones, and at aligned ones.
ODD_RATE, EVEN_RATE, ALIGNED_RATE = 1.0e14, 2.4e14, 5.5e14
#: Bytes read or written per second by copies.
COPY_RATE = 1.7e12
#: What the launches of two more kernels cost, in seconds.
LAUNCHES = 10e-6


def padding_pays(rows: int, inner: int, columns: int, is_frozen: bool) -> bool:
    """Whether a product [rows, inner] x [inner, columns] is faster padded, its result copied and, unless `is_frozen`,
    its weight too."""
    if columns % 4 == 0 or inner % ALIGNED:
        return False
    operations = 2 * rows * inner * columns
    gain = operations / (ODD_RATE if columns % 2 else EVEN_RATE) - operations / ALIGNED_RATE
    copied = rows * columns + (0 if is_frozen else inner * columns)
    return gain > 1.2 * 4 * copied / COPY_RATE + LAUNCHES


def pad_products(functional: FunctionalGraph, settings: Settings) -> FunctionalGraph:
    """`functional` with the products padded for which `padding_pays`."""
    freezer = Freezer(functional)
    for node in list(functional.graph.nodes):
        parts = linear_parts(node) if node.op == "call_function" else None
        if parts is not None and node.meta["val"].dtype.itemsize == 2:
            _pad(freezer, node, *parts, is_frozen=settings.options.freeze)
    return freezer.finish()


def _pad(freezer: Freezer, node: Node, x: Node, factor: Node, bias: Node | None, *, is_frozen: bool) -> None:
    graph = freezer.graph
    value = factor.meta["val"]
    inner, columns = value.size()
    width = -(-columns // ALIGNED) * ALIGNED
    if value.stride() != (1, inner):  # not a weight [N, K], row by row
        return
    found = freezer.weight_of(factor) if is_frozen else None
    is_derived = found is not None and found[1] and (bias is None or bias in freezer.constant)
    if not padding_pays(large_hint_of(x.meta["val"].size()[0]), inner, columns, is_derived):
        return
    with graph.inserting_before(node):
        if is_derived:
            assert found is not None
            weight = freezer.derived("pad_rows", (found[0],), (width,), _plain((width, inner), value))
            row = None if bias is None else freezer.derived("pad_rows", (bias,), (width,), _plain((width,), value))
        else:
            plain = emit(graph, aten.t.default, (factor,), {}, node)
            weight = emit(graph, aten.constant_pad_nd.default, (plain, [0, 0, 0, width - columns]), {}, node)
            row = None
            if bias is not None:
                row = emit(graph, aten.constant_pad_nd.default, (bias, [0, width - columns]), {}, node)
        wide = emit(graph, aten.t.default, (weight,), {}, node)
        arguments = (x, wide) if row is None else (row, x, wide)
        product = emit(graph, node.target, arguments, {}, node)
        part = emit(graph, aten.slice.Tensor, (product, 1, 0, columns), {}, node)
        new = emit(graph, aten.clone.default, (part,), {"memory_format": torch.contiguous_format}, node)
    assert same_metadata(new.meta["val"], node.meta["val"])
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _plain(shape: tuple[int, ...], like: torch.Tensor) -> Fake:
    return _torch.tensor_without_memory(Fake, shape, contiguous(shape), like.dtype, like.device)  # type: ignore[return-value]
