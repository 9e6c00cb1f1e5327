"""Dropout with a probability that varies: one graph for all of them, which draws what eager draws.

dropout(%x, p, True)    ->      %noise = bernoulli_of(%keep, ...)       %keep: 1 - p, in a tensor on the CPU
                                %scale = div(%noise, %keep)
                                %mul = mul(%x, %scale)
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.scalar import Scalar, is_backed
from lampwork.fakes.shapes import has_zero, infer

_NAMES = frozenset({"dropout", "dropout_"})


def is_dropout(function: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether it is the function of PyTorch, of a tensor on the CPU, with a probability that varies."""
    if getattr(function, "__name__", "") not in _NAMES or kwargs or len(args) != 3 or not is_backed(args[1]):
        return False
    return type(args[0]) is Fake and args[0].device.type == "cpu" and args[0].is_floating_point()


def dropout(world: Any, function: Any, x: Fake, p: Scalar, train: bool) -> Any:
    """What the function gives. That the probability is neither 0 nor 1, nor out of range, is guarded; one that is has
    an entry of its own."""
    numbers = world.backed_numbers
    if not (numbers.compare(operator.gt, p, 0) and numbers.compare(operator.lt, p, 1)):
        return function(x, p.take(), train)
    if not train or has_zero(x.size()):
        return function(x, 0.5, train)  # whatever the probability is
    keep = numbers.compute(operator.sub, 1, p)
    with torch.no_grad():
        like = infer(torch.ops.aten.empty_like.default, (x,), {})
        given = (numbers.tensor(keep), list(like.size()), list(like.stride()), like.dtype)
        noise = world.recorder.call(_torch.bernoulli_of(), given, {})
        scale = noise / world.families.scalar.symbolic(keep)
    return x.mul_(scale) if function.__name__ == "dropout_" else x * scale
