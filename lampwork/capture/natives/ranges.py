"""Loops over a range of sizes that vary: `for start in range(0, x.shape[0], 128)`.

A range in C takes numbers, so the size would be one. A loop asks no more of it than how many turns there are and where
each is: these are symbols, with a guard for each turn that it is one. `range(n)` alone takes as many turns as n says.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork.capture.bytecode.decode import OP
from lampwork.capture.machine import Answer
from lampwork.fakes.symbolic import by_contents

_GET_ITER = OP["GET_ITER"]
#: Loops of more turns are captured for their number alone.
_MOST_TURNS = 64


def _range(world: Any, *args: Any, **kwargs: Any) -> Any:
    args = tuple(int(bool(each)) if type(each) is torch.SymBool else each for each in args)
    start, stop, step = _bounds(args)
    if kwargs or not _varies(start, stop, step) or not _is_looped_over(world) or not step > 0:
        return range(*args, **kwargs)
    turns: list[Any] = []
    place = start
    while place < stop:
        if len(turns) == _MOST_TURNS:
            return range(*args)
        turns.append(place)
        place = place + step
    return tuple(turns)


def _bounds(args: tuple) -> tuple[Any, Any, Any]:
    if len(args) == 1:
        return 0, args[0], 1
    return (*args, 1) if len(args) == 2 else args if len(args) == 3 else (None, None, None)


def _varies(start: Any, stop: Any, step: Any) -> bool:
    """Whether a loop over it is the same for several sizes."""
    parts = (start, stop, step)
    if any(type(each) not in (int, torch.SymInt) or by_contents(each) for each in parts):
        return False
    return torch.SymInt in (type(start), type(step)) or (type(stop) is torch.SymInt and step > 1)


def _is_looped_over(world: Any) -> bool:
    frame = world.machine.frames[-1]
    return frame.code.instructions[frame.index][0] == _GET_ITER


NATIVES: dict[Any, Answer] = {range: _range}
