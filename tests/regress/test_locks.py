"""Locks around what a first call installs, as `transformers` has them around its hooks."""

from __future__ import annotations

import threading

import torch

import lampwork

INSTALLING = threading.Lock()


def test_hooks_that_a_first_call_installs():
    """The first call, and with it the first step of training, was no graph: it broke where it took the lock, and again
    where it gave it back."""
    layer = torch.nn.Linear(4, 4)
    seen = []

    def hook(module, args, output):
        seen.append(tuple(output.shape))

    def program(x):
        if not getattr(layer, "installed", False):
            with INSTALLING:
                if not getattr(layer, "installed", False):
                    layer.register_forward_hook(hook)
                    layer.installed = True
        return layer(x).sum()

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    x = torch.randn(2, 4)
    for _ in range(3):
        compiled(x).backward()
    assert seen == [(2, 4)] * 3 and len(layer._forward_hooks) == 1 and not INSTALLING.locked()
    assert lampwork.stats(compiled)["captures"] == 2
