"""What a function of the program changes but tensors: nothing, if it is to run in a graph.

Eager refuses branches and loops that change something outside of themselves, or does it once where a program's branch
would do it each time. Seen is what the capture writes down (objects from outside, state of the process, output), and
what can be reached from the function among the objects that the program has made itself.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.flow.bodies import Refused
from lampwork.capture.record.fake import Fake

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, type, types.ModuleType, types.CodeType,
    types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, range, slice,
)  # fmt: skip


class State:
    """What there was to change before a function ran that is reached from `roots`."""

    def __init__(self, world: Any, roots: Iterable[Any]) -> None:
        self.world, self.roots = world, tuple(roots)
        self.outside = self._of_the_capture()
        self.inside = self._of_objects()
        self.tensors = self._of_tensors()

    def require_same(self) -> None:
        """Raises `Refused` where something is another now."""
        if self.outside != self._of_the_capture():
            raise Refused("it changes something outside of it")
        if not _same(self.inside, self._of_objects()):
            raise Refused("it changes an object of the program's")
        if any(_about(fake) != about for fake, about in self.tensors):
            raise Refused("it changes what a tensor is like")

    def _of_the_capture(self) -> tuple:
        world = self.world
        process = {name: _torch.STATE[name]() for name in ("grad_mode", "autocast", "default_dtype")}
        told = [(each.function, len(each.args)) for each in world.output.calls]
        counts = (
            len(world.host_calls.late), len(world.backed_numbers.assumed), len(world.locks.taken), len(world.stepped),
            world.hooks_registered, len(world.recorder.hook_tables), len(world.made_caches), len(world.made_locals),
            len(world.identified), world.recorder.own_gradients, len(world.process.entered),
            _torch.active_transforms(),
        )  # fmt: skip
        return world.output.effects(), process, told, _text_lengths(world.output.calls), counts

    def _of_objects(self) -> list[tuple[Any, list[Any]]]:
        """Each object that the program has made and can be reached, with what it holds."""
        world, found, seen = self.world, [], set()
        pending = list(self.roots)
        while pending:
            value = pending.pop()
            if id(value) in seen or isinstance(value, (*_PLAIN, Fake)):
                continue
            seen.add(id(value))
            holds = self._held(value)
            if holds is None:
                if world.loader.origin(value) is None and not isinstance(value, _OUTSIDE):
                    raise Refused(f"it can reach a {type(value).__qualname__}, which it may change")
                continue
            found.append((value, holds))
            pending.extend(holds)
        return found

    def _held(self, value: Any) -> list[Any] | None:
        """What an object of the program's own holds; nothing for one from outside, whose changes are noted."""
        loader = self.world.loader
        if isinstance(value, types.CellType):
            if id(value) in loader.cells:
                overlay = loader.cells[id(value)]
                return [overlay.value] if overlay.loaded else []
            return [value.cell_contents] if _has_contents(value) else []
        if isinstance(value, types.FunctionType):
            cells = value.__closure__ or ()
            if loader.origin(value) is not None:  # what is not loaded from there nobody has changed
                return [cell for cell in cells if id(cell) in loader.cells]
            return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        if isinstance(value, types.MethodType):
            return [value.__self__, value.__func__]
        if isinstance(value, functools.partial):
            return [value.func, *value.args, *value.keywords.values()]
        if loader.origin(value) is not None:
            return None
        kind = type(value)
        if issubclass(kind, tuple):
            return list(tuple.__iter__(value))
        if kind in (list, set, frozenset):
            return list(value)
        if issubclass(kind, dict):
            return [*dict.keys(value), *dict.values(value)]
        if issubclass(kind, (list, set)) or not kind.__flags__ & _HEAP:
            return None
        if kind.__module__ == _SPECS:
            return []
        try:
            return list(object.__getattribute__(value, "__dict__").values())
        except AttributeError:
            return None

    def _of_tensors(self) -> list[tuple[Fake, tuple]]:
        """Each tensor that there is, with what can be changed of it in place but its contents."""
        held = [each for _, holds in self.inside for each in holds]
        fakes = [*self.world.tensors.fakes_of_tensors(), *held, *self.roots]
        return [(each, _about(each)) for each in fakes if isinstance(each, Fake)]


#: Py_TPFLAGS_HEAPTYPE.
_HEAP = 1 << 9
#: Where classes are from that say how containers are nested; nobody changes their instances.
_SPECS = "torch.utils._pytree"
#: What changes in which the capture writes down, or nothing does.
_OUTSIDE = (torch.nn.Module, torch.Tensor)


def _has_contents(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _about(fake: Fake) -> tuple:
    node = fake.node
    if type(node) is not tuple:  # a part of a result has its own node once it is asked for
        node = node.args if node is not None and node.target is _torch.getitem else (node, -1)
    grad = fake.grad if fake.is_leaf else None
    return id(node[0]), node[1], tuple(fake.size()), fake.requires_grad, id(grad)


def _same(before: list[tuple[Any, list[Any]]], after: list[tuple[Any, list[Any]]]) -> bool:
    """Whether the same objects hold the same. Of cells from outside more may have been read meanwhile."""
    now = {id(value): holds for value, holds in after}
    for value, holds in before:
        found = now.get(id(value))
        if found is None:
            return False
        if isinstance(value, types.CellType) and not holds:
            continue
        if len(found) != len(holds) or any(one is not other for one, other in zip(holds, found)):
            return False
    return True


def _text_lengths(calls: list[Any]) -> list[int]:
    return [len(each) for call in calls for each in call.args if isinstance(each, str)]
