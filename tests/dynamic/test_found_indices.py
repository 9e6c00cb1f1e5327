"""Indices that contents of tensors decide, or that the host draws: parts of tensors at places that are not known yet."""

from __future__ import annotations

import random

import pytest
import torch

import lampwork

READS = {
    "row": lambda x, i: x[i] * 2,
    "column": lambda x, i: x[:, i] + 1,
    "element": lambda x, i: x[i, 1] + x[1, i],
    "last dimension": lambda x, i: x[..., i],
    "with a new dimension": lambda x, i: x[None, i],
    "two": lambda x, i: x[i, i],
    "slice": lambda x, i: x[i : i + 2] * 3,
    "slice of columns": lambda x, i: x[:, i : i + 2] + torch.ones(4, 2),
    "from": lambda x, i: x[i:].sum(0),
    "up to": lambda x, i: x[:i].sum(0),
    "remainder": lambda x, i: x[(i + 1) % 4],
    "half": lambda x, i: x[: i // 2 + 1].sum(0),
    "one": lambda x, i: x[i : i + 1],
}


def _row(x, i, y):
    x[i] = y


def _row_of_a_number(x, i, y):
    x[i] = 2.0


def _column(x, i, y):
    x[:, i] = y


def _element(x, i, y):
    x[i, 2] = 7.0


def _slice(x, i, y):
    x[i : i + 2] = y


def _number_itself(x, i, y):
    x[i] = i + 3


def _row_in_place(x, i, y):
    x[i] += y


WRITES = {
    each.__name__: each for each in (_row, _row_of_a_number, _column, _element, _slice, _number_itself, _row_in_place)
}
PLACES = {
    "a tensor": lambda at: int(at),
    "the host": lambda at: random.randint(0, 2),
}


def check(function, places):
    compiled = lampwork.compile(function, options={"cache": False})
    for number, at in enumerate(places):
        found = []
        for each in (function, compiled):
            random.seed(number)
            x = torch.arange(16.0).reshape(4, 4)
            try:
                result = each(x, torch.tensor(at))
                found.append((*(result if type(result) is tuple else (result,)), x))
            except Exception as error:
                found.append((type(error), str(error), x))
        assert len(found[0]) == len(found[1])
        for one, other in zip(*found):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(other, one)
                assert one.stride() == other.stride()
            else:
                assert one == other
    return lampwork.stats(compiled)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", READS)
def test_reads(name, place):
    stats = check(lambda x, at: READS[name](x, PLACES[place](at)), [0, 1, 2, 1, 0])
    assert not stats["breaks"] and stats["captures"] == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", WRITES)
def test_writes(name, place):
    def program(x, at):
        i = PLACES[place](at)
        WRITES[name](x, i, torch.full((4,), -1.0))
        return x.sum()

    stats = check(program, [0, 1, 2, 1, 0])
    assert not stats["breaks"] and stats["captures"] == 1


@pytest.mark.parametrize("name", READS)
def test_places_outside(name):
    check(lambda x, at: READS[name](x, int(at)), [1, -1, 4, 3, -5, 9])


@pytest.mark.parametrize("name", WRITES)
def test_places_outside_that_are_written(name):
    check(lambda x, at: WRITES[name](x, int(at), torch.full((4,), -1.0)), [1, -1, 4, 3, -5, 9])


def test_a_part_is_a_view():
    def program(x, at):
        row = x[int(at)]
        row += 1
        return row, x[0] * 2

    stats = check(program, [0, 1, 2])
    assert not stats["breaks"]


def test_gradients_of_a_part():
    def program(x, at):
        x = x.clone().requires_grad_()
        (x[int(at)] * x[0]).sum().backward()
        return x.grad

    stats = check(program, [0, 1, 2, 3])
    assert not stats["breaks"]
