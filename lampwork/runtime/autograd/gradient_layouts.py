"""Gradients as eager hands them on: in eager's strides, or as one object with the tangent that they are.

What arrives in `.grad` has the strides of its leaf, but for dimensions of one element and leaves with gaps: there they
are those of the gradient where autograd keeps it, the leaf's where it makes a copy (torch/csrc/autograd/functions/
accumulate_grad.h, utils/grad_layout_contract.h). Hooks, `torch.autograd.grad` and histories see the gradient itself.

The strides are known from the compile for tangents that are laid out as the outputs are. For others they are found out
once, where somebody could see a difference.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.ir.differentiation import Backward, GradientLayout
from lampwork.ir.size import evaluate
from lampwork.runtime.cache.codec import Decoder

#: Layouts of tangents that are remembered.
_MOST = 64
_NEW = object()


class GradientLayouts:
    """The layouts of one backward program's gradients."""

    def __init__(self, link: Backward) -> None:
        self.link = link
        #: By sizes that vary and the tangents' strides: what is to be done to which gradients, None: nothing.
        self.plans: dict[Any, Any] = {}
        self.has_dense_leaves: bool | None = None
        #: Inputs of which results are views: gradients of these are added to the region's before they arrive.
        self.viewed = frozenset(link.joint.views.inputs)

    def arranged(self, found: Sequence[Any], tangents: Sequence[Any], run: Any, edges: Sequence[Any]) -> Sequence[Any]:
        """The gradients `found`, as eager would hand them on to the nodes of `edges`. `run.layouts`: as for `Tangent`,
        where those vary."""
        key = (run.sizes, tuple([None if each is None else each.stride() for each in tangents]))
        plan = self.plans.get(key, _NEW)
        if plan is None:
            return found
        if plan is _NEW:
            plan = self.plan(key, found, tangents, run, edges)
            if plan is None:
                return found
        arranged = list(found)
        for index, layout in plan:
            gradient = found[index]
            if gradient is None:
                continue
            tangent = tangents[layout.tangent] if layout.tangent >= 0 else None
            if tangent is not None and type(tangent) is torch.Tensor and _stands_for(tangent, gradient):
                arranged[index] = tangent
            elif layout.same >= 0 and arranged[layout.same] is not None:
                arranged[index] = arranged[layout.same]
            else:
                strides = layout.strides
                if self.link.joint.wanted[index] not in self.viewed and accumulates(edges[index][0]):
                    strides = left_in(edges[index][0].variable, strides)
                arranged[index] = in_strides(gradient, strides)
        return arranged

    def plan(self, key: Any, found: Sequence[Any], tangents: Sequence[Any], run: Any, edges: Sequence[Any]) -> Any:
        layouts = self.link.tangents if all(each.strides for each in self.link.tangents) else run.layouts
        sizes = dict(zip(self.link.symbols, run.sizes))
        expected: Sequence[GradientLayout | None] | None
        if all(
            tangent is None or tangent.stride() == layout.strides
            for tangent, layout in zip(tangents, layouts or self.link.tangents, strict=True)
        ):
            expected = self.link.joint.layouts
        elif self.is_hidden(edges):
            return None  # for now: more may be seen of the next call's
        else:
            expected = self.relaid(tangents, sizes) or self.link.joint.layouts
        plan = []
        try:
            for index, layout in enumerate(expected or ()):
                if layout is None or found[index] is None:
                    continue
                strides = tuple([evaluate(each, sizes) for each in layout.strides])
                if layout.tangent >= 0 or layout.same >= 0 or found[index].stride() != strides:
                    plan.append((index, GradientLayout(strides, layout.tangent, layout.same)))
        except KeyError:  # of a size that contents decide in the backward half
            plan = []
        if len(self.plans) >= _MOST:
            self.plans.clear()
        self.plans[key] = plan or None
        return plan or None

    def is_hidden(self, edges: Sequence[Any]) -> bool:
        """Whether all gradients are added up in dense leaves, whose strides they get whatever their own are."""
        if self.has_dense_leaves is False or not self.viewed.isdisjoint(self.link.joint.wanted):
            return False
        nodes = [node for node, _ in edges[: len(self.link.joint.wanted)]]
        if self.has_dense_leaves is None:  # guards say so of the next call's, too
            leaves = [getattr(node, "variable", None) for node in nodes]
            self.has_dense_leaves = all(each is not None and _has_strides_of_its_own(each) for each in leaves)
            if not self.has_dense_leaves:
                return False
        # Where `torch.autograd.grad` hands out gradients, the engine runs no other leaf's node.
        reached = [node for node in nodes if node is not None]
        return _torch.is_executed(reached[0]) and not any(node.variable._backward_hooks for node in reached)

    def relaid(self, tangents: Sequence[Any], sizes: dict[str, int]) -> Sequence[GradientLayout | None] | None:
        replay = self.link.replay
        # What contents decide is written with other operators than the program's, whose derivatives are others.
        if replay is None or any(name.startswith("u") for name in self.link.symbols):
            return None
        if isinstance(replay, bytes):
            replay = Decoder(replay).next()
        shown = [
            None if each is None else (tuple(each.shape), each.stride(), each.dtype, each.device) for each in tangents
        ]
        pipeline = importlib.import_module("lampwork.pipeline")  # every compiler stage: only for layouts that are new
        return pipeline.gradient_layouts(replay, self.link.joint.wanted, shown, sizes)


