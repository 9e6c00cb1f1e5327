"""Objects with a `__torch_function__` that are no tensors broke the graph where a function of torch is called."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

HANDLED: dict = {}
CALLS: list = []


class Meters:
    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        CALLS.append((function.__name__, kinds, len(args), kwargs))
        if function in HANDLED:
            return HANDLED[function](*args, **(kwargs or {}))
        plain = [[b.value for b in a] if isinstance(a, list) else getattr(a, "value", a) for a in args]
        return cls(function(*plain, **(kwargs or {})))

    def __repr__(self):
        return f"{type(self).__name__}({self.value})"


class Feet(Meters):
    pass


class Declines:
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        return NotImplemented


def _mean(value, dim=None):
    return ("mean of", value, dim)


HANDLED[torch.mean] = _mean


def one_and_two(x):
    return torch.add(Meters(x), 1), torch.mul(x, Meters(x)), torch.sub(Meters(x), Meters(x), alpha=2)


def in_a_list(x):
    return torch.cat([Meters(x), Meters(x * 2)]), torch.stack([Meters(x)], 0)


def handled(x):
    return torch.mean(Meters(x)), torch.mean(Feet(x), dim=0)


def methods(x):
    return x.add(Meters(x)), x.clone().mul_(Meters(x))


def functional(x):
    return F.relu(Meters(x)), F.softmax(Meters(x), dim=-1), torch.nn.functional.linear(Meters(x), x)


def classes_beside_each_other(x):
    return torch.add(Meters(x), Feet(x)), torch.add(Feet(x), Meters(x))


def declined(x):
    try:
        return torch.add(x, Declines())
    except TypeError as error:
        return type(error).__name__


def no_overload(x):
    try:
        return torch.add(x, object())
    except TypeError as error:
        return type(error).__name__


PROGRAMS = [one_and_two, in_a_list, handled, methods, functional, classes_beside_each_other, declined, no_overload]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    whole = program in (one_and_two, in_a_list, handled)
    compiled = lampwork.compile(program, fullgraph=whole, options={"cache": False})
    for size in (3, 3, 4):
        seen = []
        for function in (program, compiled):
            CALLS.clear()
            seen.append((str(function(torch.arange(float(size)).reshape(1, size))), str(CALLS)))
        assert seen[0] == seen[1]


def test_a_changed_class_misses(monkeypatch):
    def program(x):
        return torch.add(Meters(x), 1)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.ones(2)
    assert str(compiled(x)) == str(program(x))

    def other(cls, function, kinds, args=(), kwargs=None):
        return "other", len(args)

    monkeypatch.setattr(Meters, "__torch_function__", classmethod(other))
    assert compiled(x) == program(x) == ("other", 2)


def test_an_object_of_the_caller():
    def program(x, y):
        return torch.add(x, y)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.ones(2)
    for other in (Meters(x), x, Feet(x), Meters(x * 2), 3):
        assert str(compiled(x, other)) == str(program(x, other))
