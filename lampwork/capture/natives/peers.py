"""Functions that `torch.compile` made, and operators that take functions, in a program that is captured.

What `torch.compile` was applied to is interpreted like any other function of the program: how it would have been
compiled changes no result. An operator that takes functions is a node with graphs for them (`torch.cond` and loops:
`flow/operators.py`), or has an implementation in Python that eager runs, which is interpreted, too (attention with a
`score_mod`). Inside of what `torch.compile` made that is not: there the other compiler may have a kernel for it which
needs less memory than the implementation, so the function is called as the program calls it, between two regions;
unless there are kernels of ours for it.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from lampwork import _torch
from lampwork.capture.autograd.flex_attention import flex_attention, has_kernels
from lampwork.capture.flow.operators import OPERATORS
from lampwork.capture.flow.operators import call as call_control_flow
from lampwork.capture.outside.overlay import Break, LeftToEager
from lampwork.capture.values.family import HANDS_ON

_REMEDY = "Apply lampwork.compile to it as well, or call it outside the compiled function."


def call_made_by_peer(world: Any, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of what `torch.compile` returned: that of the function which it was given."""
    kind = _kind(function)
    if kind in world.natively:
        raise Break("native-call", f"{function.__qualname__}, made by torch.compile, is called: in it, "
                    f"{world.natively[kind]}", _REMEDY)  # fmt: skip
    original = world.attribute(function, "_torchdynamo_orig_callable")
    code = getattr(getattr(original, "__func__", original), "__code__", None)
    if code is not None:
        world.peers[code] = function
    return world.call(original, args, kwargs)


def call_without_peer(world: Any, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`create_block_mask(..., _compile=True)`, which has the peer compile it: it is compiled as it is."""
    if kwargs.get("_compile") is True:
        return world.call(function, args, {**kwargs, "_compile": False})
    return HANDS_ON


def call_higher_order(world: Any, operator: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of an operator that takes functions: what eager runs for it, where nothing else is called around that."""
    name = operator.name()
    if name in OPERATORS:
        return call_control_flow(world, name, args, kwargs)
    fused = _torch.is_flex_attention(operator) and has_kernels(args)
    if world.may_divide and not fused:
        for frame in reversed(world.machine.frames):
            peer = world.peers.get(frame.code.raw)
            if peer is not None:
                raise LeftToEager(_kind(peer), f"{name} takes functions", "native-call")
    implementation = _torch.plain_implementation(operator)
    is_differentiated = _is_differentiated(args, kwargs)
    if fused or (is_differentiated and _torch.is_flex_attention(operator)):
        return flex_attention(world, *args, **kwargs)
    # Its gradients are another operator's, or eager refuses them.
    if implementation is None or (is_differentiated and name != "associative_scan"):
        raise Break("native-call", f"{name}, an operator that takes functions, is called", _REMEDY)
    return world.call(implementation, args, kwargs)


def _is_differentiated(args: tuple, kwargs: dict[str, Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in tree_leaves((args, kwargs))
    )


def _kind(function: FunctionType) -> str:
    """What a capture calls the calls of `function` that it leaves to eager: by its name, as the next attempt may make
    the function anew."""
    return f"torch.compile {function.__module__}.{function.__qualname__}"
