"""Torch function modes that the program enters, where what they do is known.

    with TransformGetItemToIndex():                 x[i] is aten.index, whichever x and i: how transformers makes masks
        mask = torch.vmap(mask_function)(indices)

While such a mode is entered, a stand-in is active in C, as the mode itself would be: what runs natively on fakes (the
operators under `vmap`) meets it. Other modes are classes of the user's whose code natives would run: they are a break.
"""

from __future__ import annotations

from typing import Any

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break


class _Entered:
    """A mode of the program's and the stand-in that is active for it."""

    def __init__(self, mode: Any, stand_in: Any) -> None:
        self.mode = mode
        self.stand_in = stand_in

    def __exit__(self, *error: Any) -> None:
        _torch.pop_function_mode()


def _push(world: Any, mode: Any) -> None:
    stand_in = _torch.known_function_mode(type(mode))
    if stand_in is None:
        kind = type(mode).__name__
        raise Break("unknown-native", f"a torch function mode is entered whose effect is not known: {kind}")
    _torch.push_function_mode(stand_in)
    world.process.entered.append(_Entered(mode, stand_in))


def _pop(world: Any) -> Any:
    """The mode that was entered last; one that was entered outside of the region is not known here."""
    if not world.process.entered or type(world.process.entered[-1]) is not _Entered:
        raise Break("unknown-native", "a torch function mode is left that was entered outside")
    innermost = world.process.entered.pop()
    innermost.__exit__()
    return innermost.mode


#: Entering and leaving of torch function modes.
NATIVES: dict[Any, Answer] = {_torch.push_function_mode: _push, _torch.pop_function_mode: _pop}
