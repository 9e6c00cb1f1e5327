"""What programs ask of autograd, and what is left behind when a backward pass fails."""

from __future__ import annotations

import pytest
import torch

import lampwork

OPTIONS = {"cache": False}


@pytest.mark.parametrize("make", [lambda: torch.ones(4)[1:], lambda: torch.ones(3)])
def test_whether_an_input_is_a_view(make):
    """All inputs counted as none."""

    def program(x):
        return x._is_view(), x.view(-1)._is_view(), x + 1

    compiled = lampwork.compile(program, options=OPTIONS)
    for each in (make(), make()):
        assert compiled(each)[:2] == program(each)[:2]
    assert compiled(torch.ones(6)[::2])[0] and not compiled(torch.ones(3))[0]


def test_gradients_that_came_before_an_error_stay():
    """They were dropped."""

    def program(x, w):
        y = x * 2
        y.register_hook(lambda gradient: int("none"))
        try:
            (y.sin() * w).sum().backward()
        except ValueError as error:
            return str(error)[:10]

    compiled = lampwork.compile(program, options=OPTIONS)
    for call in (program, compiled):
        x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        call(x, w)
        assert x.grad is None and torch.allclose(w.grad, x.detach().mul(2).sin())
    assert not lampwork.stats(compiled)["breaks"]


def test_hooks_for_all_modules_registered_inside():
    """Modules were entered as if there were none."""
    from torch.nn.modules.module import register_module_forward_hook

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    seen = []

    def program(x):
        handle = register_module_forward_hook(lambda module, args, result: seen.append(type(module).__name__))
        try:
            return model(x)
        finally:
            handle.remove()

    lampwork.compile(program, options=OPTIONS)(torch.ones(1, 2))
    assert seen == ["Linear", "ReLU", "Sequential"]
