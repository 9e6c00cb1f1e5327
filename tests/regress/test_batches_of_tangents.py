"""`is_grads_batched` makes tensors without a storage. A program that has one after a break goes on in eager; what says so
was taken for an error of the program's once sizes varied. And a region whose sizes vary is run again for such tangents,
or where gradients are differentiated again, whether or not it reads the input that has the size."""

from __future__ import annotations

import pytest
import torch

import lampwork


def of_a_count(weight, x):
    result = weight * 2
    count = x.shape[0]
    return torch.autograd.grad(result, weight, torch.ones(count, 3), is_grads_batched=True)[0]


def of_rows(weight, x):
    result = x * weight
    return torch.autograd.grad(result, weight, torch.ones(2, *result.shape), is_grads_batched=True)[0]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [of_a_count, of_rows])
def test_inside_of_the_program(program, dynamic):
    weight = torch.ones(3, requires_grad=True)
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for rows in (2, 4, 5):
        x = torch.arange(3.0 * rows).view(rows, 3)
        torch.testing.assert_close(compiled(weight, x), program(weight, x))


@pytest.mark.parametrize("batched", [True, False])
def test_of_a_region_that_does_not_read_the_size(batched):
    def program(weight, count):
        return (weight * weight).sin(), torch.ones(count, 2).sum(0)

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})

    def gradients(run, count):
        weight = torch.arange(1.0, 4.0, requires_grad=True)
        result = run(weight, count)[0]
        if batched:
            return torch.autograd.grad(result, weight, torch.eye(3), is_grads_batched=True)[0]
        (once,) = torch.autograd.grad(result.sum(), weight, create_graph=True)
        return torch.autograd.grad(once.sum(), weight)[0]

    for count in (4, 6):
        torch.testing.assert_close(gradients(compiled, count), gradients(program, count))
