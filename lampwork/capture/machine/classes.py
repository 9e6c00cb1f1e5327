"""`class` statements: `__build_class__` with the class body interpreted."""

from __future__ import annotations

import builtins
import types
from types import CellType
from typing import TYPE_CHECKING, Any

from .private import keep_builtins
from .values import UNBOUND, is_a

keep_builtins(globals())

if TYPE_CHECKING:
    pass


class BuildClass:
    """Stands for `builtins.__build_class__` on the value stack (see Python/bltinmodule.c)."""

    native: Any = builtins.__build_class__
    __slots__ = ("machine",)

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def __call__(self, function: Any, name: str, /, *bases: Any, metaclass: Any = UNBOUND, **keywords: Any) -> Any:
        machine = self.machine
        world = machine.world
        if function.__code__.co_flags & 0x380 or not world.should_interpret(function):
            if metaclass is not UNBOUND:
                keywords["metaclass"] = metaclass
            return BuildClass.native(function, name, *bases, **keywords)
        resolved = types.resolve_bases(bases)
        if metaclass is UNBOUND:
            metaclass = type(resolved[0]) if resolved else type
        if is_a(metaclass, type):
            metaclass = _most_derived(metaclass, resolved)
        prepare = world.attribute_or(metaclass, "__prepare__", UNBOUND)
        namespace = {} if prepare is UNBOUND else machine.call(prepare, (name, resolved), keywords)
        if not hasattr(type(namespace), "__getitem__"):
            shown = metaclass.__name__ if is_a(metaclass, type) else "<metaclass>"
            raise TypeError(f"{shown}.__prepare__() must return a mapping, not {type(namespace).__name__}")
        cell = machine.run_class_body(function, namespace)
        if resolved is not bases:
            world.set_item(namespace, "__orig_bases__", bases)
        cls = machine.call(metaclass, (name, resolved, namespace), keywords)
        if is_a(cls, type) and type(cell) is CellType:
            try:
                held = cell.cell_contents
            except ValueError:
                held = UNBOUND
            if held is UNBOUND:
                raise RuntimeError(
                    f"__class__ not set defining {name!r} as {cls!r}. Was __classcell__ propagated to type.__new__?"
                )
            if held is not cls:
                raise TypeError(f"__class__ set to {held!r} defining {name!r} as {cls!r}")
        return cls


def _most_derived(metaclass: type, bases: tuple[Any, ...]) -> type:
    winner = metaclass
    for base in bases:
        kind = type(base)
        if issubclass(winner, kind):
            continue
        if issubclass(kind, winner):
            winner = kind
            continue
        raise TypeError(
            "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the "
            "metaclasses of all its bases"
        )
    return winner
