"""A dispatch mode that the program enters: the recorder's own mode was taken for a state of the caller's."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import lampwork


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_it_sees_what_runs():
    def program(x):
        y = x + 1
        with Counting() as mode:
            y = torch.sin(y) * 2
        return y * 3, mode.count

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        x = torch.arange(3.0, requires_grad=True)
        torch.testing.assert_close(compiled(x), program(x))
