"""Grad modes, custom autograd functions, and derivatives taken inside the program."""

from __future__ import annotations

import torch

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(2, 4)


def _leaf():
    return values(2, 4).requires_grad_()


@program(together=lambda: (_leaf(),), grad=True)
def no_grad_as_context(x):
    with torch.no_grad():
        y = x * 2
    return y, y.requires_grad, torch.is_grad_enabled()


@torch.no_grad()
def _evaluate(x):
    return x.exp()


@program(together=lambda: (_leaf(),), grad=True)
def no_grad_as_decorator(x):
    return _evaluate(x)


@torch.no_grad
def _evaluate_plainly(x):
    return x.exp() + 1


@program(together=lambda: (_leaf(),), grad=True)
def no_grad_as_plain_decorator(x):
    return _evaluate_plainly(x)


@program(together=lambda: (_leaf(),), grad=True)
def inference_mode_as_context(x):
    with torch.inference_mode():
        y = x * 2 + 1
    return y.is_inference(), y.requires_grad


@torch.inference_mode()
def _infer(x):
    return x.sigmoid()


@program(together=lambda: (_x(),), grad=True)
def inference_mode_as_decorator(x):
    return _infer(x).sum()


@program(together=lambda: (_x(),), grad=True)
def grad_mode_set_by_flag(x):
    modes = []
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            modes.append(torch.is_grad_enabled())
    return x + len(modes), modes


@program(together=lambda: (_leaf(),), grad=True)
def enable_grad_inside_no_grad(x):
    with torch.no_grad():
        with torch.enable_grad():
            inside = (x * 2).requires_grad
        return (x * 3).detach(), inside


@program(together=lambda: (_x(),), grad=True)
def grad_mode_left_changed(x):
    previous = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(previous)
    return y, torch.is_grad_enabled()


@program(together=lambda: (_x(),), grad=True)
def gradient_taken_inside(x):
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        loss = (y**3).sum()
        (gradient,) = torch.autograd.grad(loss, y)
    return gradient


@program(together=lambda: (_x(),), grad=True)
def backward_inside_on_own_leaf(x):
    y = x.clone().requires_grad_()
    (y.sin() * 2).sum().backward()
    return y.grad


@program(together=lambda: (_x(),), grad=True)
def double_gradient_inside(x):
    y = x.detach().requires_grad_()
    (first,) = torch.autograd.grad((y**4).sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y)
    return second


@program(together=lambda: (_x(),), grad=True)
def gradient_penalty(x):
    y = x.detach().requires_grad_(True)
    score = (y.tanh() * y).sum(dim=1)
    (gradient,) = torch.autograd.grad(score, y, grad_outputs=torch.ones_like(score))
    return ((gradient.norm(dim=1) - 1) ** 2).mean().detach()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


@program(together=lambda: (_x(),), grad=True)
def custom_function_in_inference(x):
    return Square.apply(x)


@program(together=lambda: (_leaf(),), grad=True)
def custom_function_under_no_grad(x):
    with torch.no_grad():
        return Square.apply(x)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.factor = inputs

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


@program(together=lambda: (_x(),), grad=True)
def custom_function_with_setup_context(x):
    return Scale.apply(x, 3.0)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_non_differentiable(x)
        ctx.set_materialize_grads(False)
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@program(together=lambda: (_x(),), grad=True)
def custom_function_with_marks(x):
    return Rounded.apply(x) + 1


@program(together=lambda: (_x(),), grad=True)
def custom_function_differentiated_inside(x):
    y = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(Square.apply(y).sum(), y)
    return gradient


@program(together=lambda: (_leaf(),), grad=True)
def detach_and_requires_grad_asked(x):
    y = x.detach()
    return y * 2, y.requires_grad, x.requires_grad, x.is_leaf, y.is_leaf


@program(together=lambda: (_x(),), grad=True)
def straight_through_estimator(x):
    return x + (x.round() - x).detach()


@program(together=lambda: (_leaf(),), grad=True)
def result_that_requires_grad(x):
    return x * 2 + 1
