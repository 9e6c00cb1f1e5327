"""What `id()` gives, beside numbers that it gave earlier, and across breaks."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Thing:
    pass


THING, X = Thing(), torch.ones(3)
SEEN, TABLE, PAIRS, NUMBER = {id(THING), id(X)}, {id(THING): 1, id(X): 2}, {(id(X), 0): 3}, id(X)


@pytest.mark.parametrize("program", [
    lambda x: [id(each) in SEEN for each in (x, THING)],
    lambda x: [TABLE.get(id(each), 0) for each in (x, THING)],
    lambda x: TABLE[id(x)] if id(x) in TABLE else -1,
    lambda x: PAIRS.get((id(x), 0), 0),
    lambda x: {id(x): 1}.get(NUMBER),
    lambda x: (len(SEEN | {id(x)}), len({**TABLE, id(x): 5})),
    lambda x: hash(x) in SEEN,
    lambda x: hash(x) == id(x),
])  # fmt: skip
def test_numbers_from_outside_are_found(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        assert compiled(X) == program(X)
    other = torch.ones(3)
    assert compiled(other) == program(other)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_keys_written_beside_numbers_from_outside():
    table = {id(X): 1}

    def program(x):
        table[id(x)] = 2
        return len(table)

    compiled = lampwork.compile(program, options={"cache": False})
    assert compiled(X) == compiled(X) == 1
    assert compiled(torch.ones(3)) == 2


def test_identities_live_where_the_graph_breaks():
    """They are taken anew on every call."""
    table: dict = {}

    def program(x):
        table[id(THING)] = x * 2
        if x.sum() > 0:
            x = x + 1
        return x

    compiled = lampwork.compile(program, options={"cache": False})
    for x in (X, -X, X * 3):
        table.clear()
        assert torch.equal(compiled(x), program(x))
        assert list(table) == [id(THING)] and torch.equal(table[id(THING)], x * 2)
    stats = lampwork.stats(compiled)
    assert [each.id for each in stats["breaks"]] == ["data-dependent"] and not stats["fallbacks"]
