"""The nodes of autograd that a backward pass runs, and for which of the results that it begins at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from operator import or_
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake


def reached_nodes(outputs: Iterable[Any]) -> list[Any]:
    """All nodes of the history of `outputs`."""
    found: dict[Any, None] = {}
    pending = [each.grad_fn for each in outputs if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += [each for each, _ in node.next_functions if each is not None]
    return list(found)


def reaching(
    outputs: Sequence[Any], undefined: Collection[tuple[Any, int]] = (), ends: Collection[Any] = ()
) -> dict[Any, int]:
    """Each node of the history of `outputs`, before those that it hands gradients to, with a bit for each output that
    leads there. `node.lampwork_flows`, of a user's function: for each of the `next_functions` the results whose
    gradients its own is made of. `undefined`: see `Arrivals`. `ends`: the nodes that stand for histories of inputs."""
    arrived: dict[Any, dict[int, int]] = {node: {} for node in _readers_last(outputs)}  # for each result of the node
    for number, output in enumerate(outputs):
        if output.grad_fn is not None:
            _arrive(arrived[output.grad_fn], output.output_nr, 1 << number)
    found: dict[Any, int] = {}
    for node, by_result in reversed(arrived.items()):
        found[node] = reduce(or_, by_result.values(), 0)
        flows = getattr(node, "lampwork_flows", None)
        for place, (following, result) in enumerate(node.next_functions):
            bits = found[node]
            if flows is not None:
                bits = reduce(or_, (by_result.get(each, 0) for each in flows[place]), 0)
            # A user's function makes zeros of a gradient that is undefined.
            makes_zeros = isinstance(following, _torch.FunctionNode) and following not in ends
            if following is not None and ((node, place) not in undefined or makes_zeros):
                _arrive(arrived[following], result, bits)
    return found


class Arrivals:
    """What nodes hand on while the engine runs.

    `undefined`: (node, place among its `next_functions`) of gradients that the node does not define, though it was
    given some, as the derivative of a norm that counts elements does not. `given`: (node, gradient) of those that it
    was given or hands on.
    """

    def __init__(self) -> None:
        self.undefined: set[tuple[Any, int]] = set()
        self.given: list[tuple[Any, Fake]] = []

    @contextmanager
    def noted(self, nodes: Iterable[Any]) -> Iterator[None]:
        handles = [node.register_hook(partial(self._note, node)) for node in nodes if node.next_functions]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _note(self, node: Any, gradients: tuple[Any, ...], tangents: tuple[Any, ...]) -> None:
        if any(each is not None for each in tangents):
            self.undefined |= {(node, place) for place, each in enumerate(gradients) if each is None}
        self.given += [(node, each) for each in (*tangents, *gradients) if isinstance(each, Fake)]


def _arrive(by_result: dict[int, int], result: int, bits: int) -> None:
    by_result[result] = by_result.get(result, 0) | bits


def _readers_last(outputs: Sequence[Any]) -> list[Any]:
    """All nodes, those that hand gradients to others after these."""
    order: list[Any] = []
    seen: set[Any] = set()
    pending: list[tuple[Any, bool]] = [(each.grad_fn, False) for each in outputs if each.grad_fn is not None]
    while pending:
        node, is_finished = pending.pop()
        if is_finished:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending += [(each, False) for each, _ in node.next_functions if each is not None]
    return order
