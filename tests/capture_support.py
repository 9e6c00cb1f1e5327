"""Runs a captured region the slow, obvious way: the graph by `torch.fx.Interpreter`, templates one object at a time."""

from __future__ import annotations

import collections
import copy
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
import torch.fx

from lampwork import _torch
from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.ir import template as t
from lampwork.ir.guard import ObjectRef
from lampwork.ir.reference import resolve
from lampwork.ir.region import Region, Return
from lampwork.runtime.guards.failures import explain_failure
from lampwork.runtime.guards.interpreter import Scope, read

SETTINGS = Settings()


class Builder:
    """Values of a region's templates in one call."""

    def __init__(self, region: Region, scope: Scope, results: tuple) -> None:
        self.region, self.scope, self.results = region, scope, results
        self.found: dict[Any, Any] = {}
        self.made: list[Any] = [None] * len(region.objects)

    def prepare(self) -> None:
        """Reads every source and makes every object before any effect is applied."""
        for thing in (*self.region.objects, *self.region.effects, self.region.outcome):
            self._read_sources(thing)
        for index, thing in enumerate(self.region.objects):
            self.made[index] = self._allocate(thing)
        for index, thing in enumerate(self.region.objects):
            self._fill(self.made[index], thing)

    def _read_sources(self, part: Any) -> None:
        if isinstance(part, t.SourceValue):
            self.found[part.source] = read(part.source, self.scope)
        elif isinstance(part, tuple):
            for each in part:
                self._read_sources(each)
        elif hasattr(part, "__dataclass_fields__") and not isinstance(
            part, (t.ConstantValue, t.ObjectValue, ObjectRef)
        ):
            for name in part.__dataclass_fields__:
                self._read_sources(getattr(part, name))

    def value(self, template: Any) -> Any:
        match template:
            case t.ConstantValue(value):
                return value
            case t.ObjectValue(ref):
                return resolve(ref)
            case t.SourceValue(source):
                return self.found[source]
            case t.TensorValue(index):
                return self.results[index]
            case t.NewValue(index):
                return self.made[index]
        raise TypeError(template)

    def values(self, templates: Any) -> list[Any]:
        return [self.value(each) for each in templates]

    def _allocate(self, thing: Any) -> Any:
        match thing:
            case t.NewTuple(items, cls):
                values = self.values(items)
                if cls is None:
                    return tuple(values)
                kind = resolve(cls)
                return tuple.__new__(kind, values) if hasattr(kind, "_fields") else kind(values)
            case t.NewSlice(start, stop, step):
                return slice(self.value(start), self.value(stop), self.value(step))
            case t.NewList():
                return []
            case t.NewSet(items, frozen):
                return frozenset(self.values(items)) if frozen else set()
            case t.NewDict():
                return {}
            case t.NewDeque(_, maxlen):
                return collections.deque([], maxlen)
            case t.NewObject(cls):
                kind = resolve(cls)
                base = next(base for base in kind.__mro__ if not base.__flags__ & (1 << 9))
                return base.__new__(kind, *(() if thing.value is None else (self.value(thing.value),)))
            case t.NewCell():
                return CellType()
            case t.NewFunction():
                cells = tuple(self.values(thing.closure)) or None
                module = self.value(thing.globals_of)
                made = FunctionType(thing.code, module.__dict__, thing.name, None, cells)
                made.__qualname__ = thing.qualname
                return made
            case t.NewMethod(function, instance):
                return MethodType(self.value(function), self.value(instance))
            case t.NewCall(function, args, kwargs):
                named = {name: self.value(each) for name, each in kwargs}
                return resolve(function)(*self.values(args), **named)
        raise TypeError(thing)

    def _fill(self, value: Any, thing: Any) -> None:
        match thing:
            case t.NewList(items):
                value.extend(self.values(items))
            case t.NewSet(items, False):
                value.update(self.values(items))
            case t.NewDict(pairs):
                value.update((self.value(key), self.value(each)) for key, each in pairs)
            case t.NewDeque(items):
                value.extend(self.values(items))
            case t.NewCell(contents):
                if contents is not None:
                    value.cell_contents = self.value(contents)
            case t.NewFunction():
                if thing.defaults is not None:
                    value.__defaults__ = self.value(thing.defaults)
                if thing.kwdefaults is not None:
                    value.__kwdefaults__ = self.value(thing.kwdefaults)
                for name, each in thing.attributes:
                    value.__dict__[name] = self.value(each)
            case t.NewObject():
                for key, each in thing.pairs or ():
                    base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
                    base.__setitem__(value, self.value(key), self.value(each))
                if thing.items is not None:
                    (list.extend if isinstance(value, list) else set.update)(value, self.values(thing.items))
                for name, each in thing.attributes:
                    object.__getattribute__(value, "__dict__")[name] = self.value(each)
                for name, each in thing.slots:
                    object.__setattr__(value, name, self.value(each))

    def apply(self, effect: Any) -> None:
        match effect:
            case t.SetAttribute(target, name, value):
                object.__getattribute__(self.value(target), "__dict__")[name] = self.value(value)
            case t.DeleteAttribute(target, name):
                del object.__getattribute__(self.value(target), "__dict__")[name]
            case t.CallSetAttribute(target, name, value):
                setattr(self.value(target), name, self.value(value))
            case t.ReplaceItems(target, keep, items):
                container = self.value(target)
                while keep is not None and len(container) > keep:
                    container.pop()
                container.extend(self.values(items))
            case t.SetItem(target, key, value):
                self.value(target)[self.value(key)] = self.value(value)
            case t.DeleteItem(target, key):
                del self.value(target)[self.value(key)]
            case t.ReplaceDict(target, pairs):
                container = self.value(target)
                new = [(self.value(key), self.value(value)) for key, value in pairs]
                container.clear()
                container.update(new)
            case t.ReplaceSet(target, items):
                container = self.value(target)
                new = self.values(items)
                container.clear()
                container.update(new)
            case t.SetCell(function, index, value):
                cell = self.value(function).__closure__[index]
                if value is None:
                    del cell.cell_contents
                else:
                    cell.cell_contents = self.value(value)
            case t.SetState(name, value):
                _torch.SET_STATE[name](self.value(value))
            case _:
                raise TypeError(effect)


