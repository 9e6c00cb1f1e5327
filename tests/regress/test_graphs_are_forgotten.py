"""Graphs of captures that were given up stayed alive for good: autograd had saved tensors that lead to them, for backward
passes that nobody runs."""

from __future__ import annotations

import gc

import pytest
import torch

import lampwork


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def branched(y):
    return y + 1 if y.sum() > 0 else y


def hooked(y):
    y.register_hook(lambda gradient: gradient * 2)
    return y


PROGRAMS = {
    "saved results": lambda x, i: branched((x * i).exp().tanh()),
    "writes": lambda x, i: branched((x * i).clone().mul_(2)),
    "sizes by contents": lambda x, i: branched((x.exp() * i)[x > 0]),
    "functions": lambda x, i: branched(Square.apply(x) * i),
    "hooks": lambda x, i: branched(hooked(x.exp() * i)),
    "gradients": lambda x, i: branched(torch.autograd.grad((x * x * i).sum(), x, create_graph=True)[0]),
    "transforms": lambda x, i: branched(torch.func.grad(lambda v: (v.exp() * i).sum())(x)),
    "loops": lambda x, i: branched(sum(torch.softmax(x * i, -1).split(1))),
    "detached": lambda x, i: (x.sin() * i).detach(),
}


def graphs() -> int:
    gc.collect()
    return sum(type(each) is torch.fx.Graph for each in gc.get_objects())


def run(program, number):
    compiled = lampwork.compile(lambda x: program(x, number), options={"cache": False})
    x = torch.rand(3, 4, requires_grad=True)
    found, expected = compiled(x), program(x, number)
    torch.testing.assert_close(found, expected)
    if found.requires_grad:
        found.sum().backward()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_captures_leave_none(program):
    run(program, 1)
    before = graphs()
    for number in range(2, 7):
        run(program, number)
    assert graphs() <= before + 1
