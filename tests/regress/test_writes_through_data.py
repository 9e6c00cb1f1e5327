"""What is written through `x.data` has no version that autograd looks at: regions that are run again on fakes, for the
strides of gradients, or by eager, for second derivatives, took it for `x.detach()` and raised."""

from __future__ import annotations

import pytest
import torch

import lampwork


def rectified(x, w):
    y = torch.relu_(x * w)
    y.data.mul_(2)
    return y * w


def transposed(x, w):
    y = torch.sigmoid(x * w)
    y.data.clamp_(max=0.5)
    return y.t() * 2


def noticed(x, w):
    y = torch.sigmoid(x * w)
    y.detach().mul_(2)
    return y.t() * 2


def gradients(program, x, w, twice):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    result = program(x, w)
    if not twice:
        return [result, *torch.autograd.grad(result.sum(), (x, w))]
    (first,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    return [result, first, *torch.autograd.grad(first.sum(), (x, w), allow_unused=True)]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("program", [rectified, transposed])
def test_gradients(program, twice):
    compiled = lampwork.compile(program)
    for rows in (3, 5, 1, 0):
        x, w = torch.randn(rows, 4), torch.randn(4)
        expected, found = (gradients(each, x, w, twice) for each in (program, compiled))
        assert [each is None for each in found] == [each is None for each in expected]
        for ours, theirs in zip(found, expected):
            if theirs is not None:
                torch.testing.assert_close(ours, theirs)
                assert ours.stride() == theirs.stride()


def test_a_batch_has_no_data():
    """`vmap` refuses to say what it wraps."""
    program = torch.func.vmap(lambda row: row.data * 2)
    for each in (program, lampwork.compile(program)):
        with pytest.raises(RuntimeError, match="accessing `data` under vmap transform is not allowed"):
            each(torch.ones(2))


def test_what_detach_gives_has_the_version_of_its_tensor():
    x, w = torch.randn(3, 4), torch.randn(4)
    for each in (noticed, lampwork.compile(noticed)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(each, x, w, False)
