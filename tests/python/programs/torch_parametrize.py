"""Parametrizations, weight and spectral norm, functional calls of modules."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.python.harness import program
from tests.python.tensors import frozen, seeded, values


def _x():
    return values(2, 4)


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


def _symmetric():
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


@program(together=lambda: (_x(), frozen(_symmetric)))
def parametrization(x, layer):
    return layer(x), layer.weight


@program(together=lambda: (_x(), frozen(_symmetric)))
def parametrization_cached(x, layer):
    with parametrize.cached():
        return layer(x) + layer(x)


@program(together=lambda: (_x(), frozen(_symmetric)))
def parametrization_asked(x, layer):
    return layer(x), parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "bias")


@program(together=lambda: (_x(), frozen(lambda: parametrizations.weight_norm(nn.Linear(4, 4)))))
def weight_norm(x, layer):
    return layer(x)


@program(together=lambda: (_x(), frozen(lambda: parametrizations.spectral_norm(nn.Linear(4, 4)))))
def spectral_norm_in_eval(x, layer):
    return layer(x)


@program(together=lambda: (_x(), frozen(lambda: parametrizations.spectral_norm(nn.Linear(4, 4))).train()))
def spectral_norm_in_training(x, layer):
    return layer(x)


@program(together=lambda: (_x(), frozen(lambda: parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="cayley"))))
def orthogonal_weight(x, layer):
    return layer(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))))
def functional_call_with_other_weights(x, model):
    doubled = {name: parameter * 2 for name, parameter in model.named_parameters()}
    return torch.func.functional_call(model, doubled, (x,)), model(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def functional_call_with_keywords(x, layer):
    return torch.func.functional_call(layer, {"bias": torch.zeros(4)}, args=(), kwargs={"input": x})


def _ensemble():
    models = [seeded(lambda: nn.Linear(4, 3), seed).requires_grad_(False) for seed in range(3)]
    return _x(), models


@program(together=_ensemble)
def stacked_module_state(x, models):
    parameters, buffers = torch.func.stack_module_state(models)
    weight = parameters["weight"]
    return torch.einsum("moi,bi->mbo", weight, x) + parameters["bias"].unsqueeze(1), len(buffers)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def parameters_as_one_vector(x, layer):
    vector = nn.utils.parameters_to_vector(layer.parameters())
    return x.sum() * vector


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def vector_put_into_parameters(x, layer):
    nn.utils.vector_to_parameters(torch.arange(20.0), layer.parameters())
    return layer(x)


@program(together=lambda: (_x(), [values(4, 4, seed=1), values(4, seed=2)]))
def gradients_clipped(x, gradients):
    parameters = []
    for gradient in gradients:
        parameter = torch.zeros_like(gradient)
        parameter.grad = gradient.clone()
        parameters.append(parameter)
    total = nn.utils.clip_grad_norm_(parameters, max_norm=1.0)
    return total, [parameter.grad for parameter in parameters]
