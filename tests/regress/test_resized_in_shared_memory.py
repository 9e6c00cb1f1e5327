"""What is computed into an empty tensor lies in the memory that the tensor is a part of, as eager's result does."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "product": lambda x, y: torch.mul(y, 2, out=x),
    "sum": lambda x, y: torch.sum(y, 0, out=x),
    "resized": lambda x, y: x.resize_(2).copy_(y),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", [((0, 0), (2, 1), 3), ((0,), (1,), 0)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_lies_where_eagers_does(name, layout, dynamic):
    program = PROGRAMS[name]
    found = []
    for function in (program, lampwork.compile(program, dynamic=dynamic, options={"cache": False})):
        memory = torch.zeros(8)
        x = memory.as_strided(*layout)
        result = function(x, torch.ones(2))
        found.append((memory, x, result))
        assert result is x
    for ours, theirs in zip(*found):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_part_of_what_the_program_made(name):
    def program(y):
        memory = torch.zeros(8)
        PROGRAMS[name](memory[:0], y)
        return memory

    y = torch.ones(2)
    assert torch.equal(lampwork.compile(program, options={"cache": False})(y), program(y))


def test_one_that_the_program_made_is_compiled():
    program = lambda y: torch.mul(y, 2, out=torch.empty(0))
    compiled = lampwork.compile(program, options={"cache": False})
    y = torch.ones(2)
    assert torch.equal(compiled(y), program(y))
    assert not lampwork.stats(compiled)["fallbacks"] and not lampwork.stats(compiled)["breaks"]


@pytest.mark.parametrize("shape, permutation", [((0, 2), (1, 0)), ((0, 2, 1), (1, 2, 0)), ((3, 2, 4), (2, 0, 1))])
def test_strides_of_an_empty_tensor_that_is_resized(shape, permutation):
    """They are the operator's, of no elements, too: every tensor without any is contiguous."""

    def program(x):
        return torch.mul(x, 2, out=torch.empty(0))

    compiled = lampwork.compile(program)
    x = torch.ones(shape).permute(permutation)
    expected, found = program(x), compiled(x)
    assert found.shape == expected.shape and found.stride() == expected.stride()
