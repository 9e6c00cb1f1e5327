"""A number that varies from call to call, in a tuple that is a key or is hashed, broke the graph: it is guarded."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import lampwork


@dataclasses.dataclass(frozen=True)
class Spec:
    width: int
    scale: float = 1.0


def in_a_tuple(x, n, scale):
    table = {}
    table[n, scale] = x * scale
    table.setdefault((n, (scale, "a")), x)
    return table[n, scale] + n, list(table), (n, scale) in table, (n, scale + 1) in table


def hashed(x, n, scale):
    return x * scale, hash((n, scale)) == hash((n, scale)), hash((1, (2, scale)))


def in_a_set(x, n, scale):
    return x * n, sorted({(n, scale), (n, scale), (0, 0.5)})


def in_a_data_class(x, n, scale):
    table = {Spec(n, scale): x * scale, Spec(n): x}
    return table[Spec(n, scale)], len(table), Spec(n, scale) in table, Spec(-n, scale) in table


def out_of_a_tensor(x, n, scale):
    return {(n, x.sum().item()): 1}


PROGRAMS = [in_a_tuple, hashed, in_a_set, in_a_data_class, out_of_a_tensor]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    compiled = lampwork.compile(program, fullgraph=program is not out_of_a_tensor, options={"cache": False})
    for n, scale in ((1, 0.5), (2, 0.25), (3, 0.125), (3, 1.0), (1, 0.5), (3, -0.0), (3, 0.0)):
        x = torch.arange(3.0)
        assert str(compiled(x, n, scale)) == str(program(x, n, scale))


def test_an_argument_that_is_a_key():
    table: dict = {}

    def program(x, spec, seen):
        if spec not in seen:
            seen[spec] = x * spec.scale
        return seen[spec] + 1, len(seen)

    compiled = lampwork.compile(program, options={"cache": False})
    other: dict = {}
    for spec in (Spec(2), Spec(2, 0.5), Spec(2), Spec(3, 0.25), Spec(4, 0.125), Spec(2, 0.5)):
        assert str(compiled(torch.ones(2), spec, table)) == str(program(torch.ones(2), spec, other))
    assert list(table) == list(other)
