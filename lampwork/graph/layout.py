"""Convolutions of half precision on GPUs take and give images with channels last, as cuDNN's kernels work on them.

    %a = relu(%x)                                     %a = relu(%x)
    %c = convolution(%a, %weight, ...)          ->    %i = clone(%a, channels_last); %w = clone(%weight, channels_last)
    %r = relu(%c)                                     %c = convolution(%i, %w, ...)            # channels last
    return (%r,)                                      %r = relu(%c)                            # channels last
                                                      %o = clone(%r, contiguous); return (%o,)

Otherwise each call of the library moves image, weight and result there and back by kernels of its own: on an H100 in
bfloat16, PyTorch 2.11, ResNet-50's convolutions of one image take 483 us, with channels last 274 us and 112 us for the
weights; those of the zoo's UNet 638, 375 and 149 us. The copy of the image fuses into the kernel that computes it;
between convolutions there is none. The weight is copied in every call, as the library would, or once where it is
declared constant (`options={"freeze": True}`).

Guarantees: exact. Outputs have eager's strides. Operators that may depend on how an operand lies in memory (random
ones, `as_strided`, attention) get it as eager lays it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.config import Settings
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.symbolic import may_be_zero
from lampwork.graph.build import emit, place, value_of
from lampwork.graph.freeze import Freezer
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten
LAST = torch.channels_last

#: Operators that take operands in any layout and whose shape rules say what layout comes out, beside pointwise ones.
_FLEXIBLE = {
    aten.convolution.default, aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default,
    aten.max_pool2d_with_indices.default, aten.avg_pool2d.default, aten._adaptive_avg_pool2d.default,
    aten.upsample_nearest2d.default, aten.upsample_bilinear2d.default, aten.cat.default, aten.clone.default,
    aten._to_copy.default, aten.constant_pad_nd.default, aten.mean.dim, aten.sum.dim_IntList, aten.amax.default,
}  # fmt: skip

#: Views that count in memory, not in elements of their operand.
_BY_MEMORY = {aten.as_strided.default, aten._reshape_alias.default, aten.view_as_complex.default, aten.view.dtype}


def on_a_gpu(node: Node) -> bool:
    """Whether convolution `node` is of the kind that was measured: half precision, one group."""
    value = node.meta["val"]
    return value.is_cuda and value.dtype.itemsize == 2 and node.args[8] == 1


def order_convolutions(
    functional: FunctionalGraph, settings: Settings, wanted: Callable[[Node], bool] = on_a_gpu
) -> FunctionalGraph:
    """`functional` with the convolutions `wanted` computed with channels last; see the module's docstring."""
    nodes = list(functional.graph.nodes)
    if not any(node.target is aten.convolution.default for node in nodes):
        return functional
    relaying = _Relaying(functional, settings.options.freeze)
    for node in nodes:
        if node.op != "call_function":
            continue
        if node.target is aten.convolution.default and wanted(node):
            relaying.convolution(node)
        if not relaying.before.keys().isdisjoint(node.all_input_nodes):
            relaying.follow(node)
    relaying.outputs(nodes[-1])
    return relaying.freezer.finish()


class _Relaying:
    """`before`: nodes whose values are laid out otherwise than eager's, and eager's values."""

    def __init__(self, functional: FunctionalGraph, is_frozen: bool) -> None:
        self.graph = functional.graph
        self.freezer = Freezer(functional)
        self.is_frozen = is_frozen
        self.before: dict[Node, Any] = {}
        self._restored: dict[Node, Node] = {}

    def convolution(self, node: Node) -> None:
        """Gives the convolution operands with channels last, if its result then has them last too."""
        x, weight, *rest = node.args
        image, kernel = value_of(x), value_of(weight)
        if image.dim() != 4 or any(map(may_be_zero, (*image.size(), *kernel.size()))):
            return
        result = evaluate(node.target, (in_order(image), in_order(kernel), *value_of(rest)), {})
        if not _is_last(result):
            return
        with self.graph.inserting_before(node):
            node.args = (self.image(x, node), self.weight(weight, node), *rest)  # type: ignore[arg-type]
        self._changed(node, result)

    def image(self, node: Node, user: Node) -> Node:
        if _is_last(node.meta["val"]):
            return node
        return emit(self.graph, aten.clone.default, (node,), {"memory_format": LAST}, user)

    def weight(self, node: Node, user: Node) -> Node:
        value = node.meta["val"]
        if _is_last(value):
            return node
        if self.is_frozen and node in self.freezer.constant:
            return self.freezer.derived("channels_last", (node,), (), in_order(value))
        if len(node.users) == 1 and self.freezer.set_packing(node, ("channels_last",)):
            node.meta["val"] = in_order(value)  # nobody else sees it
            return node
        return self.image(node, user)

    def follow(self, node: Node) -> None:
        """Evaluates a reader of values that moved, or gives it those as eager laid them out."""
        if node.target is _torch.getitem:
            self._changed(node, node.args[0].meta["val"][node.args[1]])  # type: ignore[union-attr,index]
            return
        if self._is_flexible(node):
            try:
                kwargs = {name: value_of(each) for name, each in node.kwargs.items()}
                self._changed(node, evaluate(node.target, value_of(node.args), kwargs))
                return
            except RuntimeError:  # a view that this layout does not allow
                pass
        for source in node.all_input_nodes:
            if source in self.before:
                node.replace_input_with(source, self.restored(source))

    def _is_flexible(self, node: Node) -> bool:
        target: Any = node.target
        if not _torch.is_operator(target) or target in _BY_MEMORY:
            return False
        return target in _FLEXIBLE or torch.Tag.pointwise in target.tags or operator(target).kind == "view"

    def _changed(self, node: Node, value: Any) -> None:
        old = node.meta["val"]
        if _strides(old) != _strides(value):
            self.before.setdefault(node, old)
            node.meta["val"] = value

    def restored(self, node: Node) -> Node:
        """The value of `node` in eager's layout, as a copy behind it."""
        if node not in self._restored:
            old = self.before[node]
            with self.graph.inserting_after(node):
                if old.is_contiguous():
                    options = {"memory_format": torch.contiguous_format}
                    new = place(self.graph, aten.clone.default, (node,), options, old, node)
                else:
                    options = {"dtype": old.dtype, "device": old.device}
                    sizes = (list(old.size()), list(old.stride()))
                    like = emit(self.graph, aten.empty_strided.default, sizes, options, node)
                    with self.graph.inserting_after(like):
                        new = emit(self.graph, aten.copy.default, (like, node), {}, node)
            self._restored[node] = new
        return self._restored[node]

    def outputs(self, output: Node) -> None:
        output.args = (tuple(self.restored(node) if node in self.before else node for node in output.args[0]),)  # type: ignore[union-attr,arg-type]


def _strides(value: Any) -> Any:
    return value.stride() if isinstance(value, torch.Tensor) else [each.stride() for each in value]


def _is_last(value: torch.Tensor) -> bool:
    return value.dim() == 4 and value.is_contiguous(memory_format=LAST)


def in_order(value: torch.Tensor) -> Fake:
    """What a copy of `value` with channels last looks like."""
    return evaluate(aten.clone.default, (value,), {"memory_format": LAST})
