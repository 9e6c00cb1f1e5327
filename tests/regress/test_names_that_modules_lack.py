"""A module's `__getattr__` was asked for names that it lacks."""

from __future__ import annotations

import torch

import lampwork


def test_a_module_is_not_asked_for_what_it_has_not():
    asked = []

    class Asked(torch.nn.Module):
        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

        def forward(self, x):
            return x + 1

    compiled = lampwork.compile(Asked())
    asked.clear()
    for size in (1, 2, 3):
        compiled(torch.ones(size))
    assert not asked
