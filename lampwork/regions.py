"""Settings by submodule: `lampwork.compile(model, regions={"h.*": {"mode": "max-autotune"}, "embed": "eager"})`.

A submodule with settings of its own is a region of its own: a graph ends where it is called, and it is called as if
`lampwork.compile` had been applied to it alone, or as it is ("eager"). What stands around it is compiled as before.

`regions="blocks"` names the blocks that the model repeats, for which what is compiled once serves all.

    keys(model, settings)             the submodules that have settings of their own, by id: what capture asks
    call(key, module, *args)          what capture calls in place of such a submodule: interpreted, with a break inside
    join(compiled, model, ...)        registers the regions' settings, as long as `compiled` lives
"""

from __future__ import annotations

import fnmatch
import hashlib
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import torch

from lampwork.config import BLOCKS, Settings
from lampwork.errors import OptionError

EAGER = "eager"


class _Table:
    """The submodules that are compiled with some settings, by id. What is compiled keeps its module alive."""

    def __init__(self, make: Callable[[torch.nn.Module], Callable]) -> None:
        self.make = make
        self.compiled: dict[int, Callable] = {}


_tables: weakref.WeakValueDictionary[str, _Table] = weakref.WeakValueDictionary()


def keys(root: object, settings: Settings) -> Mapping[int, str]:
    """What names the settings of each submodule of `root` that has some of its own, by the submodule's id. Of several
    patterns the first that matches a name counts."""
    if isinstance(root, MethodType):
        root = root.__self__
    if not settings.regions or not isinstance(root, torch.nn.Module):
        return {}
    found: dict[int, str] = {}
    blocks = _blocks(root) if any(pattern == BLOCKS for pattern, _ in settings.regions) else frozenset()
    for name, module in root.named_modules():
        for pattern, own in settings.regions if name else ():
            if id(module) in blocks if pattern == BLOCKS else fnmatch.fnmatchcase(name, pattern):
                found[id(module)] = _key(own)
                break
    return found


def _blocks(root: torch.nn.Module) -> frozenset[int]:
    """The elements of the model's lists whose class another element of the same list has, by id."""
    found: set[int] = set()
    for module in root.modules():
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            parts = [each for each in module if isinstance(each, torch.nn.Module)]
            classes = Counter(map(type, parts))
            found |= {id(each) for each in parts if classes[type(each)] > 1}
    return frozenset(found)


def _key(settings: Settings | None) -> str:
    """The same text in each process, since entries that are stored hold it."""
    return EAGER if settings is None else hashlib.sha256(repr(settings).encode()).hexdigest()[:16]


def call(key: str, module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    return run_with_settings(key, module, *args, **kwargs)


def run_with_settings(key: str, module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """Calls a submodule compiled with its settings; uncompiled where these are "eager" or not known. Never captured."""
    table = _tables.get(key)
    if table is None:
        return module(*args, **kwargs)
    compiled = table.compiled.get(id(module))
    if compiled is None:
        compiled = table.compiled.setdefault(id(module), table.make(module))
    return compiled(*args, **kwargs)


def join(compiled: Any, root: object, settings: Settings, maker: Callable[[Settings], Callable]) -> None:
    """Makes the regions' settings known as long as `compiled` lives. `maker`: gives what compiles a module with some
    settings. Raises `OptionError` for a pattern that matches no submodule of `root`."""
    if not isinstance(root, torch.nn.Module):
        raise OptionError(f"regions=... names submodules, and {type(root).__name__} is no torch.nn.Module")
    names = [name for name, _ in root.named_modules() if name]
    for pattern, _ in settings.regions:
        if pattern != BLOCKS and not fnmatch.filter(names, pattern):
            known = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
            raise OptionError(f"regions=... has {pattern!r}, which matches no submodule; there are {known or 'none'}")
    tables = []
    for _, own in settings.regions:
        if own is not None:
            key = _key(own)
            table = _tables.get(key)
            if table is None:
                table = _tables[key] = _Table(maker(own))
            tables.append(table)
    weakref.finalize(compiled, _forget, tables, [weakref.ref(module) for module in root.modules()])


def _forget(tables: list[_Table], modules: list[weakref.ref[torch.nn.Module]]) -> None:
    """`modules`: not their ids, as a module of another model may have that of one that is gone."""
    for table in tables:
        for each in modules:
            table.compiled.pop(id(each()), None)
