"""What `torch.compile` and this package have to know of each other's functions, whichever calls the other.

Loads nothing of `torch._dynamo`: its evaluator of frames, in C, is part of torch and has a word on each code object.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any, TypeVar

import torch

from lampwork._torch.private import is_missing, private

Function = TypeVar("Function")

_evaluator = private("_C._dynamo.eval_frame")

#: The attribute of functions by which the mark of `lampwork.allow_in_graph` is known.
ALLOWED_IN_GRAPH = "_lampwork_allowed_in_graph"

#: False, and true to Dynamo while it traces a caller: what it finds behind it is what it inlines.
is_peer_tracing = torch.compiler.is_dynamo_compiling


def hide_from_peer(function: Any) -> Any:
    """`function`; where it is called under `torch.compile`, Dynamo leaves its frame and all that it calls alone.

    For the functions by which this package is entered. The word is on the code object, so it holds for all functions
    made of it (`set_code_exec_strategy`, which outlives `torch._dynamo.reset()`). Without Dynamo's evaluator there is
    nothing to hide from.
    """
    if is_missing(_evaluator):
        return function
    skip = _evaluator._FrameAction.SKIP
    _evaluator.set_code_exec_strategy(function.__code__, _evaluator._FrameExecStrategy(skip, skip))
    return function


def is_called_natively(function: Function) -> Function:
    """`function`, hidden from Dynamo, which ends its graph where it is called; so does capture."""
    marked: Any = function
    marked._torchdynamo_disable = True
    return hide_from_peer(marked)


def note_original(wrapper: Any, original: Any) -> None:
    """Makes `torch.compile(wrapper)` compile `original`, and `torch.compiler.disable(wrapper)` call it.

    Dynamo looks for the number, too: `functools.wraps` copies both to functions around `wrapper`, which are others.
    """
    wrapper._torchdynamo_orig_callable = original
    wrapper._torchdynamo_wrapper_id = id(wrapper)


def is_made_by_peer(function: types.FunctionType) -> bool:
    """Whether `torch.compile` returned `function`, which has what it was made of in `_torchdynamo_orig_callable`.

    Attributes alone do not say so: `functools.wraps` copies them.
    """
    module = sys.modules.get("torch._dynamo.eval_frame")
    if module is None or function.__code__.co_filename != module.__file__:
        return False
    attributes = function.__dict__
    return "_torchdynamo_inline" in attributes and not attributes.get("_torchdynamo_disable")


@contextlib.contextmanager
def fresh_peer() -> Iterator[None]:
    """`torch.compile` starts with nothing compiled and empty caches on disk, and has its own again afterwards."""
    import torch._inductor.utils as inductor

    torch.compiler.reset()
    fresh = getattr(inductor, "fresh_cache", None) or inductor.fresh_inductor_cache  # its name before 2.9
    with fresh():
        yield
