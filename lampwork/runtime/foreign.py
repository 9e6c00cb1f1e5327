"""Back ends of other compilers after Lampwork's capture: `lampwork.compile(m, backend="inductor")`.

A back end takes a `torch.fx.GraphModule` and example inputs and returns a callable with the same results. It gets
inference graphs of ATen operators, with parameters and buffers among the inputs; calls whose results need
differentiation run eagerly and are counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.config import Settings
from lampwork.errors import OptionError
from lampwork.ir.artifact import Artifact
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.region import Region, RunEagerly
from lampwork.runtime.cache.versions import versions
from lampwork.runtime.entry import Eagerly, Entry
from lampwork.runtime.guards.interpreter import Scope, read

Backend = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable]


def find_backend(name: str) -> Backend:
    """The back end that `torch.compile` knows by `name`. Raises `OptionError` listing the names there are."""
    known = _torch.backend_names()
    if name not in known:
        raise OptionError(f"unknown backend {name!r}; choose 'lampwork' or one of {', '.join(sorted(known))}")
    return _torch.backend(name)


def entry_maker(backend: Backend) -> Callable[..., Entry]:
    """What `CompiledFunction` needs to make its entries with `backend`."""

    def make_entry(function: object, args: tuple, kwargs: dict, settings: Settings, eagerly: Eagerly) -> Entry:
        pipeline = importlib.import_module("lampwork.pipeline")
        fixed = pipeline.DynamicPolicy(allowed=False)  # what other back ends make of symbols is their own affair
        region = pipeline.capture(function, args, kwargs, settings, fixed)
        if region.requires_grad_outputs:
            return Entry(_artifact(region, pipeline.NEEDS_GRAD), eagerly)
        scope = Scope(function, args, kwargs)
        examples = [read(source, scope) for source in region.inputs]
        run = backend(_graph_module(region), examples)
        return Entry(_artifact(region, region.outcome), eagerly, _below_grad(run))

    return make_entry


def _graph_module(region: Region) -> torch.fx.GraphModule:
    """The region's graph as a module of its own, without the fakes of our capture."""
    graph = torch.fx.Graph()
    output = graph.graph_copy(region.graph, {})
    graph.output(output)
    for node in graph.nodes:
        node.meta = {key: value for key, value in node.meta.items() if key != "val"}
    return torch.fx.GraphModule({}, graph)


def _below_grad(run: Callable) -> Callable[[Sequence[object]], Sequence[object]]:
    """Autograd and autocast are in the graph already, as far as the program used them."""

    def call(values: Sequence[object], generation: object = None) -> Sequence[object]:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return run(*values)

    return call


def _artifact(region: Region, outcome: Any) -> Artifact:
    eager = isinstance(outcome, RunEagerly)
    return Artifact(
        name=region.name,
        guards=region.guards,
        inputs=() if eager else region.inputs,
        objects=() if eager else region.objects,
        effects=() if eager else region.effects,
        outcome=outcome,
        program=Program((), {}, {}, (), (), ()),
        native=NativeCode(b"", (), (), (), ()),
        host_source="",
        code_digests=dict(region.code_digests),
        versions=versions(),
        portable=False,
        locks=() if eager else region.locks,
        host_calls=() if eager else region.host_calls,
    )
