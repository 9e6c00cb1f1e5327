"""Gradients that are differentiated again: of operators with a derivative registered in Python, which lost their history
without a word, and of norms that write running statistics, which were refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lampwork

OPTIONS = {"cache": False}


@pytest.fixture(scope="module")
def operators():
    library = torch.library.Library("regress_histories", "FRAGMENT")
    library.define("cube(Tensor x) -> (Tensor, Tensor)")
    library.impl("cube", lambda x: (x**3, 3 * x**2), "CompositeExplicitAutograd")
    torch.library.register_fake("regress_histories::cube", lambda x: (torch.empty_like(x), torch.empty_like(x)))

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, of_cube, of_slope):
        (x,) = ctx.saved_tensors
        return of_cube * 3 * x**2 + of_slope * 6 * x

    torch.library.register_autograd("regress_histories::cube", backward, setup_context=save)
    yield torch.ops.regress_histories
    library._destroy()


@pytest.mark.parametrize("through", ["grad", "backward"])
def test_operators_with_a_derivative_in_python(operators, through):
    def program(x):
        cube, slope = operators.cube(x * 1.5)
        return (cube * slope.sin()).sum()

    def second(function):
        x = torch.linspace(0.5, 2.0, 5, dtype=torch.float64, requires_grad=True)
        y = function(x)
        if through == "grad":
            (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        else:
            y.backward(create_graph=True)
            gradient = x.grad
        return gradient.detach().clone(), *torch.autograd.grad(gradient.exp().sum(), x)

    for found, expected in zip(second(lampwork.compile(program, options=OPTIONS)), second(program)):
        torch.testing.assert_close(found, expected)


def test_operators_called_where_no_gradient_is_asked_for(operators):
    def program(x):
        with torch.no_grad():
            _, slope = operators.cube(x)
        return (x * slope).sum()

    def second(function):
        x = torch.linspace(0.5, 2.0, 5, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
        return gradient.requires_grad, gradient.detach()

    found, expected = second(lampwork.compile(program, options=OPTIONS)), second(program)
    torch.testing.assert_close(found[1], expected[1])
    assert found[0] == expected[0]


def test_statistics_that_are_read_are_not_run_again():
    """What the region computed from its running mean is not what it would compute now."""
    model = nn.BatchNorm1d(3).double()

    def program(x):
        return (model(x) * model.running_mean.sum()).tanh().sum()

    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(lampwork.compile(program, options=OPTIONS)(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="reads tensors from outside that it writes to"):
        gradient.sum().backward()


def test_an_evaluating_norm_reads_its_statistics():
    model = nn.BatchNorm1d(3).double().eval()
    model.running_mean.fill_(0.5)

    def second(function):
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3).requires_grad_()
        (gradient,) = torch.autograd.grad(function(x).tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sum(), x)[0]

    torch.testing.assert_close(second(lampwork.compile(model, options=OPTIONS)), second(model))
