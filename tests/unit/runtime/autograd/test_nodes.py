"""Which results and inputs of a region share a node of autograd."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.differentiation import Joint, Made, Output
from lampwork.runtime.autograd.nodes import groups_of


def joint(count, depends, freed=(), written=()):
    outputs = tuple(Output(index, index in written) for index in range(count))
    made = tuple(Made("output", index) for index in range(count))
    return Joint(count, 0, outputs, made, tuple(range(len(depends))), depends, freed=freed)


@pytest.mark.parametrize(
    "given",
    [
        joint(1, ((0,), (0,)), ((0,),)), joint(2, ((0, 1), (1, 0)), ((0, 1), (1,))), joint(2, ((0, 1),)),
        joint(2, ((0,), (1,)), written=(1,)),
    ],
)  # fmt: skip
def test_one_node_does(given):
    assert groups_of(given) is None


def test_results_that_lead_to_other_inputs():
    groups = groups_of(joint(3, ((0, 1, 2), (1, 2), (2, 1), (2,), ()), ((0, 1, 2),)))
    assert groups.inputs == ((0,), (1, 2), (3,))
    assert groups.results == ((0,), (1,), (2,))
    assert groups.reached == ((0,), (0, 1), (0, 1, 2))
    assert groups.freed == ((0, 1, 2),) * 3


def test_results_that_share_no_node():
    groups = groups_of(joint(4, ((0, 1, 2, 3),), ((0, 1), (2,))))
    assert groups.results == ((0, 1), (2,), (3,))
    assert groups.freed == ((0,), (1,), ())  # the last saves nothing, and may be differentiated twice


def test_an_input_that_no_result_leads_to():
    groups = groups_of(joint(1, ((0,), ())))
    assert groups.inputs == ((0,),) and groups.reached == ((0,),)


def test_a_call_with_two_nodes():
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    y.register_hook(lambda gradient: gradient * 2)
    first, second = lampwork.compile(lambda x, y: (x.sin(), y.cos()))(x, y)
    assert first.grad_fn is not second.grad_fn
    first.sum().backward()
    assert y.grad is None
    second.sum().backward()
    torch.testing.assert_close(y.grad, -2 * torch.ones(3).sin())
    with pytest.raises(RuntimeError, match="second time"):
        second.sum().backward()
