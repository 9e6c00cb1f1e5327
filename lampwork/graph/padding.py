"""Products of an odd width, made wider on GPUs: where rows of the result do not start at multiples of 16 bytes, cuBLAS
takes kernels that are two to seven times slower.

    %t = t(%weight)              # weight [30522, 768]      %pad = constant_pad_nd(%weight, [0, 0, 0, 6])
    %mm = mm(%x, %t)             # [8192, 30522]            %t = t(%pad)
                                                      ->    %mm = mm(%x, %t)                     # [8192, 30528]
                                                            %slice = slice(%mm, 1, 0, 30522)
                                                            %clone = clone(%slice, contiguous)

The copy at the end fuses into kernels that read the result; only what leaves the program, or goes to an operator of
ATen's, is really copied. The weight is copied in every call, for the caller may change it; declared constant by
`options={"freeze": True}`, it is copied once (a derived input).

The derivatives of such a product have a factor whose own rows are odd. It is made wider by the kernel that computes it,
once for both:

    %mm = mm(%g, %weight)        # [8192, 30522]            %pad = constant_pad_nd(%g, [0, 6])
    %t = t(%g)                                        ->    %pad_1 = constant_pad_nd(%weight, [0, 0, 0, 6])
    %mm_1 = mm(%t, %x)                                      %mm = mm(%pad, %pad_1)
                                                            %t = t(%pad)
                                                            %mm_1 = mm(%t, %x)                   # [30528, 768]
                                                            %slice = slice(%mm_1, 0, 0, 30522)

Exact but for the order of sums. Preconditions: one of the three sizes is odd; half precision (float32 loses little).
Non-goals: batched products.
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
from lampwork.graph.products import linear_parts, transposed
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
    if inner % ALIGNED:
        return False
    copied = rows * columns + (0 if is_frozen else inner * columns)
    return _gains(columns, rows * inner * columns, copied)


def _gains(width: int, products: int, copied: int) -> bool:
    """Whether `products` multiplications are that much faster with rows of aligned width than with rows of `width`,
    half-precision elements of which so many are `copied`."""
    if width % 4 == 0:
        return False
    operations = 2 * products
    gain = operations / (ODD_RATE if width % 2 else EVEN_RATE) - operations / ALIGNED_RATE
    return gain > 1.2 * 4 * copied / COPY_RATE + LAUNCHES


def pad_products(functional: FunctionalGraph, settings: Settings) -> FunctionalGraph:
    """`functional` with the products padded for which `padding_pays`."""
    freezer = Freezer(functional)
    wide: dict[tuple[Node, int], Node] = {}
    for node in list(functional.graph.nodes):
        parts = linear_parts(node) if node.op == "call_function" else None
        if parts is None or node.meta["val"].dtype.itemsize != 2:
            continue
        x, factor, bias = parts
        if _is_column_major(factor.meta["val"]):
            _pad(freezer, node, x, factor, bias, is_frozen=settings.options.freeze)
        elif bias is None and _is_row_major(factor.meta["val"]):
            _pad_factors(freezer.graph, node, x, factor, wide)
    return freezer.finish()


def _pad_factors(graph: torch.fx.Graph, node: Node, x: Node, y: Node, wide: dict[tuple[Node, int], Node]) -> None:
    """Widens the odd rows of `x` [M, K], or of what it is the transpose of, where that pays; `y` [K, N] is row-major.

    `wide`: what was widened already, by the row-major factor and its dimension.
    """
    value = x.meta["val"]
    is_transposed = _is_column_major(value)
    if not is_transposed and not _is_row_major(value):
        return
    even, odd = reversed(value.size()) if is_transposed else value.size()
    columns = y.meta["val"].size()[1]
    if type(odd) is not int or type(columns) is not int:
        return
    even = large_hint_of(even)
    # A transposed factor makes rows of the result that nobody wants; another one wants as many rows of zeros in `y`.
    copied = odd * even + odd * columns
    if columns % ALIGNED or even % ALIGNED or not _gains(odd, odd * even * columns, copied):
        return
    with graph.inserting_before(node):
        if is_transposed:
            factor = _widened(graph, transposed(graph, x), 1, wide)
            factor = emit(graph, aten.t.default, (factor,), {}, node)
            product = emit(graph, aten.mm.default, (factor, y), {}, node)
            part = emit(graph, aten.slice.Tensor, (product, 0, 0, odd), {}, node)
            new = emit(graph, aten.clone.default, (part,), {"memory_format": torch.contiguous_format}, node)
        else:
            factors = (_widened(graph, x, 1, wide), _widened(graph, y, 0, wide))
            new = emit(graph, aten.mm.default, factors, {}, node)
    assert same_metadata(new.meta["val"], node.meta["val"])
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _widened(graph: torch.fx.Graph, matrix: Node, dim: int, wide: dict[tuple[Node, int], Node]) -> Node:
    """`matrix` with zeros appended in dimension `dim`, up to an aligned size; made right after it."""
    if (matrix, dim) not in wide:
        more = -matrix.meta["val"].size()[dim] % ALIGNED
        after = matrix
        while after.next.op == "placeholder":
            after = after.next
        with graph.inserting_after(after):
            pads = [0, more] if dim == 1 else [0, 0, 0, more]
            wide[matrix, dim] = emit(graph, aten.constant_pad_nd.default, (matrix, pads), {}, matrix)
    return wide[matrix, dim]


def _is_row_major(value: torch.Tensor) -> bool:
    return value.stride() == (value.size()[1], 1)


def _is_column_major(value: torch.Tensor) -> bool:
    return value.stride() == (1, value.size()[0])


def _pad(freezer: Freezer, node: Node, x: Node, factor: Node, bias: Node | None, *, is_frozen: bool) -> None:
    graph = freezer.graph
    value = factor.meta["val"]
    inner, columns = value.size()
    width = -(-columns // ALIGNED) * ALIGNED
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
    return _torch.tensor_without_memory(Fake, shape, contiguous(shape), like.dtype, like.device)
