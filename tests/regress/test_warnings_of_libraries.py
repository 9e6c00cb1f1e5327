"""PyTorch's own functions warn while a program is captured. Captures that were given up warned as well, with the names of
symbols for sizes, and at a line of the compiler."""

from __future__ import annotations

import inspect
import warnings

import torch
import torch.nn.functional as F

import lampwork


def loss(x, y):
    return F.mse_loss(x * 2, y)


def told(function, *args):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*args)
    return [(str(each.message), each.category, each.filename, each.lineno) for each in found]


def test_none_where_eager_has_none():
    compiled = lampwork.compile(loss, options={"cache": False})
    for rows in (4, 7, 1, 2):
        assert told(compiled, torch.randn(rows, 3), torch.randn(rows, 3)) == []


def test_each_compile_warns_once_with_the_sizes_of_the_call():
    compiled = lampwork.compile(loss, options={"cache": False})
    for rows in (4, 7, 1):
        x, y = torch.randn(rows, 2), torch.randn(rows, 1)
        assert told(compiled, x, y) == told(loss, x, y)
    assert told(loss, x, y)[0][2:] == (__file__, inspect.getsourcelines(loss)[1] + 1)


def test_eager_warns_where_it_makes_the_call():
    def broken(x, y):
        found = F.mse_loss(x, y)
        return x * found.item().as_integer_ratio()[0]

    x, y = torch.randn(3, 2), torch.randn(3, 1)
    assert told(lampwork.compile(broken, options={"cache": False}), x, y) == told(broken, x, y)
