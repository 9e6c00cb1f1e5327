"""A hook that writes to what the same call has made is called in the backward pass, when the caller can see it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lampwork


def of_modules(store):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    for module in model:
        module.register_forward_pre_hook(lambda module, args: store.setdefault(module, {}).update(a=args[0].detach()))
        module.register_full_backward_hook(lambda module, into, out: store[module].update(g=out[0].detach()))
    return model


def of_a_value(store):
    def forward(x):
        y, log = x * 2, []
        y.register_hook(lambda gradient: log.append(gradient))
        store["log"] = log
        return y.sum()

    return forward


class Noted:
    def __init__(self):
        self.gradient = None


def in_an_attribute(store):
    def forward(x):
        y, note = x * 2, Noted()

        def keep(gradient):
            note.gradient = gradient

        y.register_hook(keep)
        store["note"] = note.__dict__
        return y.sum()

    return forward


def seen(value):
    if isinstance(value, dict):
        return [seen(each) for each in value.values()]
    return [seen(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("make", [of_modules, of_a_value, in_an_attribute])
def test_what_a_hook_writes_is_there(make):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        store: dict = {}
        program = make(store)
        if compiled:
            program = lampwork.compile(program, options={"cache": False})
        for _ in range(2):
            store.clear()
            program(torch.randn(2, 4, requires_grad=True)).sum().backward()
            results.append(seen(store))
    torch.testing.assert_close(results[2:], results[:2])
    assert {each.id for each in lampwork.stats(program)["breaks"]} >= {"backward-effect"}
