"""A recompile tells why in words. It printed every tensor among the keys of a dict: a second for an optimizer's."""

from __future__ import annotations

import torch

import lampwork
from lampwork.runtime.guards.failures import short


def test_tensors_among_keys_are_not_printed(monkeypatch):
    parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    for each in parameters:
        each.grad = torch.ones(4)
    step = lampwork.compile(torch.optim.SGD(parameters, lr=0.1, momentum=0.9).step)
    step()

    def printed(self, *, tensor_contents=None):
        raise AssertionError("a tensor is printed")

    monkeypatch.setattr(torch._tensor_str, "_str", printed)
    step()
    (why,) = lampwork.stats(step)["recompiles"]
    assert "f32[4]" in why.diagnostic.reason


def test_short_tuples():
    assert short(()) == "()" and short((1,)) == "(1,)" and short((1, "a")) == "(1, 'a')"
    assert short((torch.ones(2, 3), 5)) == "(f32[2, 3], 5)"
    assert len(short(tuple(range(100)))) == 60 and short(tuple(range(100))).endswith("...")