def run_region(region: Region, function: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """What a call served by `region` gives; asserts that its guards hold first."""
    kwargs = kwargs or {}
    reason = explain_failure(region.guards, function, args, kwargs)
    assert not reason, reason
    scope = Scope(function, args, kwargs)
    inputs = [read(source, scope) for source in region.inputs]
    module = torch.fx.GraphModule(torch.nn.Module(), copy.copy(region.graph))
    with torch.no_grad():
        results = torch.fx.Interpreter(module).run(*inputs)
    builder = Builder(region, scope, results)
    builder.prepare()
    assert isinstance(region.outcome, Return)
    outcome = builder.value(region.outcome.value)
    for effect in region.effects:
        builder.apply(effect)
    return outcome


def capture_call(function: Any, *args: Any, **kwargs: Any) -> Region:
    return capture(function, args, kwargs, SETTINGS)


def guards_fail(region: Region, function: Any, *args: Any, **kwargs: Any) -> str:
    """Why the region does not serve this call; empty if it does."""
    return explain_failure(region.guards, function, args, kwargs)


def same(left: Any, right: Any, seen: dict | None = None) -> bool:
    """Equal structure, types, tensors (values, dtype, strides) and shared identity inside."""
    seen = {} if seen is None else seen
    if id(left) in seen:
        return seen[id(left)] is right
    if type(left) is not type(right):
        return False
    if not isinstance(left, (int, float, str, type(None), bool, bytes)):
        seen[id(left)] = right
    if isinstance(left, torch.Tensor):
        return (
            left.dtype == right.dtype and left.shape == right.shape and left.stride() == right.stride()
            and torch.allclose(left.detach().double(), right.detach().double(), rtol=1e-5, atol=1e-6, equal_nan=True)
        )  # fmt: skip
    if isinstance(left, dict):
        keys = list(left.keys())
        if keys != list(right.keys()):
            return False
        if not all(same(dict.__getitem__(left, key), dict.__getitem__(right, key), seen) for key in keys):
            return False
        return type(left) in (dict, collections.OrderedDict) or same(vars(left), vars(right), seen)
    if isinstance(left, (list, tuple, collections.deque)):
        return len(left) == len(right) and all(same(a, b, seen) for a, b in zip(left, right))
    if isinstance(left, float):
        return left == right or (left != left and right != right)
    if isinstance(left, (FunctionType, MethodType)):
        return left.__name__ == right.__name__
    if hasattr(type(left), "__slots__") and not hasattr(left, "__dict__"):
        return all(same(getattr(left, n, None), getattr(right, n, None), seen) for n in type(left).__slots__)
    if hasattr(left, "__dict__") and not isinstance(left, (type, FunctionType)):
        return same(vars(left), vars(right), seen)
    return left is right or left == right
