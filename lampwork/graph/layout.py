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

Derivatives take and give images that way, too, so this comes before it is chosen what is kept for them: a copy that
both passes read is made once. The gradient of a weight is laid out as eager's, which is how the optimizer reads it.

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
    aten.native_batch_norm_backward.default, aten.max_pool2d_with_indices_backward.default,
}  # fmt: skip

#: The same, but for a rule that says what ATen's kernels would do: first results are laid out as first operands.
_FOLLOWING = {aten.native_group_norm_backward.default, aten.upsample_nearest2d_backward.default}

#: Views that count in memory, not in elements of their operand.
_BY_MEMORY = {aten.as_strided.default, aten._reshape_alias.default, aten.view_as_complex.default, aten.view.dtype}


def on_a_gpu(node: Node) -> bool:
    """Whether convolution `node`, or derivative of one, is of the kind that was measured: half precision, one group,
    more than one channel on both sides.

    The strides of an image of one channel do not say in which order it lies. With channels last, `conv_transpose2d` of
    [1, 3, 1, 2] by a weight [3, 1, 1, 1] gave the weight the gradient that an image read in the other order has (seen
    with PyTorch 2.11 on an H100).
    """
    weight, (*_, groups) = node.args[_IMAGE[node.target] + 1].meta["val"], _geometry(node)
    if not weight.is_cuda or weight.dtype.itemsize != 2 or groups != 1:
        return False
    return all(type(channels) is int and channels > 1 for channels in weight.size()[:2])


def _geometry(node: Node) -> tuple[object, ...]:
    """Stride, padding, dilation, transposed, output padding and groups of a convolution or its derivative."""
    return tuple(node.args[_IMAGE[node.target] + 3 :][:6])


#: Which argument the image is; the weight follows.
_IMAGE: dict[Any, int] = {aten.convolution.default: 0, aten.convolution_backward.default: 1}


def order_convolutions(
    functional: FunctionalGraph, settings: Settings, wanted: Callable[[Node], bool] = on_a_gpu
) -> FunctionalGraph:
    """`functional` with the convolutions `wanted` computed with channels last; see the module's docstring."""
    nodes = list(functional.graph.nodes)
    if not any(node.target in _IMAGE for node in nodes):
        return functional
    relaying = _Relaying(functional, settings.options.freeze)
    for node in nodes:
        if node.op != "call_function":
            continue
        if node.target in _IMAGE and wanted(node) and relaying.convolution(node):
            continue
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
        self._ordered: dict[Node, Node] = {}

    def convolution(self, node: Node) -> bool:
        """Gives the convolution, or derivative of one, operands with channels last, if results then have them last too.

        Whether it has them.
        """
        place = _IMAGE[node.target]
        x, weight, bias = node.args[place : place + 3]
        image, kernel = value_of(x), value_of(weight)
        if image.dim() != 4 or any(map(may_be_zero, (*image.size(), *kernel.size()))):
            return False
        bias = value_of(bias) if place == 0 else None
        result = evaluate(aten.convolution.default, (in_order(image), in_order(kernel), bias, *_geometry(node)), {})
        if not _is_last(result):
            return False
        with self.graph.inserting_before(node):
            images = [self.image(each, node) for each in node.args[: place + 1]]
            node.args = (*images, self.weight(weight, node), *node.args[place + 2 :])
        if place:
            result = [each if each is None or each.dim() != 4 else _last(each) for each in node.meta["val"]]
        self._changed(node, result)
        return True

    def image(self, node: Node, user: Node) -> Node:
        if _is_last(node.meta["val"]):
            return node
        if node not in self._ordered:
            self._ordered[node] = emit(self.graph, aten.clone.default, (node,), {"memory_format": LAST}, user)
        return self._ordered[node]

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
            maker, which = node.args
            self._changed(node, maker.meta["val"][which])
            if which == 1 and maker.target is aten.convolution_backward.default and node in self.before:
                readers = list(node.users)
                restored = self.restored(node)
                for reader in readers:
                    reader.replace_input_with(node, restored)
            return
        if self._is_flexible(node):
            try:
                kwargs = {name: value_of(each) for name, each in node.kwargs.items()}
                value = evaluate(node.target, value_of(node.args), kwargs)
                if node.target in _FOLLOWING:
                    value = _last(value) if isinstance(value, torch.Tensor) else [_last(value[0]), *value[1:]]
                self._changed(node, value)
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
        if target in _FOLLOWING:  # ATen's kernels take it that all images are laid out alike
            return all(map(_is_last, _images(node)))
        return target in _FLEXIBLE or torch.Tag.pointwise in target.tags or operator(target).kind == "view"

    def _changed(self, node: Node, value: object) -> None:
        old = node.meta["val"]
        if _strides(old) != _strides(value):
            self.before.setdefault(node, old)
            node.meta["val"] = value

    def restored(self, node: Node) -> Node:
        """The value of `node` in eager's layout, as a copy after it."""
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
        output.args = (tuple(self.restored(node) if node in self.before else node for node in output.args[0]),)


def _strides(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.stride()
    return [None if each is None else each.stride() for each in value]


def _last(value: Any) -> Any:
    """`value`, if it may be said to have channels last, else what a copy of it that has them looks like."""
    return value if value is None or _is_last(value) else in_order(value)


def _images(node: Node) -> list[torch.Tensor]:
    """The operands of a node that are images."""
    return [value for each in node.all_input_nodes if (value := each.meta["val"]).dim() == 4]


def _is_last(value: torch.Tensor) -> bool:
    return value.dim() == 4 and value.is_contiguous(memory_format=LAST)


def in_order(value: torch.Tensor) -> Fake:
    """What a copy of `value` with channels last looks like."""
    return evaluate(aten.clone.default, (value,), {"memory_format": LAST})
