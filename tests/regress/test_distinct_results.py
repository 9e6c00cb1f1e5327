"""Results that are all of one memory are objects of their own, as eager's are."""

from __future__ import annotations

import torch

import lampwork

OPTIONS = {"cache": False}


def test_a_view_with_the_shape_of_its_base_is_another_object():
    """They were one tensor: a later `t_()` of one turned the other, too."""

    def program(x):
        y = x * 2
        return y, y.view(2, 3), y.view(2, 3), y

    first, second, third, again = lampwork.compile(program, options=OPTIONS)(torch.ones(2, 3))
    assert first is again and len({id(first), id(second), id(third)}) == 3
    second.t_()
    assert first.shape == third.shape == (2, 3)
    second.add_(1)
    assert first.eq(3).all() and third.eq(3).all()


def test_the_same_view_twice():
    def program(x):
        y = x * 2
        return y.t(), y.t(), y.detach()

    results = lampwork.compile(program, options=OPTIONS)(torch.ones(2, 3))
    assert len({id(each) for each in results}) == 3
    assert len({each.data_ptr() for each in results}) == 1


def test_a_gradient_taken_inside_is_no_view():
    """`detach_()` refuses views, and the gradient of a bias was one of what the kernel had written."""
    layer = torch.nn.Linear(3, 3)

    def step(x):
        layer(x).sum().backward()

    lampwork.compile(step, options=OPTIONS)(torch.ones(2, 3))
    layer.bias.grad.detach_().zero_()
    assert layer.bias.grad._base is None and layer.bias.grad.eq(0).all()


def test_a_detached_view_of_an_input_is_no_view():
    def program(x):
        return x.detach(), x[0].sin()

    given = torch.ones(2, 3, requires_grad=True) * 1
    detached, _ = lampwork.compile(program, options=OPTIONS)(given)
    assert detached.detach_().data_ptr() == given.data_ptr() and not detached.requires_grad
