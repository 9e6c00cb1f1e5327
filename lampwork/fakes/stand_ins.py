"""Small tensors that stand for the operands of a call: what a kernel says of them, it says of the call.

f32[1, 512, 64] of strides (65536, 64, 1)   stands for itself where such a call costs little
f32[2, 2]                                   its sizes are cut: for an answer that asks for types alone
f32[1, 4, 3] of strides (13, 3, 1)          it is reduced: laid out as the large tensor is, gaps included
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.ir.size import INFINITY, span

#: Sizes and strides of a stand-in; strides None: those of fresh memory.
Layout = tuple[tuple[int, ...], tuple[int, ...] | None]
_PLAIN = frozenset({
    type(None), bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format, torch.device,
})  # fmt: skip
#: Sizes that a reduced tensor keeps: kernels treat them as none else.
KEPT = 2
#: Results and operands of more different sizes are not reduced: the stand-ins would not be small.
_MOST_SIZES = 6


class CannotAsk(Exception):
    """Nothing can stand for an argument."""


class TooLarge(Exception):
    """The call would compute more than an answer is worth, or nobody knows its sizes yet."""


def hint(size: Any, unknown: Any) -> Any:
    """`size` in the call that is captured; `unknown` where contents decide."""
    node = size.node
    return unknown if node.sizes.by_contents(node.value) else node.hint


def seen(sizes: Any) -> tuple[int, ...]:
    """Sizes as they are in the call that is captured. Raises `TooLarge` where contents decide."""
    found = tuple([each if type(each) is int else hint(each, None) for each in sizes])
    if None in found:
        raise TooLarge
    return found


def cut(fake: Fake, longest: int = 2) -> Layout:
    """Its sizes, those that are longer cut to `longest`, as are those that contents decide, in fresh memory."""
    return tuple([min(longest, each if type(each) is int else hint(each, longest)) for each in fake.size()]), None


class Whole:
    """Tensors as they are in the call that is captured. Raises `TooLarge` for one of more than `largest` elements."""

    def __init__(self, largest: float = INFINITY) -> None:
        self._largest = largest

    def size(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        return seen(sizes)

    def stride(self, sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...]:
        return seen(strides)

    def layout(self, fake: Fake) -> Layout:
        size, stride = seen(fake.size()), seen(fake.stride())
        if span(size, stride) > self._largest:
            raise TooLarge
        return size, stride


class Reduced:
    """One small size for each large one of a call, in the same order: equal sizes stay equal, and longer ones longer.

    So what is laid out densely stays dense, and what has gaps keeps them; a kernel that lays out results by comparing
    sizes and strides, as `TensorIterator` does, takes the same decisions.
    """

    def __init__(self, tensors: Iterable[Fake]) -> None:
        large = sorted({size for each in tensors for size in seen(each.size()) if size > KEPT})
        if len(large) > _MOST_SIZES:
            raise TooLarge
        self._small = {size: KEPT + 1 + place for place, size in enumerate(large)}

    def size(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        return tuple([self._small.get(each, each) for each in seen(sizes)])

    def layout(self, fake: Fake) -> Layout:
        """Raises `CannotAsk` where elements share memory otherwise than by strides of 0."""
        return self.size(fake.size()), self.stride(fake.size(), fake.stride())

    def stride(self, sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...]:
        """The small tensor's strides. Those of dimensions that are one long keep their place between the others."""
        sizes, strides = seen(sizes), seen(strides)
        steps = {0: 0, 1: 1}
        reached = small_reached = 1
        for step, size in sorted((step, size) for size, step in zip(sizes, strides) if size != 1 and step != 0):
            if step < reached:
                raise CannotAsk
            small = steps.setdefault(step, small_reached + (step > reached))
            reached, small_reached = step * max(size, 1), small * max(self._small.get(size, size), 1)
            steps.setdefault(reached, small_reached)
        return tuple([_between(steps, step) for step in strides])


def _between(steps: dict[int, int], step: int) -> int:
    """What a stride is among the small ones, where `steps` says what some are. Raises `CannotAsk` without room."""
    found = steps.get(step)
    if found is None:
        below = max(each for each in steps if each < step)
        found = steps[below] + 1
        if found in steps.values():
            raise CannotAsk
        steps[step] = found
    return found


def key_of(value: Any, layout_of: Callable[[Fake], Layout]) -> Any:
    """What a call depends on besides the contents of its tensors; hashable."""
    kind = type(value)
    if kind is Fake:
        if value.device.type not in ("cpu", "cuda") or value.is_neg():
            raise CannotAsk
        return value.dtype, *layout_of(value), value.device, value.is_conj()
    if kind is torch.SymInt:
        return int, seen((value,))
    if kind in _PLAIN:
        if kind is torch.device and value.type != "cpu":
            raise CannotAsk
        return kind, value
    if kind is tuple or kind is list:
        return kind, tuple([key_of(each, layout_of) for each in value])
    if kind is dict:
        return tuple([(name, key_of(each, layout_of)) for name, each in value.items()])
    raise CannotAsk


def stand_in(
    value: Any, fill: Callable, made: dict[int, torch.Tensor], layout_of: Callable[[Fake], Layout], on_cpu: bool = False
) -> Any:
    """An argument with small tensors for fakes; `made`: those that stand for fakes already, by id."""
    kind = type(value)
    if kind is Fake:
        found = made.get(id(value))
        if found is None:
            size, stride = layout_of(value)
            with _torch.kernels_only():
                device = "cpu" if on_cpu else value.device
                if stride is None:
                    found = fill(size, dtype=value.dtype, device=device)
                else:
                    found = fill(span(size, stride), dtype=value.dtype, device=device).as_strided(size, stride)
            made[id(value)] = found = found.conj() if value.is_conj() else found
        return found
    if kind is tuple or kind is list:
        return kind([stand_in(each, fill, made, layout_of, on_cpu) for each in value])
    if kind is torch.SymInt:
        return seen((value,))[0]
    if kind is dict:
        return {name: stand_in(each, fill, made, layout_of, on_cpu) for name, each in value.items()}
    return value


def fakes_in(value: Any) -> list[Fake]:
    """The fakes in nested arguments."""
    kind = type(value)
    if kind is Fake:
        return [value]
    if kind is dict:
        value = value.values()
    elif kind is not tuple and kind is not list:
        return []
    return list(itertools.chain.from_iterable(map(fakes_in, value)))
