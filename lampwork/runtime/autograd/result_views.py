"""Makes results that are views, by calling the program's view operators on outputs and inputs above autograd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.differentiation import Views
from lampwork.ir.replay import Expression
from lampwork.ir.size import evaluate
from lampwork.runtime.autograd.nodes import nodes_of


class ResultViews:
    """The calls of a `Views`, with their operators looked up once."""

    def __init__(self, views: Views) -> None:
        self.inputs, self.symbols, self.late = views.inputs, views.symbols, views.late
        self.early = frozenset(views.early)
        self.steps: tuple[tuple[int, Any, Any, dict[str, Any], bool], ...] = tuple(
            (
                call.args[0].index,
                _torch.overload(call.op) if call.op else None,
                call.args[1:] if call.item is None else call.item,
                dict(call.kwargs),
                call.grad,
            )
            for call in views.calls
        )

    def make(self, outputs: Sequence[torch.Tensor], values: Sequence[Any]) -> list[Any]:
        """What each call returns. `values`: those of the region's graph inputs."""
        found: list[Any] = [*outputs, *[values[index] for index in self.inputs]]
        first = len(found)
        sizes: dict[str, int] = {}
        for name, index, dimension in self.symbols:
            sizes[name] = int(values[index]) if dimension is None else values[index].shape[dimension]
        before = torch.is_grad_enabled()
        try:
            for source, op, args, kwargs, grad in self.steps:
                if op is None:
                    found.append(found[source][args])
                    continue
                if torch.is_grad_enabled() is not grad:
                    torch.set_grad_enabled(grad)
                if sizes:
                    args, kwargs = _load(args, sizes), _load(kwargs, sizes)
                if len(found) - first in self.early:
                    with self.before_they_were_leaves(values):
                        found.append(op(found[source], *args, **kwargs))
                else:
                    found.append(op(found[source], *args, **kwargs))
        finally:
            torch.set_grad_enabled(before)
        if self.late and outputs:
            self.order(nodes_of(outputs), found[first:])
        return found[first:]

    @contextmanager
    def before_they_were_leaves(self, values: Sequence[Any]) -> Iterator[None]:
        """Leaves that are viewed require no grad meanwhile: eager has their views from before they did."""
        leaves = [values[index] for index in self.inputs if values[index].is_leaf and values[index].requires_grad]
        for each in leaves:
            each.requires_grad_(False)
        try:
            yield
        finally:
            for each in leaves:
                each.requires_grad_()

    def order(self, region: Sequence[object], made: Sequence[object]) -> None:
        """Has autograd's engine run the nodes of views in eager's order: it runs those made last first, and the strides
        of a sum of gradients are those of the first. All views are made after those of `region`."""
        late = [made[index] for index in self.late]
        early = [each for index, each in enumerate(made) if index not in self.late]
        of_late, of_early = (
            [each.grad_fn for each in views if isinstance(each, torch.Tensor) and each.grad_fn is not None]
            for views in (late, early)
        )
        nodes = dict.fromkeys((*of_late, *region, *of_early))
        numbers = sorted(_torch.sequence_number(node) for node in nodes)
        for node, number in zip(nodes, numbers, strict=True):
            _torch.set_sequence_number(node, number)


def _load(argument: object, sizes: dict[str, int]) -> Any:
    """`argument` with the numbers of sizes that vary."""
    if isinstance(argument, Expression):
        return evaluate(argument.size, sizes)
    if isinstance(argument, (list, tuple)):
        return [_load(each, sizes) for each in argument]
    if isinstance(argument, dict):
        return {name: _load(each, sizes) for name, each in argument.items()}
    return argument
