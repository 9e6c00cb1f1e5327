"""Reading and writing where tensors say, in tensors that may have no rows at all: nothing outside of them is touched, and
eager's exception is raised."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


def kept(x, mask):
    return x[mask]


PROGRAMS = {
    "index_select": lambda x, mask, rows: kept(x, mask).index_select(0, rows) + 1,
    "index": lambda x, mask, rows: kept(x, mask)[rows] + 1,
    "index from the end": lambda x, mask, rows: kept(x, mask)[rows - 1] + 1,
    "gather": lambda x, mask, rows: kept(x, mask).gather(0, rows[:, None]) + 1,
    "take": lambda x, mask, rows: kept(x, mask).take(rows) + 1,
    "embedding": lambda x, mask, rows: F.embedding(rows, kept(x, mask)) + 1,
    "scatter": lambda x, mask, rows: kept(x, mask).scatter(0, rows[:1, None], 1.0) + 1,
    "index_add": lambda x, mask, rows: kept(x, mask).index_add(0, rows, torch.ones(len(rows), 3)) + 1,
    "index_put": lambda x, mask, rows: kept(x, mask).index_put((rows,), torch.ones(3)) + 1,
    "index_fill": lambda x, mask, rows: kept(x, mask).index_fill(0, rows, 2.0) + 1,
    "a slice": lambda x, mask, rows: x[4:].index_select(0, rows) + 1,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows(name, dynamic):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for size, count, rows in ((6, 3, (0, 1)), (6, 0, (0, 0)), (4, 0, (0,)), (5, 0, ()), (6, 2, (0, 1)), (4, 4, (0, 1))):
        memory = torch.full((size + 20, 3), float("nan"))
        x = memory[10 : 10 + size].copy_(torch.randn(size, 3))
        mask, chosen = torch.arange(size) < count, torch.tensor(rows, dtype=torch.int64)
        try:
            expected = program(x, mask, chosen)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x, mask, chosen)
        else:
            assert torch.equal(compiled(x, mask, chosen), expected)


def test_columns_of_planned_memory_without_rows():
    """They begin behind its end, which nothing reads."""

    def program(x, y):
        return F.nll_loss(x.repeat_interleave(3, -2).chunk(2, 1)[-1], y, reduction="sum")

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for rows in (0, 2, 0):
        x, y = torch.rand(rows, 2), torch.zeros(3 * rows, dtype=torch.int64)
        torch.testing.assert_close(compiled(x, y), program(x, y))
    assert not lampwork.stats(compiled)["fallbacks"]
