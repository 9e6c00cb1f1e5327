"""Which sizes of a call become symbols: what the settings ask for, what the user marked, what varied between calls.

Sizes of 0 never do: empty results are other programs. A symbol may be 1 as long as the program does not ask; where a
size that varied is 1 in the call at hand, the program is captured as of a larger one, and with the number where it
asks after all (`pipeline.py`). Strides follow from the sizes where they are those of a dense tensor; others are
guarded.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.symbolic import SMALLEST_SIZE, SymbolicSizes, size_of
from lampwork.ir.record import record
from lampwork.ir.size import INFINITY
from lampwork.ir.source import Argument, Item, Keyword, Source, any_element, by_any_key

#: (source, "shape" | "stride" | "value", dimension): an integer that differed between calls; (source, "item", 0): the
#: integer in a tensor; (source, "iterator", 0):
#: an iterator that had other elements left in each; (source, "text", 0): a text that names other things in each. What
#: such a text leads to is told by its path with any key (`ir.source.by_any_key`).
Varying = tuple[Source, str, int]


@record
class DynamicPolicy:
    """`everything`: all sizes and integers of the call's arguments. `varied`: what differed between calls so far.

    Neither: what is marked alone; `allowed` False: nothing at all. `contents`: sizes that the contents of tensors
    decide are symbols, too. `single`: sizes that are 1 in the call at hand, and numbers in its program.
    """

    allowed: bool = True
    everything: bool = False
    varied: frozenset[Varying] = frozenset()
    contents: bool = True
    single: frozenset[Varying] = frozenset()

    def fixed(self) -> DynamicPolicy:
        """No size is a symbol."""
        items = frozenset(each for each in self.varied if each[1] == "item")
        return DynamicPolicy(allowed=False, varied=items, contents=False)

    def is_setting(self, source: Source) -> bool:
        """Whether the integer in the tensor at `source` may be taken for what it is in every call."""
        return not is_argument(source) and (source, "item", 0) not in self.varied

    def is_symbol(self, source: Source, kind: str, axis: int = 0) -> bool:
        if not self.allowed:
            return False
        if self.everything and is_argument(source):
            return True
        if not self.varied:
            return False
        if (any_element(source) if kind == "text" else source, kind, axis) in self.varied:
            return True
        anywhere = by_any_key(source)
        return anywhere is not None and (anywhere, kind, axis) in self.varied

    def follows(self, iterator: Source) -> bool:
        """Whether a loop over an iterator from outside is captured to its end: not if its turns are entries of their
        own."""
        return (iterator, "iterator", 0) not in self.varied

    def opens(self, source: Source) -> bool:
        """Whether something inside the tuple at `source` may be a symbol."""
        if not self.allowed:
            return False
        if self.everything and is_argument(source):
            return True
        return any(_lies_in(each, source) for each, _, _ in self.varied)


#: Symbols for what the user marked, and nothing else.
MARKED_ONLY = DynamicPolicy()


def is_argument(source: Source) -> bool:
    """An argument of the call, or an element of a container that is one."""
    while isinstance(source, Item):
        source = source.base
    return isinstance(source, (Argument, Keyword))


def _lies_in(source: Source, container: Source) -> bool:
    while True:
        if source == container:
            return True
        base = getattr(source, "base", None)
        if base is None:
            return False
        source = base


def symbolic_layout(
    tensor: torch.Tensor, source: Source, policy: DynamicPolicy, sizes: SymbolicSizes, symbol: Any = None
) -> tuple[tuple, tuple] | None:
    """Sizes and strides of a tensor from outside with symbols for what the policy makes one; None without any.

    `symbol(axis, size)` makes one for a tensor that is no input of the graph, or gives None.
    """
    if not policy.allowed:
        return None
    marks = _torch.size_marks(tensor)
    if not policy.varied and not policy.everything and not marks.dynamic and not marks.maybe:
        return None
    shape: list[Any] = list(tensor.size())
    for axis, size in enumerate(shape):
        if size < 1 or marks.is_static(axis):
            continue
        if size == 1:
            place = (source, "shape", axis)
            if symbol is None and place in policy.varied and place not in policy.single:
                shape[axis] = sizes.supposed_symbol(source, axis)
            continue
        marked = marks.dynamic.get(axis)
        if marked is None and not policy.is_symbol(source, "shape", axis) and axis not in marks.maybe:
            continue
        lower, upper = marked if marked is not None else (1, INFINITY)
        if symbol is not None:
            shape[axis] = symbol(axis, size) or size
            continue
        lower = max(lower or 1, 1)
        upper = INFINITY if upper is None else min(upper, INFINITY)
        if not lower <= size <= upper:
            continue
        shape[axis] = sizes.symbol(source, "shape", axis, size, lower, upper, marked=marked is not None)
    strides = _strides(tensor, shape, source, policy, sizes)
    if not any(type(each) is torch.SymInt for each in (*shape, *strides)):
        return None
    return tuple(shape), tuple(strides)


def _strides(
    tensor: torch.Tensor, shape: list[Any], source: Source, policy: DynamicPolicy, sizes: SymbolicSizes
) -> list[Any]:
    """The tensor's strides: products of symbolic sizes where a dense layout says so, numbers else."""
    strides: list[Any] = list(tensor.stride())
    numbers = tuple(tensor.size())
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], -axis))
    expected: Any = 1
    number = 1
    for axis in order:
        if strides[axis] == number and type(expected) is torch.SymInt:
            sizes.require(source, "stride", axis, size_of(expected))
            strides[axis] = expected
        elif policy.is_symbol(source, "stride", axis) and strides[axis] >= SMALLEST_SIZE and strides[axis] != number:
            if not policy.everything:
                strides[axis] = sizes.symbol(source, "stride", axis, strides[axis])
        if numbers[axis] > 1 or type(shape[axis]) is torch.SymInt:  # a dimension of size 0 counts as one of size 1
            expected, number = shape[axis] * strides[axis], max(numbers[axis], 1) * tensor.stride(axis)
    return strides
