"""`Names`: global variables, variables shared with closures, and imports, read and written while capturing.

A global variable is loaded and guarded when it is read first; what the program writes is kept, and stored after the
graph (`effects.py`). Once the program holds a module's variables as a dict, all goes through that dict's overlay.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lampwork.capture.machine import UNBOUND, Frame, World
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.ir.source import Source

#: Functions that the interpreter looks for among the builtins.
_NATIVE = {name: getattr(builtins, name) for name in ("__import__", "__build_class__")}

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld


class Namespace:
    """The global variables of a module as the program sees them: values read or written so far, by name."""

    __slots__ = ("raw", "source", "values", "initial", "written", "overlay")

    def __init__(self, raw: dict, source: Source) -> None:
        self.raw = raw
        self.source = source
        self.values: dict[str, Any] = {}
        self.initial: dict[str, Any] = {}
        self.written: dict[str, None] = {}
        #: The program holds these variables as a dict (`globals()`): all reads and writes go to its overlay.
        self.overlay: Any = None


class Names:
    """The variables of modules and of enclosing functions, and imports, as the program sees them."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world
        self.loader, self.guards, self.sources = world.loader, world.guards, world.sources
        self.namespaces: dict[int, Namespace] = {}

    def release(self) -> None:
        """Forgets the values of all variables."""
        for each in self.namespaces.values():
            each.values, each.initial, each.overlay = {}, {}, None
        self.namespaces.clear()

    def namespace(self, frame: Frame) -> Namespace | None:
        """The globals of a frame; None for a namespace made by the program and for our own code."""
        raw = frame.globals
        found = self.namespaces.get(id(raw))
        if found is None:
            if str(raw.get("__name__", "")).startswith("lampwork.capture."):
                return None  # our own polyfills: not part of the program, nothing to guard
            found = self.namespace_of(raw, frame.function)
        return found

    def namespace_of(self, raw: dict, function: Any) -> Namespace | None:
        name = raw.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if isinstance(name, str) and module is not None and module.__dict__ is raw:
            source: Source = self.sources.instance_dict(self.sources.module(name))
        else:
            origin = self.loader.origin(function)
            if origin is None:
                return None
            source = self.sources.attribute(origin.source, "__globals__")
        found = self.namespaces[id(raw)] = Namespace(raw, source)
        return found

    def module_namespace(self, module: ModuleType) -> Namespace:
        raw = module.__dict__
        found = self.namespaces.get(id(raw))
        if found is None:
            origin = self.loader.origin(module)
            name = module.__name__
            if sys.modules.get(name) is module:
                source: Source = self.sources.module(name)
            elif origin is not None:
                source = origin.source
            else:
                raise Break("opaque-value", f"module {name} is not in sys.modules")
            found = self.namespaces[id(raw)] = Namespace(raw, self.sources.instance_dict(source))
        return found

    def read(self, namespace: Namespace, name: str) -> Any:
        """The global variable, loaded; MISSING if there is none. Guards what was seen."""
        if namespace.overlay is not None:
            return self.loader.dict_read(namespace.overlay, name)
        values = namespace.values
        if name in values:
            return values[name]
        raw = namespace.raw.get(name, MISSING)
        if raw is MISSING:
            self.guards.has_key(namespace.source, name, False)
            value: Any = MISSING
        else:
            value = self.loader.load(raw, self.sources.item(namespace.source, name))
        values[name] = namespace.initial[name] = value
        return value

    def as_dict(self, namespace: Namespace) -> dict:
        """The global variables of a module as a dict that the program holds."""
        if namespace.overlay is None:
            loaded = self.loader.load(namespace.raw, namespace.source)
            overlay = self.loader.dicts[id(loaded)]
            for name, value in namespace.values.items():
                if name in namespace.written:
                    if value is MISSING:
                        self.loader.dict_delete(overlay, name)
                    else:
                        self.loader.dict_write(overlay, name, value)
                elif value is MISSING:
                    overlay.absent.add(name)
                else:
                    overlay.pending.discard(name)
                    if value is not overlay.base[name]:
                        overlay.held[name] = value
                    dict.__setitem__(loaded, name, value)
            namespace.written.clear()
            namespace.overlay = overlay
        return namespace.overlay.copy

    def globals_given(self, space: Any) -> Any:
        """`space`, or the dict of the module whose global variables the program holds as `space`."""
        origin = self.loader.origin(space)
        return origin.raw if origin is not None and id(origin.raw) in self.namespaces else space

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = self.namespace(frame)
        if namespace is None:
            if str(frame.globals.get("__name__", "")).startswith("lampwork.capture."):
                return World.load_global(self.world, frame, name)
            value = self.world.mapping_lookup(frame.globals, name)  # a namespace that the program made, for `exec`
            value = MISSING if value is UNBOUND else value
        else:
            value = self.read(namespace, name)
        if value is not MISSING:
            return value
        builtin_names = self.namespaces.get(id(frame.builtins)) or self.namespace_of(frame.builtins, None)
        if builtin_names is None:
            raise Break("opaque-value", "a function runs with builtins of its own")
        value = self.read(builtin_names, name)
        if value is MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        namespace = self.namespace(frame)
        if namespace is None:
            World.store_global(self.world, frame, name, value)
        else:
            self.write(namespace, name, value)

    def write(self, namespace: Namespace, name: str, value: Any) -> None:
        if namespace.overlay is not None:
            if value is MISSING:
                self.loader.dict_delete(namespace.overlay, name)
            else:
                self.loader.dict_write(namespace.overlay, name, value)
            return
        namespace.values[name] = value
        namespace.written[name] = None

    def delete_global(self, frame: Frame, name: str) -> None:
        namespace = self.namespace(frame)
        if namespace is None:
            World.delete_global(self.world, frame, name)
            return
        if self.read(namespace, name) is MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        if name not in namespace.initial:  # written before it was read: deleted for good only if it was there
            present = name in namespace.raw
            self.guards.has_key(namespace.source, name, present)
            if not present:
                namespace.initial[name] = MISSING
        self.write(namespace, name, MISSING)

    def load_cell(self, cell: Any) -> Any:
        overlay = self.loader.cells.get(id(cell))
        if overlay is None:
            return World.load_cell(self.world, cell)
        value = self.loader.cell_read(overlay)
        return UNBOUND if value is MISSING else value

    def store_cell(self, cell: Any, value: Any) -> None:
        overlay = self.loader.cells.get(id(cell))
        if overlay is None:
            World.store_cell(self.world, cell, value)
        else:
            self.loader.cell_write(overlay, value)

    def delete_cell(self, cell: Any) -> None:
        overlay = self.loader.cells.get(id(cell))
        if overlay is None:
            World.delete_cell(self.world, cell)
        else:
            self.loader.cell_write(overlay, MISSING)

    # ------------------------------------------------------------------------------------------------------------------
    # Imports

    def _native_builtin(self, frame: Frame, name: str) -> None:
        """Guards that a function which the interpreter calls by itself is its own."""
        names = self.namespaces.get(id(frame.builtins)) or self.namespace_of(frame.builtins, None)
        if names is None or self.read(names, name) is not _NATIVE[name]:
            raise Break("native-call", f"builtins.{name} was replaced")

    def load_build_class(self, frame: Frame) -> Any:
        self._native_builtin(frame, "__build_class__")
        return World.load_build_class(self.world, frame)

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> Any:
        if self.namespace(frame) is None:
            raise Break("import", f"import of {name} in a namespace of the program's own")
        self._native_builtin(frame, "__import__")
        package = frame.globals.get("__package__") or frame.globals.get("__name__", "").rpartition(".")[0]
        known = {"__name__": frame.globals.get("__name__"), "__package__": package}
        try:
            with self.world.recorder._paused():
                module = __import__(name, {**known, "__path__": frame.globals.get("__path__", [])}, None, names, level)
        except ImportError as error:
            self._note_missing(error.name)
            raise
        return self._imported(module)

    def import_module(self, name: str) -> Any:
        """What `importlib.import_module` returns for an absolute name."""
        try:
            with self.world.recorder._paused():
                module = importlib.import_module(name)
        except ImportError as error:
            self._note_missing(error.name)
            raise
        return self._imported(module)

    def _imported(self, module: Any) -> Any:
        self.guards.is_object(self.sources.module(module.__name__), module)
        if id(module) not in self.loader.by_value:
            self.loader.remember(module, module, self.sources.module(module.__name__))
        return module

    def _note_missing(self, name: str | None) -> None:
        """Guards that no module of this name is loaded, or None in its place. Nobody looks whether there is a file."""
        if name is None:
            raise Break("import", "an import fails")
        loaded = self.sources.global_variable("sys", "modules")
        if name in sys.modules:
            self.loader.load(sys.modules[name], self.sources.item(loaded, name))
        else:
            self.guards.has_key(loaded, name, False)

    def import_from(self, module: Any, name: str) -> Any:
        value = self.world.attribute_or(module, name, UNBOUND)
        if value is UNBOUND and isinstance(module, ModuleType):
            found = sys.modules.get(f"{module.__name__}.{name}")
            if found is not None:
                return self.loader.load(found, self.sources.module(found.__name__))
        return World.import_from(self.world, module, name) if value is UNBOUND else value

    def import_star(self, frame: Frame, module: Any) -> None:
        raise Break("import", f"from {module.__name__} import *")
