"""Optimizers stepped in the program, with gradients set beforehand or taken inside."""

from __future__ import annotations

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import seeded, values


def _with_gradients(make_optimizer):
    def make():
        layer = seeded(lambda: nn.Linear(4, 3))
        for index, parameter in enumerate(layer.parameters()):
            parameter.grad = values(*parameter.shape, seed=index)
        return layer, make_optimizer(layer.parameters())

    return make


def _stepped(make_optimizer):
    """With the optimizer's state there already: one step was made."""

    def make():
        layer, optimizer = _with_gradients(make_optimizer)()
        optimizer.step()
        return layer, optimizer

    return make


@program(together=_with_gradients(lambda p: torch.optim.SGD(p, lr=0.1)), grad=True)
def sgd_step(layer, optimizer):
    optimizer.step()
    return layer.bias.detach() * 2


@program(together=_with_gradients(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)))
def momentum_state_made(layer, optimizer):
    optimizer.step()
    return layer.bias.detach() * 2


@program(together=_stepped(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)))
def momentum_step(layer, optimizer):
    optimizer.step()
    return layer.weight.detach().sum()


@program(together=_with_gradients(lambda p: torch.optim.AdamW(p, lr=0.1)))
def adamw_state_made(layer, optimizer):
    optimizer.step()
    return layer.bias.detach() * 2


@program(together=_stepped(lambda p: torch.optim.AdamW(p, lr=0.1)), grad=True)
def adamw_step(layer, optimizer):
    optimizer.step()
    return layer.bias.detach() * 2


@program(together=_stepped(lambda p: torch.optim.Adam(p, lr=0.1, foreach=False, amsgrad=True)))
def adam_step_one_by_one(layer, optimizer):
    optimizer.step()
    return layer.bias.detach() * 2


@program(together=_with_gradients(lambda p: torch.optim.SGD(p, lr=0.1)), grad=True)
def gradients_dropped(layer, optimizer):
    optimizer.zero_grad()
    return [parameter.grad is None for parameter in layer.parameters()]


@program(together=_with_gradients(lambda p: torch.optim.SGD(p, lr=0.1)))
def gradients_set_to_zero(layer, optimizer):
    optimizer.zero_grad(set_to_none=False)
    return [parameter.grad for parameter in layer.parameters()]


@program(together=_with_gradients(lambda p: torch.optim.SGD(p, lr=0.1)))
def learning_rate_changed(layer, optimizer):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    optimizer.step()
    return layer.bias.detach().clone(), optimizer.param_groups[0]["lr"]


@program(together=_with_gradients(lambda p: list(p)), grad=True)
def step_by_hand(layer, parameters):
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
    return parameters[1].detach() + 1


def _training():
    layer = seeded(lambda: nn.Linear(4, 3))
    return values(5, 4), layer, torch.optim.SGD(layer.parameters(), lr=0.1)


@program(together=_training, grad=True)
def training_step(x, layer, optimizer):
    optimizer.zero_grad()
    loss = layer(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
