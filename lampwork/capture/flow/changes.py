"""What a function of the program changes but tensors: nothing, if it is to run in a graph.

Eager refuses functions that change something outside of themselves. Here both branches are interpreted, and a turn of a
loop once, so such a change would happen in the wrong calls. Seen is what the capture writes down (objects from outside,
state of the process, output), and what can be reached from the function among the objects that the program has made.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.flow.bodies import Refused
from lampwork.capture.outside.overlay import IdentityNumber
from lampwork.capture.outside.plain import DATES, PLAIN_TYPES
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.scalar import Late, Scalar
from lampwork.capture.values.sizes import SYMBOLIC
from lampwork.capture.values.unknown_text import UnknownText

#: Classes, exactly these, of what does not change.
_PLAIN = frozenset({
    type(None), bool, int, float, complex, str, bytes, types.ModuleType, types.CodeType, torch.dtype, torch.device,
    torch.Size, torch.layout, torch.memory_format, range, slice, Scalar, Late, HostResult, *SYMBOLIC, *DATES,
    *PLAIN_TYPES,
})  # fmt: skip


class State:
    """What there was to change before a function ran that is reached from `roots`."""

    def __init__(self, world: Any, roots: Iterable[Any]) -> None:
        self.world, self.roots = world, tuple(roots)
        self.outside = self._of_the_capture()
        self.inside = self._of_objects()
        self.tensors = self._of_tensors()
        self.told = self._told()

    def require_same(self) -> None:
        """Raises `Refused` where something is another now."""
        told = self._told()
        if not _are(self.told, told) or self.outside != self._of_the_capture():
            raise Refused("it changes something outside of it")
        if not self._same(self._of_objects()):
            raise Refused("it changes an object of the program's")
        for fake, about, holds in self.tensors:
            now, held = self._about(fake)
            if now != about or not _are(holds, held):
                raise Refused("it changes what a tensor is like")

    def _same(self, after: list[tuple[Any, list[Any]]]) -> bool:
        """Whether the same objects hold the same. Of cells and functions from outside more may have been read since."""
        now = {id(value): holds for value, holds in after}
        for value, holds in self.inside:
            found = now.get(id(value))
            if found is None:
                return False
            if isinstance(value, types.CellType) and not holds:
                continue
            if isinstance(value, types.FunctionType) and self.world.loader.origin(value) is not None:
                found = [each for each in found if any(each is one for one in holds)]
            if not _are(holds, found):
                return False
        return True

    def _told(self) -> list[tuple]:
        """What waits to be printed, logged and warned of: texts that follow each other are put together anew."""
        return [each.args for each in self.world.output.calls]

    def _of_the_capture(self) -> tuple:
        world = self.world
        process = {name: _torch.STATE[name]() for name in ("grad_mode", "autocast", "default_dtype")}
        noted = (
            world.host_calls.calls, world.host_calls.late, world.backed_numbers.assumed, world.locks.taken,
            world.stepped, world.recorder.hook_tables, world.made_caches, world.made_locals, world.identified,
            world.process.entered,
        )  # fmt: skip
        counts = [len(each) for each in noted]
        others = world.hooks_registered, world.recorder.own_gradients, _torch.active_transforms()
        return world.output.effects(), process, counts, others

    def _of_objects(self) -> list[tuple[Any, list[Any]]]:
        """Each object that the program has made and can be reached, with what it holds."""
        world, found, seen = self.world, [], set()
        pending = list(self.roots)
        while pending:
            value = pending.pop()
            if id(value) in seen or type(value) in _PLAIN or isinstance(value, (Fake, IdentityNumber, UnknownText)):
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
        if isinstance(value, types.BuiltinFunctionType):
            return [] if isinstance(value.__self__, types.ModuleType) else [value.__self__]
        if isinstance(value, type):  # one that the program has made may be changed where nobody writes it down
            own = vars(value).items() if "<locals>" in value.__qualname__ else ()
            return [each for name, each in own if not name.startswith("__")]
        if isinstance(value, functools.partial):
            return [value.func, *value.args, *value.keywords.values()]
        if loader.origin(value) is not None:
            return None
        kind = type(value)
        if issubclass(kind, tuple):
            return list(tuple.__iter__(value))
        if kind in (list, set, frozenset, collections.deque):
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

    def _of_tensors(self) -> list[tuple[Fake, tuple, list[Any]]]:
        """Each tensor that there is, with what can be changed of it in place but its contents; see `_about`."""
        held = [each for _, holds in self.inside for each in holds]
        fakes = [*self.world.tensors.fakes_of_tensors(), *held, *self.roots]
        return [(each, *self._about(each)) for each in fakes if isinstance(each, Fake)]

    def _about(self, fake: Fake) -> tuple[tuple, list[Any]]:
        """What a tensor is like, and the objects that it holds: themselves, as another may have the id of one that is
        gone."""
        node = fake.node
        if type(node) is not tuple:  # a part of a result has its own node once it is asked for
            node = node.args if node is not None and node.target is _torch.getitem else (node, -1)
        grad = fake.grad if fake.is_leaf else None
        overlay = self.world.loader.slots.get(id(fake))
        names = () if overlay is None else tuple(overlay.written)
        own = [] if overlay is None else [overlay.values[name] for name in names]
        return (node[1], tuple(fake.size()), fake.requires_grad, names), [node[0], grad, *own]


def _are(before: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether these are the same objects."""
    return len(before) == len(now) and all(map(operator.is_, before, now))


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
