"""`memory_budget`: less is kept, gradients stay; and what is computed again is chosen well."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lampwork
from bench.memory_budget import kept_bytes, loss_of
from lampwork.errors import OptionError
from lampwork.verdict import zoo
from tests.training.steps import close


def gradients(module, run, args):
    module.zero_grad()
    loss_of(run(*args)).backward()
    return [each.grad.clone() for each in module.parameters()]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_less_is_kept(name):
    workload = zoo.build(name, size="tiny")
    module = workload.function.train()
    for each in module.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0
    expected = gradients(module, module, workload.args)
    kept = {"eager": kept_bytes(lambda: module(*workload.args), module)}
    for budget in (1.0, 0.5, 0.2):
        compiled = lampwork.compile(module, options={"cache": False, "memory_budget": budget})
        for one, other in zip(gradients(module, compiled, workload.args), expected):
            close(one, other)
        assert not lampwork.stats(compiled)["fallbacks"]
        kept[budget] = kept_bytes(lambda: compiled(*workload.args), module)
    assert kept[1.0] < kept["eager"]
    inputs = sum(each.untyped_storage().nbytes() for each in workload.args)  # tokens are kept in any case
    assert kept[0.5] <= 0.5 * kept[1.0] + inputs and kept[0.2] <= 0.2 * kept[1.0] + inputs, kept


def test_nothing_is_drawn_twice():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.GELU(), nn.Linear(32, 2))
    x = torch.randn(4, 8)
    found = []
    for run in (module, lampwork.compile(module, options={"cache": False, "memory_budget": 0.0})):
        torch.manual_seed(1)
        found.append((gradients(module, run, (x,)), torch.rand(1)))
    for one, other in zip(*[each for each, _ in found]):
        close(one, other)
    assert torch.equal(found[0][1], found[1][1])


def test_cheap_values_are_not_kept():
    """Of a chain of cheap operations its input is kept, which products made anyway."""

    def program(x, w):
        h = x @ w
        return ((h * 2 + 1).relu() * h.abs()).sum()

    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    compiled = lampwork.compile(program, options={"cache": False})
    compiled(x, w)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        compiled(x, w)
    assert len(saved) == 3  # x, w, h


def test_explain_prints_the_curve():
    workload = zoo.build("gpt2", size="tiny")
    explanation = lampwork.explain(workload.function.train(), *workload.args)
    points = explanation.to_dict()["memory"]
    kept = [each["bytes"] for each in points]
    assert points[0]["budget"] == 1.0 and points[0]["ms"] == 0 and kept == sorted(kept, reverse=True)
    assert kept[-1] < 0.2 * kept[0] and points[-1]["ms"] > 0
    assert len(explanation["memory"].splitlines()) == len(points) + 1


def test_budgets_are_checked():
    with pytest.raises(OptionError, match="from 0 to 1"):
        lampwork.compile(lambda x: x, options={"memory_budget": 2})
    with pytest.raises(OptionError, match="must be of type float"):
        lampwork.compile(lambda x: x, options={"memory_budget": "half"})
