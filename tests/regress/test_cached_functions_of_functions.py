"""A function behind `lru_cache` that `__torch_function__` asks about the function it was called for."""

from __future__ import annotations

import functools

import torch

import lampwork


@functools.lru_cache(None)
def returns_several(function):
    return hasattr(torch.return_types, getattr(function, "__name__", ""))


class Noted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result if not returns_several(function) else result[0]


def program(x):
    return x * 2 + x.max(0), torch.relu(x), torch.sort(x)


def test_one_graph():
    compiled = lampwork.compile(program, fullgraph=True)
    x = torch.randn(3, 3).as_subclass(Noted)
    for _ in range(2):
        returns_several.cache_clear()
        for one, other in zip(compiled(x), program(x)):
            assert type(one) is type(other) is Noted and torch.equal(one, other)
