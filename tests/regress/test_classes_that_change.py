"""What a program finds in classes is looked up anew: in the bases of classes that it makes, and for `callable`."""

from __future__ import annotations

import types

import torch

import lampwork


class Thing:
    def run(self, x):
        return x * 3


def made_by_hand(x):
    made = types.new_class("Made", (Thing,))
    return made().run(x)


def made_by_a_statement(x):
    class Made(Thing):
        pass

    return Made().run(x)


def test_a_method_of_a_base_is_replaced(monkeypatch):
    for program in (made_by_hand, made_by_a_statement):
        with monkeypatch.context() as patch:
            compiled = lampwork.compile(program, options={"cache": False})
            x = torch.ones(3)
            assert torch.equal(compiled(x), program(x))
            patch.setattr(Thing, "run", lambda self, x: x + 5)
            assert torch.equal(compiled(x), program(x))


def test_a_class_becomes_callable(monkeypatch):
    def program(x, thing):
        return x + 1 if callable(thing) else x + 2

    compiled = lampwork.compile(program, options={"cache": False})
    x, thing = torch.ones(3), Thing()
    assert torch.equal(compiled(x, thing), x + 2)
    monkeypatch.setattr(Thing, "__call__", lambda self: 7, raising=False)
    assert torch.equal(compiled(x, thing), x + 1)
