"""Optimizers of `torch.optim`: gradients forgotten unseen, and the state that a first step makes, made before it.

A loop's first step differs from the later ones in two ways that matter to nobody: there are no gradients yet, and the
optimizer makes its state. Each would be a program of its own, captured, compiled and kept.

`zero_grad()` looks at every `.grad` before it sets it to None. Here it is set without a look: eager's `.grad` is None
afterwards as well, and nothing is guarded.

The state that a first step makes is made before it (`outside/initial_states.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.bytecode.decode import decode
from lampwork.capture.machine import Answer, Enter


def _zero_grad_of_optimizer(world: Any, *args: Any, **kwargs: Any) -> Any:
    if _sets_to_none(*args, **kwargs):
        return Enter(_forget_gradients_of_optimizer, args[:1])
    return Enter(_torch.undecorated(torch.optim.Optimizer.zero_grad), args, kwargs)


def _zero_grad_of_module(world: Any, *args: Any, **kwargs: Any) -> Any:
    if _sets_to_none(*args, **kwargs) and "_is_replica" not in vars(args[0]):
        return Enter(_forget_gradients_of_module, args[:1])
    return Enter(torch.nn.Module.zero_grad, args, kwargs)


def _sets_to_none(*args: Any, set_to_none: Any = True, **others: Any) -> bool:
    """Whether `zero_grad` with these arguments is right, and sets gradients to None."""
    return not others and (len(args) == 1 and set_to_none is True or len(args) == 2 and args[1] is True)


def _forget_gradients_of_optimizer(self: Any) -> None:
    if not hasattr(self, "_zero_grad_profile_name"):
        self._patch_step_function()
    for group in self.param_groups:
        for param in group["params"]:
            param.grad = None


def _forget_gradients_of_module(self: Any) -> None:
    if getattr(self, "_is_replica", False):  # guarded; eager warns of those
        torch.nn.Module.zero_grad(self)
    for param in self.parameters():
        param.grad = None


# Code of lampwork is left to CPython, which would give real tensors real gradients. This is not.
for _function in (_forget_gradients_of_optimizer, _forget_gradients_of_module):
    _code = decode(_function.__code__)
    _code.hidden, _code.is_native = True, False


NATIVES: dict[Any, Answer] = {
    _torch.undecorated(torch.optim.Optimizer.zero_grad): _zero_grad_of_optimizer,
    torch.nn.Module.zero_grad: _zero_grad_of_module,
}
