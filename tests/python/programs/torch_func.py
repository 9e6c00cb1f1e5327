"""`torch.func`: vmap, grad, jvp, vjp, jacobians, and their compositions."""

from __future__ import annotations

import torch
import torch._decomp.decompositions_for_jvp  # its first import warns, whoever does it
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(3, 4)


def _loss(x):
    return (x.sin() * x).sum()


@program(together=lambda: (_x(),))
def vmap_of_a_function(x):
    return vmap(lambda row: row * row.sum())(x)


@program(together=lambda: (_x(), values(4, seed=1)))
def vmap_with_in_dims(x, w):
    return vmap(torch.dot, in_dims=(0, None))(x, w)


@program(together=lambda: (_x(),))
def vmap_with_out_dims(x):
    return vmap(lambda row: (row + 1, row.sum()), out_dims=(1, 0))(x)


@program(together=lambda: (values(2, 3, 4),))
def vmap_nested(x):
    return vmap(vmap(lambda row: row.softmax(-1)))(x)


@program(together=lambda: (_x(),), grad=True)
def grad_of_a_function(x):
    return grad(_loss)(x)


@program(together=lambda: (_x(), 3.0))
def grad_with_respect_to_second(x, scale):
    def loss(scale, x):
        return (x * scale).pow(2).sum()

    return grad(loss, argnums=1)(torch.tensor(scale), x)


@program(together=lambda: (_x(),))
def grad_and_value_of_a_function(x):
    return grad_and_value(_loss)(x)


@program(together=lambda: (_x(),))
def grad_with_auxiliary_output(x):
    def loss(x):
        y = x.tanh()
        return y.sum(), y

    return grad(loss, has_aux=True)(x)


@program(together=lambda: (_x(),))
def grad_of_grad(x):
    return grad(lambda y: grad(_loss)(y).sum())(x)


@program(together=lambda: (_x(),), grad=True)
def per_sample_gradients(x):
    return vmap(grad(_loss))(x)


@program(together=lambda: (_x(), values(3, 4, seed=1)))
def jvp_of_a_function(x, tangent):
    return jvp(torch.sin, (x,), (tangent,))


@program(together=lambda: (_x(), values(3, 4, seed=1)))
def vjp_of_a_function(x, cotangent):
    output, pull_back = vjp(torch.tanh, x)
    return output, pull_back(cotangent)


@program(together=lambda: (values(4),))
def jacobian_reverse(x):
    return jacrev(lambda y: y.sin() * y.sum())(x)


@program(together=lambda: (values(4),))
def jacobian_forward(x):
    return jacfwd(lambda y: y.sin() * y.sum())(x)


@program(together=lambda: (values(4),))
def hessian_of_a_function(x):
    return hessian(_loss)(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 2))), grad=True)
def gradients_of_a_functional_call(x, layer):
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(parameters):
        return functional_call(layer, parameters, (x,)).pow(2).sum()

    return grad(loss)(parameters)


@program(together=lambda: (values(4), values(4).double(), torch.arange(4)))
def numbers_inside_vmap(x, y, n):
    def row(a, b, c):
        return a * 2, 1.5 - a, b + 1, c * 2, c / 2, a**2, a > 0, a * True, torch.where(a > 0, a, 0.0), 2 / b

    return vmap(row)(x, y, n)


@program(together=lambda: (_x(),))
def numbers_inside_nested_transforms(x):
    return vmap(lambda r: grad(lambda v: (v * 3 - 1).pow(2).sum() / 2)(r) + 1)(x), vmap(lambda r: r.sum() * 2)(x)
