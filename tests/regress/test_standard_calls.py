"""Calls of the standard library and deletions that compiled programs got wrong, each as the smallest program."""

from __future__ import annotations

import collections
import functools
import operator

import pytest
import torch

import lampwork


@torch.compiler.disable
def _break():
    pass


class Pair:
    __slots__ = ("left", "right")

    def __init__(self):
        self.left, self.right = 1.0, 2.0


class Half:
    @property
    def value(self):
        return 1.0


class Letters:
    """A mapping written in Python, whose contents the program changes."""

    def __init__(self):
        self.letters = ["a", "b"]

    def keys(self):
        return list(self.letters)

    def __getitem__(self, name):
        return len(self.letters) + ord(name)


def reduced_from_a_tensor(x, thing):
    return functools.reduce(operator.mul, [1, 2, 3], x)


def reduced_across_a_break(x, thing):
    def join(total, value):
        _break()
        return total + value

    return functools.reduce(join, [1, 2], x)


def nothing_to_reduce(x, thing):
    try:
        functools.reduce(operator.add, [])
    except TypeError as error:
        return x, str(error)


def slot_deleted(x, thing):
    del thing.right
    return x + thing.left, hasattr(thing, "right")


def slot_deleted_twice(x, thing):
    del thing.right
    try:
        del thing.right
    except AttributeError as error:
        return x, str(error)


def property_deleted(x, thing):
    try:
        del thing.value
    except AttributeError as error:
        return x, str(error)


def dict_of_a_mapping(x, thing):
    thing.letters.append("c")
    return x, dict(thing)


def dict_updated_from_a_mapping(x, thing):
    table = collections.OrderedDict(z=1)
    thing.letters.append("c")
    table.update(thing)
    return x, table


def dict_of_layers(x, thing):
    layers = collections.ChainMap({"a": 10}, {"a": 1, "b": 2})
    _break()
    del layers["a"]
    return x, dict(layers)


PROGRAMS = [
    (reduced_from_a_tensor, Pair), (reduced_across_a_break, Pair), (nothing_to_reduce, Pair), (slot_deleted, Pair),
    (slot_deleted_twice, Pair), (property_deleted, Half), (dict_of_a_mapping, Letters),
    (dict_updated_from_a_mapping, Letters), (dict_of_layers, Pair),
]  # fmt: skip


@pytest.mark.parametrize(("program", "kind"), PROGRAMS, ids=[each.__name__ for each, _ in PROGRAMS])
def test_equals_eager(program, kind):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        mine, theirs = kind(), kind()
        assert str(compiled(torch.ones(2), mine)) == str(program(torch.ones(2), theirs))
        for name in ("left", "right", "letters"):
            assert hasattr(mine, name) == hasattr(theirs, name)


def test_hooks_that_are_called_always():
    """PyTorch leaves them out of compiled programs; the module raised, and its hook was not called."""

    class Refusing(torch.nn.Module):
        def forward(self, x):
            raise ValueError("refused")

    module, called = Refusing(), []
    module.register_forward_hook(lambda *_: called.append(1), always_call=True)
    with pytest.raises(ValueError, match="refused"):
        lampwork.compile(module, options={"cache": False})(torch.ones(2))
    assert called == [1]


def test_a_conditional_with_a_hook_on_its_operand():
    """PyTorch's own code for it was interpreted in parts: eight breaks, and an error where gradients are needed. It is a
    node of the graph by now."""

    def program(x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * 3)
        return torch.cond(x.sum() > 0, lambda each: each.sin(), lambda each: each.cos(), (y,)).sum()

    compiled = lampwork.compile(program, options={"cache": False})
    for sign in (1.0, -1.0):
        x = torch.full((3,), sign, requires_grad=True)
        compiled(x).backward()
        derivative = x.mul(2).cos() if sign > 0 else -x.mul(2).sin()
        torch.testing.assert_close(x.grad, derivative.detach() * 6)
    assert not lampwork.stats(compiled)["breaks"]
