"""Answers about the world before the call, each with the guard that makes it true.

What capture asks of an object from outside, beyond what loading it says, is asked here: the object itself
(`Origin.raw`) is read in this folder alone. `tests/unit/test_house.py` lists the folders that have still to follow.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from lampwork.capture.outside.guards import GuardList
from lampwork.capture.outside.load import Loader
from lampwork.capture.outside.overlay import Origin
from lampwork.capture.outside.plain import is_plain
from lampwork.ir.source import Source


def changed_stay_different(loader: Loader, changed: set[int]) -> None:
    """Of the objects that the program holds, those in `changed` (ids) stay other objects than all of their types."""
    by_type: dict[type, list[tuple[int, Source]]] = {}
    for key, origin in loader.by_value.items():
        if not isinstance(origin.value, torch.Tensor):
            by_type.setdefault(type(origin.raw), []).append((key, origin.source))
    for group in by_type.values():
        first = next((source for key, source in group if key in changed), None)
        if first is not None and len(group) > 1:
            loader.guards.distinct((first, *(source for _, source in group if source is not first)))


def identities_stay(loader: Loader, identified: dict[int, Any]) -> None:
    """Objects whose `id()` the program took stay different objects. So do all of one kind that it met: `p == q`,
    `p in things`, `table.get(p)` and `{p, q}` compare them by identity, most of them in native code."""
    taken = [loader.by_value[key].source for key in identified if key in loader.by_value]
    kinds: dict[Any, list[Source]] = {}
    met = {id(origin.raw): origin for origin in loader.by_value.values()}
    for origin in met.values():
        kind = _kind_known_by_identity(origin.raw, loader.guards)
        if kind is not None and not loader.guards.covers(origin.source, "object"):
            kinds.setdefault(kind, []).append(origin.source)
    for sources in (taken, *kinds.values()):
        if len(sources) > 1:
            loader.guards.distinct(sources)


def _kind_known_by_identity(raw: Any, guards: GuardList) -> Any:
    """What an object from outside has in common with those that it could be the same as under its guards; None where
    equality is a matter of contents, and for classes, modules and builtins, which are guarded one by one."""
    kind = type(raw)
    if kind is FunctionType:
        return guards.reference(raw).digest
    if isinstance(raw, (torch.Tensor, type, ModuleType, BuiltinFunctionType)) or is_plain(raw):
        return None
    equality = kind.__eq__
    return kind if equality is object.__eq__ or type(equality) is FunctionType else None


def globals_source(loader: Loader, names: dict[str, Any]) -> Source | None:
    """Where a namespace of no module is found: it is that of a function from outside. None: of none that was met."""
    for origin in loader.by_value.values():
        if type(origin.raw) is FunctionType and origin.raw.__globals__ is names:
            return loader.sources.attribute(origin.source, "__globals__")
    return None


def history(loader: Loader, tensor: Origin) -> tuple[Any, Source]:
    """The node that a tensor from outside is a result of, and where it is found. The caller guards its identity."""
    return tensor.raw.grad_fn, loader.sources.attribute(tensor.source, "grad_fn")
