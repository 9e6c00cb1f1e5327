"""Where elements are put by a mask, eager's errors are raised: a mask, or a number of values, that does not fit."""

from __future__ import annotations

import pytest
import torch

import lampwork


def one_value(x, m):
    w = torch.sigmoid(x).matmul(x.t())
    y = x * 2
    y[m] = w.sum()
    return y.softmax(-1), y


def in_the_second_dimension(x, m):
    y = x * 3
    y[:, m] = x[:1, :1]
    return y * 2


def rows(x, m):
    y = x * 3
    y[m] = x
    return y


def unread(x, m):
    v = x.sin()
    v[m] = x
    return x + 1


def unread_beside_its_own_mask(x, m):
    v = x.sin()[m]
    v[v > 0] = x[0, 0] + x[0]
    return x + 1


@pytest.mark.parametrize(
    "program", [one_value, in_the_second_dimension, rows, unread, unread_beside_its_own_mask], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_errors_are_eager_s(program, needs_grad, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for size, mask in [(3, (1, 1, 1)), (3, (1, 0, 1)), (3, (1, 0)), (4, (1, 1, 1, 1)), (5, (1, 1, 1)), (3, (0, 0, 0))]:
        found = []
        for function in (program, compiled):
            x = torch.linspace(0.1, 0.9, 3 * size).reshape(size, 3).requires_grad_(needs_grad)
            try:
                result = function(x, torch.tensor(mask).bool())
                result = result if isinstance(result, tuple) else (result,)
                if needs_grad:
                    result = *result, *torch.autograd.grad(sum(each.square().sum() for each in result), x)
            except (IndexError, RuntimeError) as error:
                result = type(error), str(error)
            found.append(result)
        if isinstance(found[0][0], type):
            assert found[1] == found[0]
        else:
            torch.testing.assert_close(found[1], found[0])
