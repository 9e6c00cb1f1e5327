"""Lampwork as a back end of PyTorch's own front end: `torch.compile(m, backend="lampwork")`.

Found through the entry-point group `torch_dynamo_backends`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from lampwork import _torch
from lampwork.config import make_settings
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.wrappers import wrap


def lampwork_backend(
    graph_module: torch.fx.GraphModule,
    example_inputs: list[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
    **_: object,
) -> Callable:
    """A callable with the results of `graph_module`, compiled on its first call (the example inputs may be fakes).

    Results that require grad have a compiled backward pass: the torch-level graph is recorded anew, above autograd.
    `lampwork.stats` of the returned callable counts what runs eagerly. Raises `OptionError` for unknown options.
    """
    _torch.finish_graph_module(graph_module)
    compiled = CompiledFunction(graph_module, make_settings(mode=mode, options={"cache": False, **(options or {})}))
    # The front end calls what is inside of its result's wrappers: there it would find the uncompiled graph again.
    return wrap(compiled, inlined_by_peer=False)
