"""What makes a list of an object asks its `__len__` or `__length_hint__`, which may raise: they were not asked."""

from __future__ import annotations

import itertools

import pytest
import torch

import lampwork


class Elements:
    def __init__(self, log):
        self.log = log

    def __iter__(self):
        self.log.append("iter")
        return iter((1, 2, 3))


class Counted(Elements):
    length: object = 3

    def __len__(self):
        self.log.append("len")
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


class Negative(Counted):
    length = -1


class Failing(Counted):
    length = ValueError("no length")


class Untold(Counted):
    length = TypeError("no length")


class Hinted(Elements):
    def __length_hint__(self):
        self.log.append("hint")
        return NotImplemented


def extended(values):
    made = [0]
    made.extend(values)
    made += values
    return made


PROGRAMS = {
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    "largest": max,
    "set": lambda values: sorted(set(values)),
    "keys": dict.fromkeys,
    "starred": lambda values: [0, *values],
    "passed": lambda values: (lambda *given: given)(*values),
    "extended": extended,
    "product": lambda values: list(itertools.product(values, values)),
    "in turn": lambda values: [each for each in values],
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("cls", [Elements, Counted, Negative, Failing, Untold, Hinted])
def test_lengths(name, cls):
    def program(x, values):
        try:
            return x + 1, PROGRAMS[name](values)
        except Exception as error:
            return x + 1, type(error), str(error)

    logs: list = [[], []]
    found = lampwork.compile(program)(torch.ones(1), cls(logs[1]))
    assert found == program(torch.ones(1), cls(logs[0])) and logs[1] == logs[0]
