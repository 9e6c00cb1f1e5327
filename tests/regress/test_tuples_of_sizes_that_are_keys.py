"""A tuple of sizes that is a key, and is put elsewhere too, is one object afterwards. Where sizes vary the key was a tuple
of numbers, made anew, and the other one a tuple of symbols."""

from __future__ import annotations

import pytest
import torch

import lampwork


def remember(x, table, seen):
    key = tuple(x.shape)
    if key not in table:
        table[key] = x.clone()
        seen.append(key)
    return x + 1


def put(x, table, seen):
    key = (x.shape[0], 3)
    table[key] = 1
    seen.append(key)
    return x


def put_inside(x, table, seen):
    key = ("size", (x.shape[0], 3))
    table[key] = 1
    seen.append(key)
    return x


@pytest.mark.parametrize("program", [remember, put, put_inside])
def test_one_object(program):
    compiled = lampwork.compile(program, options={"cache": False})
    table, seen = {}, []
    for size in (2, 3, 4, 5):
        compiled(torch.ones(size), table, seen)
    assert list(table) == seen
    assert all(one is other for one, other in zip(table, seen, strict=True))
