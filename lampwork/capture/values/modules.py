"""nn.Module: attribute look-up and calls, modelled after `torch/nn/modules/module.py`.

`Module.__getattr__` is interpreted by hand, because every sub-module and parameter goes through it. A call enters
`forward` directly where no hook is registered and no instance overrides `forward`'s wrappers; with hooks the
framework's own `_call_impl` is interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.modules.module as module_file

from lampwork.capture.machine import UNBOUND, World
from lampwork.capture.outside.overlay import MISSING
from lampwork.capture.values.objects import ObjectFamily
from lampwork.ir.source import InstanceDict, Item, Root, Source

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_Module = torch.nn.Module
_getattr = _Module.__dict__["__getattr__"]
_call = _Module.__dict__["__call__"]
_call_impl = _Module.__dict__["_call_impl"]
_HOOKS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
_KINDS = ("_parameters", "_buffers", "_modules")


class ModuleFamily(ObjectFamily):
    """Modules of `torch.nn`."""

    def __init__(self, world: TorchWorld) -> None:
        super().__init__(world)
        self._paths: dict[int, str] = {}
        self._global_hooks_empty: bool | None = None

    def has(self, cls: type) -> bool:
        return issubclass(cls, _Module)

    def path(self, module: Any) -> str:
        """`encoder.layer.0.attention`: the path of a module from the root of the model, "" if unknown."""
        path = self._paths.get(id(module))
        if path is None:
            origin = self.world.loader.origin(module)
            path = self._paths[id(module)] = "" if origin is None else _path(origin.source)
        return path

    # -- attributes

    def load_attr(self, obj: Any, name: str) -> Any:
        cls = type(obj)
        return self._load(obj, name, cls)

    def _load(self, module: Any, name: str, cls: type) -> Any:
        """`module.name` for modules with the standard look-up; anything else takes the general road."""
        if self.world.class_lookup(cls, "__getattribute__")[1] is not object.__getattribute__:
            return World.load_attr(self.world, module, name)
        found, attribute = self.world.class_lookup(cls, name)
        if found:
            return World.load_attr(self.world, module, name)
        present, value = self.world.instance_lookup(module, name)
        if present:
            return value
        found, fallback = self.world.class_lookup(cls, "__getattr__")
        if fallback is not _getattr or self.world.loader.instance_dict(module) is None:
            return World.load_attr(self.world, module, name)
        value = self._registered(module, name)
        if value is MISSING:
            raise AttributeError(f"'{cls.__name__}' object has no attribute '{name}'", name=name, obj=module)
        return value

    def _registered(self, module: Any, name: str) -> Any:
        """`Module.__getattr__`: a parameter, buffer or sub-module."""
        loader = self.world.loader
        origin, instance = loader.origin(module), loader.instance_dict(module)
        assert origin is not None and instance is not None  # the program's own modules take the general road
        for kind in _KINDS:
            registered = loader.dict_read(instance, kind)
            if registered is MISSING:
                continue
            overlay = loader.dicts.get(id(registered))
            if overlay is None:  # replaced by the program
                if name in registered:
                    return registered[name]
                continue
            if not overlay.base and not overlay.changed:
                self.world.guards.empty_in_module(origin.source, kind)
                continue
            if dict.__contains__(overlay.copy, name):
                return loader.dict_read(overlay, name)
            loader.dict_keys(overlay)
        return MISSING

    # -- calls

    def called(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """`module(*args, **kwargs)`: an `Enter`, or UNBOUND where the general road must be taken."""
        cls = type(module)
        found, method = self.world.class_lookup(cls, "__call__")
        if method is not _call:
            if getattr(method, "__module__", "") == "lampwork.runtime.module":
                # A compiled module inside: what it was compiled from, over the same attributes.
                compiled = self.world.attribute(module, "__lampwork__")
                return self.world.call(self.world.attribute(compiled, "function"), args, kwargs)
            return UNBOUND
        origin = self.world.loader.origin(module)
        if origin is None:
            return UNBOUND
        if not self.global_hooks_empty():
            return UNBOUND
        instance = self.world.loader.instance_dict(module)
        if instance is None:
            return UNBOUND
        for name in _HOOKS:
            if name in instance.base and instance.base[name]:
                return UNBOUND
            hooks = instance.copy.get(name)
            if hooks is None or (name not in instance.pending and hooks):
                return UNBOUND
        if self.world.class_lookup(cls, "_call_impl")[1] is not _call_impl:
            return UNBOUND
        for name in ("_call_impl", "_compiled_call_impl"):
            if name in instance.copy and instance.copy[name] is not None:
                return UNBOUND
        self.world.class_lookup(cls, "_compiled_call_impl")
        source = origin.source
        for name in _HOOKS:
            self.world.guards.empty_in_module(source, name)
        self.world.guards.absent_from_module(source, "_call_impl")
        if "_compiled_call_impl" in instance.copy:
            self.world.loader.dict_read(instance, "_compiled_call_impl")
        else:
            self.world.guards.absent_from_module(source, "_compiled_call_impl")
        found, forward = self.world.class_lookup(cls, "forward")
        if found and type(forward).__name__ == "function" and "forward" not in instance.copy:
            self.world.guards.absent_from_module(source, "forward")
            return self.world.call(forward, (module, *args), kwargs)
        own = self.world.attribute(module, "forward")
        return self.world.call(own, args, kwargs)

    def global_hooks_empty(self) -> bool:
        """Whether no hook is registered for all modules, by the caller or the program; guarded."""
        if self._global_hooks_empty is None:
            self._global_hooks_empty = True
            for name in _GLOBAL_HOOKS:
                hooks = getattr(module_file, name)
                if hooks:
                    self._global_hooks_empty = False
                source = self.world.sources.global_variable(module_file.__name__, name)
                self.world.guards.type_is(source, type(hooks))
                self.world.guards.length_is(source, len(hooks))
        if not self._global_hooks_empty:
            return False
        return not any(self.world.loader.current(getattr(module_file, name)) for name in _GLOBAL_HOOKS)


def _path(source: Source) -> str:
    parts: list[str] = []
    while True:
        match source:
            case Item(Item(InstanceDict(base), "_modules"), key):
                parts.append(str(key))
                source = base
            case Item(InstanceDict(base), key) if isinstance(key, str):
                parts.append(key)
                source = base
            case Root():
                break
            case _:
                break
    return ".".join(reversed(parts))