def accumulates(node: Node) -> bool:
    """Whether a gradient that arrives at the node is added to `.grad` of a leaf, and nobody else sees it."""
    variable = getattr(node, "variable", None)
    return variable is not None and not variable._backward_hooks and _torch.is_executed(node)


def left_in(variable: torch.Tensor, strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of `variable.grad` after the first gradient, of those strides, has arrived there."""
    shape, own = variable.shape, variable.stride()
    if is_dense(shape, own):
        for size, mine, wanted in zip(shape, strides, own, strict=True):
            if (mine != wanted) if size != 1 else mine == 0:
                return own
        return strides
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step and 0 not in shape:
            return _contiguous(shape)
        step *= size
    return strides


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether autograd counts a tensor as dense and without overlaps."""
    step = 1
    for stride, size in sorted([(stride, size) for size, stride in zip(shape, strides) if size > 1]):
        if stride != step:
            return False
        step *= size
    return True


def _has_strides_of_its_own(variable: torch.Tensor) -> bool:
    return 1 not in variable.shape and is_dense(variable.shape, variable.stride())


def in_strides(gradient: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """`gradient` in those strides. Where they step over elements once, that costs nothing; elements that share memory
    are equal."""
    own, shape = gradient.stride(), gradient.shape
    if own == strides:
        return gradient
    empty = 0 in shape
    with torch.no_grad(), _torch.below_autograd():
        if empty or all(size == 1 or mine == wanted for size, mine, wanted in zip(shape, own, strides, strict=True)):
            return torch.ops.aten.as_strided.default(gradient, shape, strides)
        if _overlaps(shape, strides):
            return gradient
        kept = tuple([1 if not stride else size for size, stride in zip(shape, strides)])
        steps = tuple([stride or 1 for stride in strides])
        made = torch.empty_strided(kept, steps, dtype=gradient.dtype, device=gradient.device)
        made.copy_(torch.ops.aten.as_strided.default(gradient, kept, own))
        return made if kept == tuple(shape) else torch.ops.aten.as_strided.default(made, shape, strides)


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements share memory other than along dimensions of stride 0."""
    end = 1
    for stride, size in sorted([(stride, size) for size, stride in zip(shape, strides) if size > 1 and stride]):
        if stride < end:
            return True
        end = stride * size
    return False


def _stands_for(tangent: torch.Tensor, gradient: torch.Tensor) -> bool:
    return (
        tangent.shape == gradient.shape
        and tangent.dtype == gradient.dtype
        and tangent.device == gradient.device
        and not (tangent.is_conj() or tangent.is_neg() or tangent.requires_grad)
    )


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
