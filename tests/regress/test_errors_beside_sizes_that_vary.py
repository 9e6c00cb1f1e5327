"""An error that the program catches is eager's where sizes vary, too, and where a program may not break. Captured with
numbers for sizes, or as one graph, it was what native code says of the values that stand for the program's own."""

from __future__ import annotations

import pytest
import torch

import lampwork

FAILING = {
    "no such method": lambda x: round(x),
    "no such operands": lambda x: divmod(x, 2),
    "no sizes": lambda x: torch.Size([x.sum()]),
    "no class": lambda x: super(x),
    "no text": lambda x: ",".join([x]),
    "sizes that do not fit": lambda x: torch.broadcast_shapes((x.shape[0], 2), (13,)),
    "no size": lambda x: torch.zeros(-x.shape[0]),
    "a shape": lambda x: x.view(x.shape[0] + 1),
}


def caught(failing):
    def program(x):
        try:
            return failing(x)
        except (TypeError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"

    return program


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_eager_s_error(failing):
    program = caught(failing)
    compiled = lampwork.compile(program, options={"cache": False})
    for size in (2, 4, 5, 7):
        assert compiled(torch.ones(size)) == program(torch.ones(size))


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_in_one_graph(failing):
    program = caught(failing)
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for size in (2, 4, 5):
        try:
            found = compiled(torch.ones(size))
        except lampwork.GraphBreak:
            continue
        assert found == program(torch.ones(size))
