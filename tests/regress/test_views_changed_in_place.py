"""Views, of tensors with a history from outside, whose shape is changed in place: eager raises where that is a leaf."""

from __future__ import annotations

import pytest
import torch

import lampwork


def program(x):
    view = x[None]
    view.squeeze_()
    return view * 2


def test_view_of_a_leaf():
    compiled = lampwork.compile(program, options={"cache": False})
    for function in (program, compiled, compiled):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            function(torch.ones(4, requires_grad=True).narrow(0, 2, 1))


def test_view_of_what_was_computed():
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        leaf = torch.ones(4, requires_grad=True)
        compiled(leaf * 3).sum().backward()
        assert torch.equal(leaf.grad, torch.full((4,), 6.0))


@pytest.mark.filterwarnings("ignore:cov")
def test_a_view_whose_size_turned_out_to_be_fixed():
    """How a result's view is taken again named a size that was a number by then."""

    def split(x):
        first, second = x.tensor_split(2, -1)
        return torch.cov(second), first

    compiled = lampwork.compile(split, dynamic=True, options={"cache": False})
    for length in (2, 5, 8):
        x = torch.randn(length, requires_grad=True)
        torch.testing.assert_close(compiled(x), split(x), equal_nan=True)


CHANGES = {
    "t": lambda base: base.t_(),
    "transpose": lambda base: base.transpose_(0, -1),
    "as_strided": lambda base: base.as_strided_((3,), (1,)),
    "unsqueeze": lambda base: base.unsqueeze_(0),
}


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("view", [lambda x: x[0], lambda x: x[:, :1], lambda x: x.diagonal()], ids=range(3))
@pytest.mark.parametrize("change", CHANGES)
def test_views_of_a_tensor_whose_shape_is_changed(change, view, outside):
    """Their gradients went to elements that the view would have of the new shape."""

    def program(x):
        base = x if outside else x * 1
        seen = view(base)
        CHANGES[change](base)
        return seen * 2

    compiled = lampwork.compile(program, options={"cache": False})
    gradients = []
    for function in (program, compiled):
        leaf = torch.randn(3, 3, requires_grad=True)
        result = function(leaf * 1)
        result.backward(torch.arange(1.0, 1 + result.numel()).view(result.shape))
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)
