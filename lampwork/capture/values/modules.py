"""nn.Module: attribute look-up and calls, modelled after `torch/nn/modules/module.py`.

`Module.__getattr__` is interpreted by hand, because every sub-module and parameter goes through it. A call enters
`forward` directly where no hook is registered and no instance overrides `forward`'s wrappers; with hooks the
framework's own `_call_impl` is interpreted.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.modules.module as module_file

from lampwork.capture.base import CaptureWorld
from lampwork.capture.machine import UNBOUND, Enter, World
from lampwork.capture.outside.overlay import MISSING
from lampwork.ir.source import InstanceDict, Item, Root, Source

_Module = torch.nn.Module
_getattr = _Module.__dict__["__getattr__"]
_call = _Module.__dict__["__call__"]
_call_impl = _Module.__dict__["_call_impl"]
_HOOKS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
_KINDS = ("_parameters", "_buffers", "_modules")


class Modules(CaptureWorld):
    _module_paths: dict[int, str]
    _global_hooks_empty: bool | None = None

    def module_path(self, module: Any) -> str:
        """`encoder.layer.0.attention`: the path of a module from the root of the model, "" if unknown."""
        path = self._module_paths.get(id(module))
        if path is None:
            origin = self.loader.origin(module)
            path = self._module_paths[id(module)] = "" if origin is None else _path(origin.source)
        return path

    # -- attributes

    def load_module_attribute(self, module: Any, name: str, cls: type) -> Any:
        """`module.name` for modules with the standard look-up; anything else takes the general road."""
        if type.__getattribute__(cls, "__getattribute__") is not object.__getattribute__:
            return World.load_attr(self, module, name)
        found, attribute = self.class_lookup(cls, name)
        if found:
            return World.load_attr(self, module, name)
        present, value = self.instance_lookup(module, name)
        if present:
            return value
        found, fallback = self.class_lookup(cls, "__getattr__")
        if fallback is not _getattr or self.loader.instance_dict(module) is None:
            return World.load_attr(self, module, name)
        value = self._registered(module, name)
        if value is MISSING:
            raise AttributeError(f"'{cls.__name__}' object has no attribute '{name}'", name=name, obj=module)
        return value

    def _registered(self, module: Any, name: str) -> Any:
        """`Module.__getattr__`: a parameter, buffer or sub-module."""
        loader = self.loader
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
                self.guards.empty_in_module(origin.source, kind)
                continue
            if dict.__contains__(overlay.copy, name):
                return loader.dict_read(overlay, name)
            loader.dict_keys(overlay)
        return MISSING

    # -- calls

    def call_module(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """`module(*args, **kwargs)`: an `Enter`, or UNBOUND where the general road must be taken."""
        cls = type(module)
        found, method = self.class_lookup(cls, "__call__")
        if method is not _call:
            if getattr(method, "__module__", "") == "lampwork.runtime.module":
                # A compiled module inside: what it was compiled from, over the same attributes.
                compiled = self.attribute(module, "__lampwork__")
                return self.call(self.attribute(compiled, "function"), args, kwargs)
            return UNBOUND
        origin = self.loader.origin(module)
        if origin is None:
            return UNBOUND
        if not self.global_hooks_empty():
            return UNBOUND
        instance = self.loader.instance_dict(module)
        if instance is None:
            return UNBOUND
        for name in _HOOKS:
            if name in instance.base and instance.base[name]:
                return UNBOUND
            hooks = instance.copy.get(name)
            if hooks is None or (name not in instance.pending and hooks):
                return UNBOUND
        if self.class_lookup(cls, "_call_impl")[1] is not _call_impl:
            return UNBOUND
        for name in ("_call_impl", "_compiled_call_impl"):
            if name in instance.copy and instance.copy[name] is not None:
                return UNBOUND
        self.class_lookup(cls, "_compiled_call_impl")
        source = origin.source
        for name in _HOOKS:
            self.guards.empty_in_module(source, name)
        self.guards.absent_from_module(source, "_call_impl")
        if "_compiled_call_impl" in instance.copy:
            self.loader.dict_read(instance, "_compiled_call_impl")
        else:
            self.guards.absent_from_module(source, "_compiled_call_impl")
        found, forward = self.class_lookup(cls, "forward")
        if found and type(forward).__name__ == "function" and "forward" not in instance.copy:
            self.guards.absent_from_module(source, "forward")
            return self.call(forward, (module, *args), kwargs)
        own = self.attribute(module, "forward")
        return self.call(own, args, kwargs)

    def global_hooks_empty(self) -> bool:
        """Whether no hook is registered for all modules, by the caller or the program; guarded."""
        if self._global_hooks_empty is None:
            self._global_hooks_empty = True
            for name in _GLOBAL_HOOKS:
                hooks = getattr(module_file, name)
                if hooks:
                    self._global_hooks_empty = False
                source = self.sources.global_variable(module_file.__name__, name)
                self.guards.type_is(source, type(hooks))
                self.guards.length_is(source, len(hooks))
        if not self._global_hooks_empty:
            return False
        return not any(self.loader.current(getattr(module_file, name)) for name in _GLOBAL_HOOKS)


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


__all__ = ["Modules", "Enter"]
