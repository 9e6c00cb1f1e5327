"""`function.__globals__`: the namespace of the module that it was defined in."""

from __future__ import annotations

import torch

import lampwork

SCALE = 2.0


def described(x):
    return x


def program(x):
    names = described.__globals__
    names["FOUND"] = names.get("FOUND", 0) + 1
    return x * names["SCALE"], "described" in names, names is globals()


def test_the_namespace_is_read_and_written():
    global SCALE
    compiled = lampwork.compile(program, fullgraph=True)
    for scale in (2.0, 2.0, 3.0):
        SCALE = scale
        globals().pop("FOUND", None)
        found = compiled(torch.ones(2))
        assert torch.equal(found[0], torch.full((2,), scale)) and found[1:] == (True, True)
        assert globals()["FOUND"] == 1
