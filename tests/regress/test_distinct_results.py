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
