"""What a member of an enumeration holds was read without a guard."""

from __future__ import annotations

import enum

import pytest
import torch

import lampwork


class Kind(enum.Enum):
    ONE = 1
    TWO = 2

    def __init__(self, value):
        self.weight = value * 10


PROGRAMS = {
    "_value_": lambda x: x + Kind.ONE.value,
    "_name_": lambda x: x + len(Kind.ONE.name),
    "weight": lambda x: x + Kind.ONE.weight,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_member_that_was_written_to(name, monkeypatch):
    compiled, x = lampwork.compile(PROGRAMS[name], options={"cache": False}), torch.ones(2)
    before = compiled(x)
    monkeypatch.setattr(Kind.ONE, name, "LONGER" if name == "_name_" else 70)
    assert not torch.equal(compiled(x), before)
    assert torch.equal(compiled(x), PROGRAMS[name](x))


def test_another_kind_of_argument():
    compiled = lampwork.compile(lambda x, kind: x + (kind.value if kind is not None else 5), options={"cache": False})
    x = torch.zeros(1)
    assert [compiled(x, kind).item() for kind in (Kind.ONE, None, Kind.TWO, Kind.ONE, None)] == [1, 5, 2, 1, 5]


PAIR, TABLE, NAMES, FROZEN = (Kind.TWO, 1), {Kind.TWO: 1}, {Kind.TWO}, frozenset({Kind.TWO})


@pytest.mark.parametrize("program", [
    lambda x: x + PAIR[0].weight,
    lambda x: x + sum(each.weight for each in TABLE),
    lambda x: x + sum(each.weight for each in NAMES),
    lambda x: x + sum(each.weight for each in FROZEN),
    lambda x, kind=Kind.TWO: x + kind.weight,
    lambda x: x + [each for each in Kind][1].weight,
])  # fmt: skip
def test_members_in_plain_data(program, monkeypatch):
    compiled, x = lampwork.compile(program, options={"cache": False}), torch.ones(2)
    before = compiled(x)
    monkeypatch.setattr(Kind.TWO, "weight", 70)
    assert not torch.equal(compiled(x), before)
    assert torch.equal(compiled(x), program(x))
