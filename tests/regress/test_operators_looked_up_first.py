"""Operators that nothing had named before the compiled function does: PyTorch finds them in native code, and keeps them."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.fixture
def library():
    made = torch.library.Library("lampwork_looked_up", "FRAGMENT")
    for name in ("twice", "thrice"):
        made.define(f"{name}(Tensor x) -> Tensor")
        times = {"twice": 2, "thrice": 3}[name]
        made.impl(name, lambda x, times=times: x * times, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lampwork_looked_up::{name}", torch.empty_like, lib=made)
    return made


@pytest.mark.parametrize(
    "name, program",
    [
        ("twice", lambda x: torch.ops.lampwork_looked_up.twice(x) + 1),
        ("thrice", lambda x: torch.ops.lampwork_looked_up.thrice.default(x) + 1),
    ],
)
def test_an_operator(library, name, program):
    space = torch.ops.lampwork_looked_up
    assert name not in vars(space)
    compiled = lampwork.compile(program, options={"cache": False})
    for x in (torch.ones(2), torch.arange(2.0)):
        torch.testing.assert_close(compiled(x), program(x))
    stats = lampwork.stats(compiled)
    assert (stats["entries"], stats["breaks"], stats["fallbacks"]) == (1, (), ())


def test_none_of_that_name():
    def program(x):
        try:
            return torch.ops.aten.no_such_operator(x)
        except AttributeError:
            return x + 1

    assert lampwork.compile(program, options={"cache": False})(torch.ones(2)).tolist() == [2, 2]
