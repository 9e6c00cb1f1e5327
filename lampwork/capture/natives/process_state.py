"""`ProcessState`: what a program reads and sets of its process, and the contexts in C that it is in.

Reads are guarded. Writes are performed while capturing and undone after it; what is left changed is an effect
(`capture.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.capture.natives.effect_classes import STATE_WRITERS
from lampwork.capture.outside.overlay import Break

if TYPE_CHECKING:
    from lampwork.capture.outside.guards import GuardList, Sources


#: In `touched` where the program has changed which warnings are shown.
WARNING_FILTERS = "warning_filters", None


class ProcessState:
    def __init__(self, guards: GuardList, sources: Sources) -> None:
        self.guards, self.sources = guards, sources
        #: What it was when capture began, by name.
        self.initial: dict[str, Any] = {}
        #: Names of what the program has set.
        self.written: set[str] = set()
        #: What the program set, such that no other state shows it: set again on every call, to the value.
        self.touched: dict[tuple[str, Any], None] = {}
        #: Whether a text that is made after the graph shows a tensor.
        self.shows_tensors = False
        #: Contexts that the program has entered, innermost last.
        self.entered: list[Any] = []
        #: How much deeper in `autocast` contexts the program is than where it began, the least that this was, and
        #: whether it emptied their cache of casts.
        self.autocast_nesting = self.autocast_lowest = 0
        self.autocast_cleared = False
        #: Whether the program has the cache of casts on; None until it asked or said.
        self.autocast_cache: bool | None = None
        #: Function transforms that are active around the call, and levels of forward derivatives entered in it.
        self.transforms_outside = _torch.active_transforms()
        self.dual_levels: list[int] = []

    def read(self, name: str) -> None:
        """Guards a part of it, once."""
        value = self.initial[name] if name in self.initial else _torch.STATE[name]()
        self.guards.equals(self.sources.state(name), value)

    def set(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Calls one of `STATE_WRITERS`."""
        name = STATE_WRITERS[function]
        self.read(name)
        if self.shows_tensors and name == "default_dtype":
            raise Break("native-call", "the default type changes after a text made of a tensor's contents")
        self.written.add(name)
        if function is torch.autocast_increment_nesting:
            self.autocast_nesting += 1
        elif function is torch.autocast_decrement_nesting:
            self.autocast_nesting -= 1
            self.autocast_lowest = min(self.autocast_lowest, self.autocast_nesting)
        elif function is torch.clear_autocast_cache and _torch.autocast_nesting() > 0:
            self.autocast_cleared = True
        return function(*args, **kwargs)

    def leave_contexts(self) -> None:
        """Leaves what the program had entered in C when it was stopped, and enters what it had left."""
        for context in reversed(self.entered):
            context.__exit__(None, None, None)
        self.entered.clear()
        _torch.leave_transforms(self.transforms_outside, self.dual_levels)
        for _ in range(self.autocast_nesting):
            torch.autocast_decrement_nesting()
        for _ in range(-self.autocast_nesting):
            torch.autocast_increment_nesting()
