"""Operators that take places, classes or lengths refuse the element types that eager refuses, read or not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


def _put(x, i):
    y = x.clone()
    y[i] = 1.0
    return y


#: By name, of a square matrix and of as many whole numbers as it has rows.
OPERATORS = {
    "index": lambda x, i: x[i],
    "index, written": lambda x, i: x[i].mul_(2),
    "index of two": lambda x, i: x[i, i],
    "index_put of a number": _put,
    "index_put": lambda x, i: x.index_put((i,), x[0], accumulate=True),
    "_unsafe_index": lambda x, i: torch.ops.aten._unsafe_index(x, [i]),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x[0]),
    "gather": lambda x, i: x.gather(0, i[None]),
    "take_along_dim": lambda x, i: x.take_along_dim(i[None], 0),
    "scatter": lambda x, i: x.scatter(0, i[None], x),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[None], x, "amax"),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_copy": lambda x, i: x.index_copy(0, i, x),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x, "prod"),
    "masked_select": lambda x, i: x.masked_select(i),
    "masked_fill": lambda x, i: x.masked_fill(i, 2.0),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "one_hot": lambda x, i: F.one_hot(i, 9),
    "nll_loss": lambda x, i: F.nll_loss(x, i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x, i),
    "bincount": lambda x, i: torch.bincount(i, minlength=9),
    "repeat_interleave": lambda x, i: torch.repeat_interleave(x, i, 0),
    "segment_reduce": lambda x, i: torch.segment_reduce(x[0], "sum", lengths=i),
}


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", OPERATORS)
def test_as_eager(name):
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.float32):

        def read(x, i):
            return OPERATORS[name](x, i)

        def unread(x, i):
            OPERATORS[name](x, i)
            return x + 1

        for program in (read, unread):
            compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
            x, i = torch.randn(5, 5), (torch.arange(5) % 3).to(dtype)
            found, expected = outcome(compiled, x, i), outcome(program, x, i)
            if isinstance(expected, tuple):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected)
