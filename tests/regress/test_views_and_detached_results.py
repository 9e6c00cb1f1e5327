"""Results that share memory and require no gradients, of a call that has other results: views were made under no_grad, and
later writes with gradients raised an error; what the program had detached was a view, and took part in gradients.

Found by generated programs (`tests/fuzz/view_programs.py`).
"""

from __future__ import annotations

import pytest
import torch

import lampwork


@torch.compiler.disable
def outside(written, number):
    written.add_(number)


def views(x):
    total, y = x.sum(), torch.zeros(4, 6)
    view = y[1:]
    outside(y, total)
    return y, view


def through_a_view(x):
    total, y = x.sum(), torch.zeros(4, 6)
    view = y[1:].t()
    outside(view, total)
    return y, view


def detached(x):
    total, y = x.sum(), torch.zeros(4, 6)
    rest = y.detach()
    outside(rest, total)
    return y, rest


def views_of_detached(x):
    total, y = x.sum(), torch.zeros(4, 6)
    rest = y[1:].detach()
    view = rest[1:]
    outside(view, total)
    return y, rest, view


def views_of_data(x):
    total, y = x.sum(), torch.zeros(4, 6)
    y.copy_(x.expand(4, 6))
    rest = y.data
    view = rest.t()
    outside(view, total)
    return y, rest, view


def one_of_several(x):
    total, y = x.sum(), torch.zeros(4, 6)
    view = y.chunk(2)[1]
    outside(y, total)
    return y, view.detach()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "program",
    [views, through_a_view, detached, views_of_detached, views_of_data, one_of_several],
    ids=lambda each: each.__name__,
)
def test_writes_outside(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for number in (1.0, 2.0):
        found = []
        for function in (program, compiled):
            x = torch.full((6,), number, requires_grad=True)
            try:
                results = function(x)
            except RuntimeError as error:
                found.append(str(error)[:60])
                continue
            loss = sum((k + 1) * each.sum() for k, each in enumerate(results))
            if loss.requires_grad:
                loss.backward()
            tied = [each.requires_grad for each in results]
            found.append(([each.tolist() for each in results], tied, None if x.grad is None else x.grad.tolist()))
        assert found[1] == found[0]


def test_writes_to_what_is_returned():
    def program(x):
        y = torch.ones(4, 6)
        return x.sum(), y, y[1:], y.detach()

    compiled = lampwork.compile(program)
    for function in (program, compiled):
        total, y, view, rest = function(torch.ones(3, requires_grad=True))
        y.mul_(total)
        assert (y.requires_grad, view.requires_grad, rest.requires_grad) == (True, True, False)
        assert float(view.sum()) == float(rest[1:].sum()) == 54.0
