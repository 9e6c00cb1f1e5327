"""`options={"freeze": True}`: the user declares the weights constant, so that they may be packed and folded once.

    %t = t(%weight)                          %packed = placeholder           # derived: pack_linear_weight(%weight)
    %addmm = addmm(%bias, %x, %t)     ->     %linear = mkldnn._linear_pointwise(%x, %packed, %bias, "none", [], "")

    %c = convolution(%x, %weight, None, ...)                 %packed, %folded = placeholders   # derived
    %n = native_batch_norm(%c, ..., training=False)   ->     %c = mkldnn._convolution_pointwise(%x, %packed, %folded,
    %r = relu(getitem(%n, 0))                                                                  ..., "relu", [], "")

`fold_batch_norms` is the part for GPUs: batch norms fold into plain weights, nothing is packed.

Weights stay inputs; what is packed of them are derived inputs, which the runtime computes once per entry and again when
a parameter is replaced (`runtime/launch/prepacked.py`). Only inputs and transposed inputs are packed: anything computed
is not constant. Licence: reassociates (products), and batch norm's scale moves into the weights before rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Fake
from lampwork.fakes.shapes import contiguous
from lampwork.graph.build import emit, same_metadata, value_of
from lampwork.graph.products import activation_of, in_a_row, linear_parts, replace_product
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten


class Freezer:
    """One run of `freeze`: derived inputs by recipe, so that a weight used twice is packed once."""

    def __init__(self, functional: FunctionalGraph) -> None:
        self.functional = functional
        self.graph = functional.graph
        self.inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.indices = {node: index for index, node in enumerate(self.inputs)}
        written = {index for index, _ in functional.writes}
        given = len(self.inputs) - len(functional.derived)  # recipes compute from inputs, not from derived ones
        self.constant = {node for node, index in self.indices.items() if index not in written and index < given}
        self.recipes: list[tuple[str, tuple[int, ...], tuple[object, ...]]] = list(functional.derived)
        self.placeholders: dict[object, Node] = {}
        self.last = self.inputs[-1] if self.inputs else None
        #: Whether some value is laid out otherwise than eager's.
        self.relaid = False

    def derived(self, name: str, sources: tuple[Node | None, ...], constants: tuple[object, ...], value: Fake) -> Node:
        """The placeholder of a derived input that looks like `value` to the graph."""
        indices = tuple(-1 if source is None else self.indices[source] for source in sources)
        key = (name, indices, constants)
        if key not in self.placeholders:
            node = self.graph.create_node("placeholder", f"derived_{len(self.recipes) + 1}")
            assert self.last is not None
            self.last.append(node)
            self.last = node
            node.meta = {"val": value}
            self.recipes.append(key)
            self.placeholders[key] = node
        return self.placeholders[key]

    def set_packing(self, node: Node, packing: tuple[object, ...]) -> bool:
        """Whether `node` is a weight with a batch norm folded in, not packed yet; it is packed so from now on."""
        position = self.indices.get(node, -1) - (len(self.inputs) - len(self.functional.derived))
        if not 0 <= position < len(self.functional.derived):
            return False
        name, indices, constants = self.recipes[position]
        if name != "fold_batch_norm_weight" or constants[1]:
            return False
        self.recipes[position] = (name, indices, (constants[0], packing))
        return True

    def weight_of(self, node: Node) -> tuple[Node, bool] | None:
        """(input, whether transposed) if `node` is a constant input or its transpose."""
        if node in self.constant:
            return node, False
        if isinstance(node, Node) and node.target in (aten.t.default, aten.transpose.int):
            source: Any = node.args[0]
            if source in self.constant:
                return source, True
        return None

    def fold(self, node: Node) -> None:
        """Convolution `node` with the batch norm after it folded into its weight and bias, if that is constant."""
        x, weight, bias, *geometry = node.args
        norm = self.following_batch_norm(node)
        if norm is None or weight not in self.constant or (bias is not None and bias not in self.constant):
            return
        end, gamma, beta, mean, variance, epsilon = norm
        value, kernel = end.meta["val"], weight.meta["val"]
        if geometry[3] or not kernel.is_floating_point() or not same_metadata(value, node.meta["val"]):
            return  # the channels of a transposed convolution are in another place
        like = _torch.tensor_without_memory(Fake, tuple(kernel.size()), kernel.stride(), kernel.dtype, kernel.device)
        folded = self.derived("fold_batch_norm_weight", (weight, variance, gamma), (epsilon, ()), like)
        channels = _plain((kernel.size()[0],), value)
        shift = self.derived("fold_batch_norm_bias", (mean, variance, gamma, beta, bias), (epsilon,), channels)
        with self.graph.inserting_before(end):
            new = emit(self.graph, aten.convolution.default, (x, folded, shift, *geometry), {}, node)
        end.replace_all_uses_with(new)

    # Linear layers --------------------------------------------------------------------------------

    def linear(self, node: Node) -> None:
        parts = linear_parts(node)
        if parts is None:
            return
        x, factor, bias = parts
        found = self.weight_of(factor)
        value = x.meta["val"]
        if found is None or not _supported(value):
            return
        source, is_transposed = found
        rows, (inner, columns) = value.size()[0], factor.meta["val"].size()
        if not packed_pays(rows, inner, columns, value.dtype):
            return
        shape = _plain((columns, inner), value)
        # `factor` is [K, N]; a weight that was transposed to get it is [N, K] already.
        packed = self.derived("pack_linear_weight", (source,), (rows, not is_transposed), shape)
        replace_product(self.graph, node, x, packed, bias)

    # Convolutions ---------------------------------------------------------------------------------

    def convolution(self, node: Node) -> None:
        x, weight, bias, stride, padding, dilation, is_transposed, _, groups = node.args
        value, kernel = x.meta["val"], weight.meta["val"]
        if is_transposed or weight not in self.constant or (bias is not None and bias not in self.constant):
            return
        if kernel.dim() != 4 or not _supported(value):
            return
        packing = (tuple(padding), tuple(stride), tuple(dilation), groups, tuple(value.size()))
        norm = self.following_batch_norm(node)
        like = _plain(tuple(kernel.size()), value)
        if norm is None:
            packed = self.derived("pack_convolution_weight", (weight,), packing, like)
            end = node
        else:
            end, gamma, beta, mean, variance, epsilon = norm
            packed = self.derived("fold_batch_norm_weight", (weight, variance, gamma), (epsilon, packing), like)
            channels = _plain((kernel.size()[0],), value)
            bias = self.derived("fold_batch_norm_bias", (mean, variance, gamma, beta, bias), (epsilon,), channels)
        geometry = (list(padding), list(stride), list(dilation), groups)
        self.place_convolution(node, end, x, packed, bias, geometry)

    def place_convolution(self, node: Node, end: Node, x: object, packed: Node, bias: Any, geometry: tuple) -> None:
        """The fused convolution for `node` ... `end` and what follows: a residual added, then an activation."""
        residual = self.following_residual(end)
        at = end
        if residual is not None:
            at, other = residual
        activation = self.only_user(at)
        fused = activation_of(activation, of_numbers=True) if activation is not None else None
        if activation is not None and fused is not None and (residual is None or fused[0] == "relu"):
            at = activation
        else:
            fused = None
        with self.graph.inserting_before(at):
            bias = in_a_row(self.graph, bias)
            if residual is not None:
                unary: tuple[str | None, list, str | None] = (fused[0], [], "") if fused else (None, [], None)
                new = emit(self.graph, torch.ops.mkldnn._convolution_pointwise.binary,
                           (x, other, packed, bias, *geometry, "add", 1.0, *unary), {}, node)  # fmt: skip
            else:
                attribute, algorithm = fused or ("none", "")
                new = emit(self.graph, torch.ops.mkldnn._convolution_pointwise.default,
                           (x, packed, bias, *geometry, attribute, [], algorithm), {}, node)  # fmt: skip
        at.replace_all_uses_with(new)
        if new.meta["val"].stride() != end.meta["val"].stride():
            self.relaid = True

    def only_user(self, node: Node) -> Node | None:
        if len(node.users) != 1:
            return None
        (user,) = node.users
        return user if user.op == "call_function" and user.args and user.args[0] is node else None

    def following_batch_norm(self, node: Node) -> tuple | None:
        """(normalised value, gamma, beta, mean, variance, epsilon) of a frozen batch norm that alone reads `node`."""
        norm = self.only_user(node)
        if norm is None or norm.target is not aten.native_batch_norm.default:
            return None
        _, gamma, beta, mean, variance, training, _, epsilon = norm.args
        if training or any(each is not None and each not in self.constant for each in (gamma, beta, mean, variance)):
            return None
        if mean is None or variance is None or mean.meta["val"].dtype != node.meta["val"].dtype:
            return None
        results = [user for user in norm.users if user.target is _torch.getitem]
        if len(results) != 1 or results[0].args[1] != 0 or len(norm.users) != 1:
            return None
        return results[0], gamma, beta, mean, variance, epsilon

    def following_residual(self, node: Node) -> tuple[Node, Node] | None:
        """(the sum, the other operand) when an addition reads `node`.

        The other operand has the same shape and is already computed.
        """
        if len(node.users) != 1:
            return None
        (user,) = node.users
        if user.target is not aten.add.Tensor or user.kwargs or len(user.args) != 2:
            return None
        other = user.args[1] if user.args[0] is node else user.args[0]
        if not isinstance(other, Node) or other is node or other.op == "placeholder":
            return None
        left, right = node.meta["val"], other.meta["val"]
        if left.size() != right.size() or left.dtype != right.dtype:
            return None
        return user, other

    def run(self) -> FunctionalGraph:
        strides = [node.meta["val"].stride() for node in next(iter(reversed(self.graph.nodes))).args[0]]
        for node in list(self.graph.nodes):
            if node.op != "call_function":
                continue
            if node.target in (aten.addmm.default, aten.mm.default):
                self.linear(node)
            elif node.target is aten.convolution.default:
                self.convolution(node)
        if self.relaid:
            relayout(self.graph, strides)
        return self.finish()

    def finish(self) -> FunctionalGraph:
        return replace(self.functional, derived=tuple(self.recipes))


def relayout(graph: torch.fx.Graph, wanted: list[tuple[int, ...]]) -> None:
    """Values after packed convolutions follow their channels-last layout, outputs get eager's back.

        %c = _convolution_pointwise(...)   [channels-last]              %c = _convolution_pointwise(...)
        %p = max_pool2d(%c)                [said to be contiguous]  ->  %p = max_pool2d(%c)   [channels-last]
        return (%p,)                                                    %o = clone(%p, contiguous_format)
                                                                        return (%o,)

    `wanted`: the strides of each output. A view that the layout does not allow gets a contiguous copy first.
    """
    output = next(iter(reversed(graph.nodes)))
    changed: set[Node] = set()
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if _torch.is_operator(node.target) and node.target.namespace == "mkldnn":
            changed.add(node)
        elif not changed.isdisjoint(node.all_input_nodes):
            old = node.meta["val"]
            _evaluate_again(graph, node)
            if not isinstance(old, Fake) or old.stride() != node.meta["val"].stride():
                changed.add(node)
    arguments = []
    for node, strides in zip(output.args[0], wanted):
        if node.meta["val"].stride() != strides:
            value = node.meta["val"]
            with graph.inserting_before(output):
                options = {"dtype": value.dtype, "device": value.device}
                like = emit(graph, aten.empty_strided.default, (list(value.size()), list(strides)), options, node)
                node = emit(graph, aten.copy.default, (like, node), {}, node)
        arguments.append(node)
    output.args = (tuple(arguments),)


def _evaluate_again(graph: torch.fx.Graph, node: Node) -> None:
    if node.target is _torch.getitem:
        node.meta["val"] = node.args[0].meta["val"][node.args[1]]
        return
    kwargs = {name: value_of(each) for name, each in node.kwargs.items()}
    try:
        node.meta["val"] = evaluate(node.target, value_of(node.args), kwargs)
    except RuntimeError:
        with graph.inserting_before(node):
            options = {"memory_format": torch.contiguous_format}
            first = emit(graph, aten.clone.default, (node.args[0],), options, node)
        node.args = (first, *node.args[1:])
        node.meta["val"] = evaluate(node.target, value_of(node.args), kwargs)


def packed_pays(rows: int, inner: int, columns: int, dtype: torch.dtype) -> bool:
    """Whether the vendor's linear on a packed weight beats `addmm` (measured as in `products.unpacked_pays`).

    float32: 0.90 at 1x768x768, 1.50 at 2x, 1.47 at 8x, 1.21 at 128x; 0.68 at 128x64x64, 0.85 at 64x128x128, 0.97 at
    32x256x256, 1.08 at 2048x64x64. bfloat16: 1.05 to 1.80 everywhere that ATen takes the library.
    """
    if dtype == torch.bfloat16:
        return _torch.vendor_multiplies_bfloat16(rows, inner, columns)
    return rows >= 2 and rows * inner * columns >= 1_000_000 and inner * columns >= 128 * 1024


def _supported(value: torch.Tensor) -> bool:
    if not value.is_cpu or 0 in value.size():
        return False
    return value.dtype == torch.float32 or (value.dtype == torch.bfloat16 and _torch.vendor_supports_bfloat16())


def _plain(shape: tuple[int, ...], like: torch.Tensor) -> Fake:
    return _torch.tensor_without_memory(Fake, shape, contiguous(shape), like.dtype, like.device)


def freeze(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with constant weights packed and batch norms folded; see the module's docstring."""
    if not _torch.has_vendor_products():
        return functional
    return Freezer(functional).run()


def fold_batch_norms(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with constant batch norms folded into the convolutions before them, and nothing packed: for GPUs."""
    freezer = Freezer(functional)
    for node in list(functional.graph.nodes):
        if node.op == "call_function" and node.target is aten.convolution.default:
            freezer.fold(node)
    return freezer.finish()
