"""`torch.jit.trace` of a program with a compiled part: its trace records operators, which generated code is none of. It ended
the process."""

from __future__ import annotations

import torch
from torch import nn

import lampwork


def test_traces():
    x = torch.randn(3, 4)
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = lampwork.compile(module, options={"cache": False})
    for before in (False, True):  # a trace of what was not called yet, and of what has an entry
        with torch.no_grad():
            traced = torch.jit.trace(compiled, (x,))
            assert "relu" in str(traced.inlined_graph), before
            assert torch.allclose(traced(x * 2), module(x * 2))
            assert torch.allclose(compiled(x), module(x))


def test_a_part_of_what_is_traced():
    part = lampwork.compile(lambda x: x.sin() + 1, options={"cache": False})
    x = torch.randn(3)
    part(x)
    traced = torch.jit.trace(lambda x: part(x * 2), (x,))
    assert torch.allclose(traced(x + 1), ((x + 1) * 2).sin() + 1)
