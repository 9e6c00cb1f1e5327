"""`lampwork.disable` and `lampwork.assume_constant`."""

import pytest
import torch

import lampwork


def test_a_disabled_function_breaks_and_the_result_is_eagers():
    @lampwork.disable
    def scaled(x):
        return x * 3

    def program(x):
        return scaled(x) + 1

    compiled = lampwork.compile(program)
    x = torch.arange(4.0)
    assert torch.equal(compiled(x), program(x))
    assert len(lampwork.stats(compiled)["breaks"]) == 1
    with pytest.raises(lampwork.GraphBreak, match="disable"):
        lampwork.compile(program, fullgraph=True)(x)


def test_an_assumed_constant_is_read_once():
    calls = []

    @lampwork.assume_constant
    def size():
        calls.append(None)
        return 4

    compiled = lampwork.compile(lambda x: x + size(), fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 4.0))
    compiled(torch.zeros(2))
    assert len(calls) == 1
