"""A write of what was there when the program was captured was lost where nothing had looked at it before."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Holder:
    pass


def attribute():
    holder = Holder()
    return holder.__dict__, lambda value: setattr(holder, "held", value)


def own_dict():
    holder = Holder()
    return holder.__dict__, lambda value: holder.__dict__.__setitem__("held", value)


def item():
    table = {}
    return table, lambda value: table.__setitem__("held", value)


def updated():
    table = {}
    return table, lambda value: table.update(held=value)


def deleted_and_made():
    table = {}

    def write(value):
        del table["held"]
        table["held"] = value

    return table, write


@pytest.mark.parametrize("make", [attribute, own_dict, item, updated, deleted_and_made])
def test_what_is_written(make):
    namespace, write = make()

    def program(x, value):
        write(value)
        return x * 2 if namespace["held"] else x * 3

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    namespace["held"] = True
    for value in (True, True, False, True, False):
        assert compiled(torch.ones(1), value).item() == (2 if value else 3)
        assert namespace["held"] is value


def test_a_tensor_that_was_there():
    holder = Holder()

    def program(x, value):
        holder.held = value
        return holder.held + x

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    one, other = torch.ones(2), torch.zeros(2)
    holder.held = one
    for value in (one, one, other, one):
        assert torch.equal(compiled(torch.ones(2), value), value + 1)
        assert holder.held is value


def test_a_module_that_the_program_sets_to_train():
    """Validation between two steps left the module in evaluation."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))

    def step(x):
        model.train()
        return model(x)

    compiled = lampwork.compile(step, fullgraph=True, options={"cache": False})
    for _ in range(3):
        compiled(torch.randn(4, 3))
        assert all(each.training for each in model.modules())
        model.eval()
    assert lampwork.stats(compiled)["captures"] == 1
