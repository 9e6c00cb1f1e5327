"""Gradients are taken of a history that was freed before in the same call. Fakes have eager's history, so the engine's
error on them is the call's: it was left to eager, with tensors whose history led to no leaf, which gave None, zeros or
other words. Gradients that arrive before the error are there after it."""

from __future__ import annotations

import pytest
import torch

import lampwork

grad = torch.autograd.grad


def after_backward(w, v):
    y = (w * v).sum()
    y.backward()
    return grad(y, w, allow_unused=True)


def zeros_for_none(w, v):
    y = (w * v).sum()
    grad(y, w)
    return grad(y, w, materialize_grads=True)


def asked_twice(w, v):
    y = (w * v).sum()
    grad(y, w)
    return grad(y, w)


def below_others(w, v):
    y = (w * v).sin().sum()
    grad(y, w)
    return grad(y * 2, w, allow_unused=True)


def freed_in_part(w, v):
    h = (w * 2).exp()
    k = h.log().sum()
    grad(k, h)
    return grad(k, [w], allow_unused=True)


def of_the_same_leaf(w, v):
    b = ((w * 2).exp() * v).sum()
    grad(b, [v])
    return grad(b, [v], allow_unused=True)


def added_to_other_leaves(w, v):
    b = ((w * 2).exp() * v).sum()
    b.backward(inputs=[v])
    b.backward(inputs=[w])


def fails_on_the_way(w, v):
    h = (w * 2).exp()
    h.sum().backward()
    (h * v).sum().backward()


PROGRAMS = [
    after_backward, zeros_for_none, asked_twice, below_others, freed_in_part, of_the_same_leaf, added_to_other_leaves,
    fails_on_the_way,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_raises_as_eager(program):
    def outcome(run):
        w, v = (torch.tensor([1.0, 0.5, 2.0], requires_grad=True) for _ in range(2))
        with pytest.raises(RuntimeError) as raised:
            run(w, v)
        return str(raised.value), [None if each.grad is None else each.grad.tolist() for each in (w, v)]

    compiled = lampwork.compile(lambda w, v: program(w, v), options={"cache": False})
    found, expected = outcome(compiled), outcome(program)
    assert found[0] == expected[0]
    torch.testing.assert_close(found[1], expected[1])
