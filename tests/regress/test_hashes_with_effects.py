"""`__hash__` and `__eq__` that do more than read, of objects that C code puts into sets and dicts: it ran them while the
program was captured, and no later call did.

And iterators that C code had taken from before the graph broke there: eager found them used up.
"""

# ruff: noqa: F401 (the expressions are texts)

from __future__ import annotations

import array
import collections
from unittest import mock

import pytest
import torch

import lampwork
from tests.sampled import one_of

LOG = []


class H:
    def __init__(self, v):
        self.v = v

    def __hash__(self):
        LOG.append("h")
        return 1

    def __eq__(self, other):
        LOG.append("e")
        return self.v == other.v


a, b, c = H(1), H(2), H(1)
first, second = array.array("i", [1]), array.array("i", [2])


def g(*values):
    yield from values


EXPRESSIONS = [
    "frozenset([a,b,c])",
    "set([a,b,c])",
    "dict.fromkeys([a,b,c])",
    "dict([(a,1),(b,2),(c,3)])",
    "b in {1:a}.values()",
    "('q',b) in {'q':a}.items()",
    "frozenset(iter([a,b,c]))",
    "frozenset(g(a,b,c))",
    "frozenset(map(lambda t:t,[a,b,c]))",
    "dict(zip([a,b,c],[1,2,3]))",
    "set().union(iter([a,b]),g(c))",
    "set().union(map(lambda t:t,[a,b,c]))",
    "{a}.isdisjoint(g(a,b))",
    "{a}.isdisjoint(iter([a,b]))",
    "dict.fromkeys(iter([a,b,c]))",
    "dict.fromkeys(g(a,b,c))",
    "dict.fromkeys(map(lambda t:t,[a,b,c]))",
    "{k for k in [a,b,c]}",
    "{k:1 for k in [a,b,c]}",
    "collections.Counter([a,b,c])",
    "{a}|{b}",
    "{a}=={c}",
    "{a:1}=={c:1}",
    "(a,b)==(c,b)",
    "{*g(a,b,c)}",
    "{*[a,b,c]}",
    "{**{a:1},**{c:1}}",
    "dict(g((a,1),(c,2)))",
    "{a}.union(g(b,c))",
    "dict((k,1) for k in [a,b,c])",
    "len({a,b}-{c})",
    "a in [b,c]",
    "[a,b].index(c)",
    "{a:1}.get(c)",
    "{a:1}[c]",
    "{a:1}.pop(c)",
    "{a}.add(c)",
    "set(dict([(a,1)]))",
    "list(dict.fromkeys([a,c]))[0].v",
    "set(set([a,b]))",
    "frozenset({a:1})",
    "dict({a:1})",
    "{a:1}.copy()",
    "len({a,b})",
]


@pytest.mark.parametrize("expression", [*EXPRESSIONS[:9], *one_of(8, EXPRESSIONS[9:])])
def test_every_call_has_the_effects(expression):
    program = eval(f"lambda x: (x + 1, {expression})", globals())
    compiled = lampwork.compile(program)
    seen = []
    for function in (program, compiled, compiled):  # the first call asks some of these twice: while it is captured
        LOG.clear()
        result = function(torch.ones(1))[1]
        log = "".join(LOG)
        seen.append((len(result) if hasattr(result, "__len__") else result, log))
    assert seen[1][0] == seen[0][0]
    assert seen[2] == seen[0]


@pytest.mark.parametrize(
    "expression", ["max(iter([first, second]), default=())", "sorted(iter([first, second]))", "frozenset(iter([a, b]))"]
)
def test_iterators_taken_before_the_graph_breaks(expression):
    program = eval(f"lambda x: (x + 1, len({expression}))", globals())
    compiled = lampwork.compile(program)
    for _ in range(2):
        assert compiled(torch.ones(1))[1] == program(torch.ones(1))[1]


def test_mocks_count_the_calls_of_the_program_alone():
    """Tables were asked for objects whose own `__hash__` counts, and classes for operators that are made when read."""

    def program(x):
        LOG[0].step(2)
        return x + 1, type(LOG[0].made_when_read).__name__

    compiled = lampwork.compile(program, options={"cache": False})
    counts = []
    for function in (program, compiled):
        LOG[:] = [mock.MagicMock()]
        for _ in range(3):
            assert function(torch.ones(1))[1] == "MagicMock"
            counts.append(len(LOG[0].mock_calls))
    LOG.clear()
    assert counts == [1, 2, 3] * 2
