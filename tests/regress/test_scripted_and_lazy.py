"""Modules that PyTorch's own compilers made, modules whose first call makes their weights, and custom operators whose
results have sizes that contents decide: what cannot be compiled runs as it was written."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lampwork


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.last = inner, nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.inner(x) + 1)


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.linear = nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.LazyLinear(5)

    def forward(self, x):
        return self.linear(self.norm(self.convolution(x)).relu().flatten(1))


MODULES = {
    "scripted": lambda: torch.jit.script(Inner()),
    "traced": lambda: torch.jit.trace(Inner(), torch.ones(3, 4)),
    "around a scripted one": lambda: Outer(torch.jit.script(Inner())),
    "around a traced one": lambda: Outer(torch.jit.trace(Inner(), torch.ones(3, 4))),
    "lazy layers": lambda: nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(MODULES))
@pytest.mark.parametrize("grad", [False, True])
def test_modules(name, grad):
    results = []
    for compile in (lambda module: module, lambda module: lampwork.compile(module, options={"cache": False})):
        torch.manual_seed(0)
        module = compile(MODULES[name]())
        with torch.set_grad_enabled(grad):
            results.append([module(torch.arange(4.0 * rows).view(rows, 4)) for rows in (3, 3, 5)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)


def test_layers_that_the_first_call_makes():
    results = []
    for compile in (lambda module: module, lambda module: lampwork.compile(module, options={"cache": False})):
        torch.manual_seed(0)
        module = compile(Lazy())
        outputs = [module(torch.ones(size, 3, 8, 8) * torch.arange(8.0)).detach() for size in (2, 2, 4)]
        results.append([*outputs, *(each.detach() for each in module.state_dict().values())])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)


@torch.library.custom_op("lampwork_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("lampwork_tests::positive_without_fake", mutates_args=())
def positive_without_fake(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@pytest.mark.parametrize("operator", [positive, positive_without_fake])
def test_custom_operators_whose_sizes_contents_decide(operator):
    def program(x, seen):
        seen.append(operator(x + 1).shape[0])
        part = operator(x) * 2
        return part.sum() + x, (part if part.shape[0] > 1 else x)

    compiled = lampwork.compile(program, options={"cache": False})
    lists: tuple[list, list] = ([], [])
    for values in ([1.0, -2, 3], [1.0, 2, 3], [-1.0, -2, -3], [1.0, 2, -3, 4]):
        torch.testing.assert_close(compiled(torch.tensor(values), lists[0]), program(torch.tensor(values), lists[1]))
    assert lists[0] == lists[1]
    assert not lampwork.stats(compiled)["fallbacks"]
