"""Tensors as Python objects: which memory they name, what is attached to them, which copies share what."""

from __future__ import annotations

import copy
import weakref

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(2, 3)


@program(_x)
def data_leaves_old_memory_to_views(x):
    flat = x.view(-1)
    x.data = torch.zeros(4)
    flat += 1
    return flat, x


@program(_x)
def data_shared_with_another(x):
    y = x.clone()
    row = y[0]
    y.data = x
    row.add_(5)
    y.mul_(3)
    return row, y


@program(_x)
def transposed_then_written(x):
    x.t_()
    x.add_(1)
    return x.sum(0)


@program(_x, lambda: values(2))
def data_of_one_argument_is_another(x, y):
    x.data = y
    y.add_(1)
    return x * 2


@program(_x)
def parameter_shares_memory(x):
    parameter = nn.Parameter(x, requires_grad=False)
    parameter.add_(1)
    return parameter, x


@program(_x, grad=True)
def parameter_returned(x):
    return nn.Parameter(x.clone())


@program(_x)
def generator_seeded_twice(x):
    torch.manual_seed(3)
    first = torch.rand(2)
    torch.manual_seed(3)
    return first - torch.rand(2), torch.rand(1)


@program(_x, lambda: (lambda t: [t, t, {"t": t}])(values(3)))
def copied_deeply_with_sharing(x, tensors):
    return copy.deepcopy(tensors), copy.copy(tensors)


@program(_x, lambda: (lambda t: [t, t.view(1, -1)])(values(3)))
def copied_deeply_with_views(x, tensors):
    return copy.deepcopy(tensors)


class Base:
    count = 0
    value = None


class Derived(Base):
    pass


@program(_x)
def class_attributes_inherited(x):
    Base.count = 5
    before = Derived.count
    Derived.count = 7
    Base.value = x * 2
    derived = Derived()
    derived.value = 3
    return before, (Base.count, Derived.count, Derived().count), Base.value, Derived.value, derived.value


@program(_x)
def attributes_of_tensors_form_a_chain(x):
    y = x + 1
    y.made_from = x
    z = y * 2
    z.made_from = y
    return z


@program(_x)
def attributes_put_on_an_argument(x):
    x.note = x * 2
    x.others = [1]
    return x.note


@program(_x)
def weak_reference_returned(x):
    y = x + 1
    return y, weakref.ref(y), weakref.ref(x)() is x


@program(_x, grad=True)
def gradients_accumulate_inside(x):
    y = x.clone().requires_grad_()
    (y * y).sum().backward()
    y.grad.add_(1)
    first = y.grad
    (y * 3).sum().backward()
    return first, y.grad, first is y.grad


@program(_x, lambda: values(3).requires_grad_(), grad=True)
def gradient_with_respect_to_an_argument(x, weight):
    (gradient,) = torch.autograd.grad((x * weight * weight).sum(), weight)
    return gradient


@program(_x, lambda: values(3).requires_grad_(), grad=True)
def backward_to_an_argument(x, weight):
    (x * weight).sum().backward()
    return weight.grad


@program(_x)
def tensors_escape_a_transform(x):
    kept = []
    torch.func.vmap(lambda row: kept.append(row) or row.sum())(x)
    return x + len(kept)


@program(_x)
def branch_inside_a_transform(x):
    return torch.func.vmap(lambda row: row if row.sum() > 0 else -row)(x)


@program(_x, lambda: values(3))
def closures_inside_a_transform(x, weight):
    rows = torch.func.vmap(lambda row: row + weight)(x)
    return rows, torch.func.grad(lambda v: (v * weight).sum())(x[0])
