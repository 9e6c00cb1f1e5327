"""What depends on missing tangents alone counts as zeros where it meets what depends on others.

    %a = div(%tangent_1, %x)             %a = div(%tangent_1, %x)
    %b = mul(%tangent_2, %y)      ->     %b = mul(%tangent_2, %y)
    %c = add(%a, %b)                     %given_a = if_given(%a, %given_1)
                                         %given_b = if_given(%b, %given_2)
                                         %c = add(%given_a, %given_b)

A tangent is missing where the caller uses only some of a region's results. Eager's engine does not come to what lies
between that result and the first value that others share; a graph computes it of zeros, which may give something else:
zero divided by zero, or what a hook adds. Values that are zeros whenever their tangents are need no test. A gradient
that a derivative makes of no tangent (the zeros of `x ** 0`) depends on those of the results that lead there
(`ARRIVES`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.graph.build import emit, place
from lampwork.ir.differentiation import ARRIVES

aten = torch.ops.aten

#: Operators that make zeros of zeros in their first argument, whatever the others are.
_KEEP_ZEROS = {
    aten.neg.default, aten.clone.default, aten._to_copy.default, aten.sum.default, aten.sum.dim_IntList,
    aten.constant_pad_nd.default, aten.slice_backward.default, aten.select_backward.default,
    aten.diagonal_backward.default, aten.unfold_backward.default, aten.cat.default, aten.stack.default,
    aten.relu.default, aten.flip.default, aten.roll.default, aten.index_select.default, aten.gather.default,
    aten.triu.default, aten.tril.default,
}  # fmt: skip
#: Operators that make zeros of anything.
_ZEROS = {aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default}
#: Those that do so where all tensors among their arguments are zeros.
_SUMS = {aten.add.Tensor, aten.sub.Tensor}
#: Those that do so next to a number that is finite, and, divided by, not zero.
_SCALED = {aten.mul.Tensor: (), aten.mul.Scalar: (), aten.div.Tensor: (0.0,), aten.div.Scalar: (0.0,)}


class Missing:
    """Which values of a joint graph's backward half stand for something only while there are certain tangents."""

    def __init__(self, nodes: Collection[Node], backward: Collection[Node], tangents: Collection[Node]) -> None:
        """`nodes`: in order. `backward`: those among them that belong to the backward half."""
        #: The tangents that a value depends on, a bit for each: it is computed from them, or from a gradient that is
        #: there where one of them is.
        self.depends = {node: 1 << number for number, node in enumerate(tangents)}
        #: Values that are zeros if all those tangents are.
        self._zeros = set(tangents)
        for node in nodes:
            if node.op == "call_function" and node in backward:
                bits = 0
                for each in node.all_input_nodes:
                    bits |= self.depends.get(each, 0)
                if not bits and tangents:
                    bits = node.meta.get(ARRIVES, 0)
                if bits:
                    self.depends[node] = bits
                    if self._keeps_zeros(node):
                        self._zeros.add(node)
        #: Values of the backward half that depend on no tangent, such as the derivative of `sgn`, which is zeros.
        self._constant = {
            node for node in nodes if node.op == "call_function" and node in backward and node not in self.depends
        }
        self._copies: dict[Node, Node] = {}

    def _keeps_zeros(self, node: Node) -> bool:
        target = node.target
        if not all(each in self._zeros for each in node.all_input_nodes if each in self.depends):
            return False
        if target is _torch.getitem:
            return True
        if not _torch.is_operator(target):
            return False
        if target in _ZEROS or (target is aten.full.default and node.args[1] == 0):
            return True
        if target in _SUMS:
            return all(isinstance(each, Node) and each in self._zeros for each in node.args)
        if target in _SCALED:
            first, second = node.args[:2]
            return first in self._zeros and _is_finite(second) and second not in _SCALED[target]
        if target in _KEEP_ZEROS:
            first = node.args[0]
            return all(each in self._zeros for each in (first if isinstance(first, (list, tuple)) else (first,)))
        return operator(target).kind == "view" or target is aten._unsafe_view.default

    def met(self, node: Node) -> Iterator[Node]:
        """Arguments of `node` that must count as zeros where their tangents are missing: it has others, too, or is a
        sum with a value that depends on none."""
        own = self.depends.get(node, 0)
        adds_constant = node.target in _SUMS and not self._constant.isdisjoint(node.all_input_nodes)
        for each in node.all_input_nodes:
            bits = self.depends.get(each, 0)
            if bits and (bits != own or adds_constant) and each not in self._zeros:
                value = each.meta["val"]
                if isinstance(value, Fake) and (value.dtype.is_floating_point or value.dtype.is_complex):
                    yield each

    def is_part(self, gradient: Node, depends: Collection[int]) -> bool:
        """Whether a gradient is computed from some of the tangents `depends` alone: it is defined where any of them is
        there, and zeros where only the others are."""
        bits = self.depends.get(gradient, 0)
        return bool(bits) and gradient not in self._zeros and any(not bits >> each & 1 for each in depends)

    def by_zeros(self, gradient: Node, depends: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tangents among `depends` that a gradient is computed from, and the others. From their results zeros come
        to it that no node made: added to others they are left out. The derivatives that come after them may make
        something else of zeros."""
        bits = self.depends[gradient]
        computed = tuple(each for each in depends if bits >> each & 1)
        return computed, tuple(each for each in depends if not bits >> each & 1)

    def told(self, needed: Collection[Node], parts: Collection[Node]) -> set[int]:
        """The tangents of which the backward half must know whether they are there, for the nodes that it has.
        `parts`: the gradients for which `is_part` holds."""
        bits = 0
        for node in parts:
            bits |= self.depends[node]
        for node in needed:
            for each in self.met(node):
                bits |= self.depends[each]
        return {number for number in range(bits.bit_length()) if bits >> number & 1}

    def masked(self, graph: torch.fx.Graph, node: Node, copy: Node, given: dict[int, Node]) -> Node:
        """`copy`, the node's in `graph`, or zeros. `given`: for each tangent that is told, whether it is there."""
        made = self._copies.get(node)
        if made is None:
            bits = self.depends[node]
            device = copy.meta["val"].device
            flags = [
                on_device(graph, given[number], device, copy)
                for number in range(bits.bit_length())
                if bits >> number & 1
            ]
            flag = flags[0]
            for other in flags[1:]:
                flag = emit(graph, aten.logical_or.default, (flag, other), {}, copy)
            value = copy.meta["val"]
            empty = _torch.tensor_without_memory(Fake, tuple(value.size()), value.stride(), value.dtype, value.device)
            made = self._copies[node] = place(graph, _torch.if_given(), (copy, flag), {}, empty, copy)
        return made


def on_device(graph: torch.fx.Graph, flag: Node, device: torch.device, origin: Node) -> Node:
    """`flag`, which is on the device of the program's kernels, for a value on another."""
    if flag.meta["val"].device == device:
        return flag
    return emit(graph, aten._to_copy.default, (flag,), {"device": device}, origin)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
