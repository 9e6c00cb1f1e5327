"""What a cached function remembers for an argument is read on each call, although the function itself is static."""

from __future__ import annotations

import functools

import torch

import lampwork
from lampwork.ir.source import Argument, Remembered, Root, is_static
from lampwork.runtime.guards.static import Split


class Key:
    pass


@functools.lru_cache(maxsize=None)
def scale(key):
    return 3


WEIGHTS = [torch.ones(3) for _ in range(20)]


def program(x, key):
    for weight in WEIGHTS:
        x = x + weight[0]
    return x * scale(key)


def test_it_is_compiled_once():
    compiled = lampwork.compile(program)
    key = Key()
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2), key), program(torch.ones(2), key))
    stats = lampwork.stats(compiled)
    assert stats["captures"] == stats["entries"] == 1 and not stats["fallbacks"]


def test_steps_are_static_as_the_source_says():
    source = Remembered(Root(), (Argument(0),))
    assert not is_static(source) and not Split([]).is_static(source)
