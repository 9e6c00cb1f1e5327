"""Arguments of control flow operators given by keyword: their names were not PyTorch's, and the compiler failed."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop

import lampwork


def branches(x):
    return torch.cond(pred=x.sum() > 0, true_fn=torch.sin, false_fn=torch.cos, operands=(x,))


def branches_in_part(x):
    return torch.cond(x.sum() > 0, torch.sin, false_fn=torch.cos, operands=[x])


def loops(x):
    start = (torch.tensor(0), x)
    return while_loop(cond_fn=lambda i, y: i < 3, body_fn=lambda i, y: (i + 1, y.sin()), carried_inputs=start)


def scans(x):
    return scan(combine_fn=lambda carried, row: (carried + row, carried * row), init=x[0], xs=x, dim=0)


def scans_in_pairs(x):
    return associative_scan(combine_fn=lambda a, b: a + b, xs=x, dim=0, combine_mode="generic")


@pytest.mark.parametrize(
    "program", [branches, branches_in_part, loops, scans, scans_in_pairs], ids=lambda f: f.__name__
)
def test_they_are_in_the_graph(program):
    compiled = lampwork.compile(program)
    for sign in (1, -1):
        x = sign * torch.rand(4, 3)
        torch.testing.assert_close(compiled(x), program(x))
    assert not lampwork.stats(compiled)["breaks"]


def test_an_argument_that_none_of_them_takes():
    def program(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,), otherwise=torch.tan)

    def operator(x):
        return torch.ops.higher_order.cond(x.sum() > 0, torch.sin, torch.cos, (x,), otherwise=torch.tan)

    for function in (program, operator):
        with pytest.raises(TypeError, match="otherwise"):
            lampwork.compile(function)(torch.rand(3))
