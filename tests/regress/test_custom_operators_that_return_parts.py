"""A custom operator says that it returns the argument that it writes, and returns a part of it: the whole was taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import lampwork
from lampwork.runtime import function

library = torch.library.Library("lampwork_tests_parts", "DEF")
library.define("part(Tensor(a!) x, int n) -> Tensor(a!)")
library.impl("part", lambda x, n: x.mul_(2)[:n], "CompositeExplicitAutograd")
library.define("hidden(Tensor(a!) x, int n) -> Tensor(a!)")  # its rule for shapes does not know
library.impl("hidden", lambda x, n: x.mul_(2)[:n], "CPU")
library.impl("hidden", lambda x, n: x, "Meta")
library.define("whole(Tensor(a!) x, int n) -> Tensor(a!)")
library.impl("whole", lambda x, n: x.mul_(n), "CompositeExplicitAutograd")


@pytest.mark.parametrize("name", ["part", "hidden", "whole"])
@pytest.mark.filterwarnings("ignore::lampwork.LampworkWarning")
def test_a_part_of_what_is_written(name, monkeypatch):
    monkeypatch.setattr(function, "environment", replace(function.environment, strict=False))
    operator = getattr(torch.ops.lampwork_tests_parts, name)

    def program(x):
        return operator(x, 1) + 1

    compiled = lampwork.compile(program, options={"cache": False})
    x, y = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    assert torch.equal(compiled(x), program(y)) and torch.equal(x, y)
    assert bool(lampwork.stats(compiled)["fallbacks"]) == (name == "hidden")
