"""A tensor's class with a base that is no tensor: `__dict__` is then the descriptor of that base."""

from __future__ import annotations

import torch

import lampwork


class Described:
    def describe(self, description):
        self.description = description
        return hasattr(self, "__dict__"), dict(self.__dict__), vars(self)["description"]


class DescribedTensor(Described, torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        return torch.as_tensor(x).as_subclass(cls)


def program(x):
    made = DescribedTensor(x)
    return made.describe("a")[0], made.describe("b")[1], made * 2


def test_the_namespace_is_found():
    compiled = lampwork.compile(program, fullgraph=True)
    for _ in range(2):
        found, expected = compiled(torch.ones(3)), program(torch.ones(3))
        assert found[:2] == expected[:2] and type(found[2]) is DescribedTensor and torch.equal(found[2], expected[2])
    assert not lampwork.stats(compiled)["fallbacks"]
