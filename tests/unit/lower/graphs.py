"""Functional graphs for lowering's tests, recorded by PyTorch's own tracer, so that lowering is tested alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.ir.program import Lowered
from lampwork.ir.region import FromGraph, FunctionalGraph
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower


def functional_graph(function: Callable, arguments: Sequence[torch.Tensor]) -> FunctionalGraph:
    """`function` of tensors, as a pure graph with one result per returned tensor."""
    flat = lambda *args: _flatten(function(*args))
    with torch.no_grad():
        module = make_fx(torch.func.functionalize(flat), tracing_mode="fake")(*arguments)
    module.graph.eliminate_dead_code()
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    output.args = (tuple(results),)
    return FunctionalGraph(module.graph, tuple(FromGraph(k) for k in range(len(results))))


def _flatten(value: Any) -> tuple:
    if isinstance(value, torch.Tensor):
        return (value,)
    return tuple(tensor for item in value for tensor in _flatten(item)) if isinstance(value, (tuple, list)) else ()


def lowered_of(function: Callable, arguments: Sequence[torch.Tensor]) -> Lowered:
    lowered = lower(functional_graph(function, arguments), Settings())
    verify_lowered(lowered)
    return lowered


def operators(lowered: Lowered) -> tuple[set[str], set[str]]:
    """Names of operators lowered to nests, and of those called through ATen."""
    native, extern = set(), set()
    for item in lowered.items:
        (extern if hasattr(item, "args") else native).add(item.origin.op)
    return native, extern


def assert_like_eager(function: Callable, *arguments: torch.Tensor, **tolerances: float) -> Lowered:
    """Lowers, verifies, interprets; values, dtypes and strides must be eager's."""
    with torch.no_grad():
        expected = _flatten(function(*[argument.clone() for argument in arguments]))
    lowered = lowered_of(function, arguments)
    found = interpret_lowered(lowered, arguments)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if theirs.numel():
            significant = [k for k, n in enumerate(theirs.shape) if n > 1]
            assert [ours.stride(k) for k in significant] == [theirs.stride(k) for k in significant]
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerances)
    return lowered
