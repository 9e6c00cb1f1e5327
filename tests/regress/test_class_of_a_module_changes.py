"""Regression: a compiled module kept the class that its module had when it was compiled: parametrizations that were
registered or removed afterwards, on either, left it without the parameter."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.nn.utils import parametrize

import lampwork


class Double(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2


@pytest.mark.parametrize("of", ["module", "compiled"])
def test_parametrizations_come_and_go(of: str) -> None:
    module = torch.nn.Linear(3, 2)
    compiled = lampwork.compile(module)
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(x), module(x))
    changed = module if of == "module" else compiled
    plain = module.weight.detach().clone()

    parametrize.register_parametrization(changed, "weight", Double())
    torch.testing.assert_close(compiled.weight, plain * 2)
    torch.testing.assert_close(module.weight, plain * 2)
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, plain * 2, module.bias))
    assert parametrize.is_parametrized(compiled) and isinstance(compiled, type(module))

    parametrize.remove_parametrizations(changed, "weight", leave_parametrized=False)
    torch.testing.assert_close(compiled.weight, torch.nn.Parameter(plain))
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, plain, module.bias))
    assert compiled.__class__ is type(module) is torch.nn.Linear and lampwork.stats(compiled)["calls"] == 3


def test_classes_are_let_go() -> None:
    class Local(torch.nn.Linear):
        pass

    kept = weakref.ref(Local)
    compiled = lampwork.compile(Local(2, 2))
    compiled(torch.ones(1, 2))
    del compiled, Local
    lampwork.reset()
    gc.collect()
    assert kept() is None
