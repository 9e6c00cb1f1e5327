"""Operators that draw random numbers give eager's types, sizes, strides and numbers, whatever their operands lie like, and
leave the generator as eager does. Those of `poisson`, `normal` and gamma distributions are laid out row by row, and of
`native_dropout` as a product with the mask is: both were laid out as their operand. Where it has no elements, a dropout
returns the operand itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.layouts import agree

aten = torch.ops.aten
DRAWS = {
    "bernoulli": lambda x: (torch.bernoulli(x / 5), x.bernoulli(0.3), torch.bernoulli(x / 5, out=torch.empty_like(x))),
    "bernoulli_": lambda x: (x.clone().bernoulli_(0.3), x.clone().bernoulli_(x / 5), (x > 1).bernoulli_()),
    "bernoulli functional": lambda x: (aten.bernoulli.p(x, 0.2), aten.bernoulli.Tensor(x, x / 5)),
    "poisson": torch.poisson,
    "binomial": lambda x: torch.binomial(x, x / 5),
    "gamma": lambda x: torch._standard_gamma(x + 1),
    "dirichlet": lambda x: torch._sample_dirichlet(x + 1),
    "multinomial": lambda x: torch.multinomial(x + 1, 1),
    "multinomial with replacement": lambda x: torch.multinomial(x + 1, 3, replacement=True),
    "normal of tensors": lambda x: (torch.normal(x, x + 1), torch.normal(torch.zeros(1), x + 1)),
    "normal of numbers": lambda x: (torch.normal(0.5, x + 1), torch.normal(x, 2.0), torch.normal(x)),
    "like": lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5), torch.randint_like(x, 2, 9)),
    "like of another type": lambda x: (torch.rand_like(x, dtype=torch.float64), torch.randn_like(x, dtype=torch.cfloat)),
    "like in a format": lambda x: torch.rand_like(x, memory_format=torch.contiguous_format),
    "like in channels last": lambda x: torch.randn_like(x, memory_format=torch.channels_last),
    "dropout": lambda x: (F.dropout(x, 0.4), F.dropout(x.clone(), 0.4, inplace=True), F.dropout(x, 1.0)),
    "dropout of nothing": lambda x: (F.dropout(x, 0.0), F.dropout(x, 0.4, False)),
    "native dropout": lambda x: (*torch.native_dropout(x, 0.4, True), *torch.native_dropout(x, 1.0, True)),
    "native dropout in evaluation": lambda x: torch.native_dropout(x, 0.4, False),
    "dropout of channels": lambda x: torch.feature_dropout(x, 0.4, True),
    "alpha dropout": lambda x: (F.alpha_dropout(x, 0.4, True), torch.alpha_dropout_(x.clone(), 0.4, True)),
    "alpha dropout of channels": lambda x: F.feature_alpha_dropout(x, 0.4, True),
    "rrelu": lambda x: (F.rrelu(x - 2, training=True), F.rrelu_(x - 2, training=True), F.rrelu(x - 2)),
    "random_": lambda x: (x.clone().random_(), x.clone().random_(7), x.long().random_(2, 5), (x > 1).random_()),
    "geometric_": lambda x: (x.clone().geometric_(0.3), x.long().geometric_(0.3)),
    "exponential_": lambda x: (x.clone().exponential_(2.0), torch.empty_like(x).exponential_()),
    "cauchy_": lambda x: (x.clone().cauchy_(), x.clone().log_normal_()),
    "normal_": lambda x: (x.clone().normal_(), x.double().normal_(), x.to(torch.cfloat).normal_()),
    "uniform_": lambda x: (x.clone().uniform_(-1, 1), x.half().uniform_()),
    "copies drawn into": lambda x: (aten.uniform(x), aten.exponential(x), aten.normal_functional(x), aten.random(x)),
    "more copies drawn into": lambda x: (aten.geometric(x, 0.3), aten.cauchy(x), aten.log_normal(x), aten.random.to(x, 5)),
    "gumbel": lambda x: (F.gumbel_softmax(x, dim=-1), F.gumbel_softmax(x, hard=True, dim=-1)),
    "randperm": lambda x: x[torch.randperm(x.shape[0])],
}  # fmt: skip

OPERANDS = {
    "number": torch.tensor(2.0),
    "one": torch.ones(2)[::2],
    "rows": torch.arange(12.0).reshape(3, 4) % 5,
    "columns": torch.arange(12.0).reshape(4, 3).t() % 5,
    "a column": torch.arange(4.0).reshape(1, 4).t(),
    "nothing": torch.ones(3, 0).t(),
    "repeated": torch.arange(4.0).expand(3, 4),
    "every other": (torch.arange(24.0).reshape(4, 6) % 5)[::2, ::2],
    "reversed": torch.arange(6.0).reshape(3, 1, 2).permute(2, 1, 0) % 5,
    "channels last": (torch.arange(120.0).reshape(2, 3, 4, 5) % 5).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("operand", OPERANDS)
def test_draws(operand, name):
    agree(DRAWS[name], OPERANDS[operand], dynamic=None)


@pytest.mark.parametrize("operand", ["columns", "every other", "reversed"])
@pytest.mark.parametrize("name", ["poisson", "gamma", "normal of numbers", "native dropout", "copies drawn into"])
def test_sizes_that_vary(operand, name):
    agree(DRAWS[name], OPERANDS[operand], dynamic=True)


@pytest.mark.parametrize("name", ["poisson", "gamma", "normal of numbers", "more copies drawn into"])
def test_large(name):
    agree(DRAWS[name], torch.ones(90, 70).t(), dynamic=None)
