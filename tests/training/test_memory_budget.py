"""`memory_budget`: less is kept, gradients stay; and what is computed again is chosen well."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lampwork
from bench.memory_budget import kept_bytes, loss_of
from lampwork.benchmark import zoo
from lampwork.config import make_settings
from lampwork.errors import OptionError
from lampwork.runtime.function import CompiledFunction
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


class Block(nn.Module):
    def __init__(self, width: int, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.checkpointed else self.inner(x))


def a_step(checkpointed: bool):
    """A whole training step, and the parameters that it trains."""
    torch.manual_seed(0)
    module = nn.Sequential(*(Block(16, checkpointed) for _ in range(8)))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step, list(module.parameters())


def run_step(checkpointed: bool, **options):
    """(losses of some steps, parameters behind them, bytes that the compiled program works in)."""
    step, parameters = a_step(checkpointed)
    compiled = CompiledFunction(step, make_settings(options={"cache": False, **options}))
    inputs = [torch.randn(128, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    losses = [compiled.call((x,), {}) if options else step(x) for x in inputs]
    return (
        losses,
        parameters,
        max((each.workspace_bytes for entry in compiled.entries for each in entry.programs), default=0),
    )


def test_whole_steps_have_budgets_too():
    losses, parameters, _ = run_step(False)
    work = {}
    for budget in (1.0, 0.5, 0.2):
        found, trained, work[budget] = run_step(False, memory_budget=budget)
        close(torch.stack(found), torch.stack(losses))
        for one, other in zip(trained, parameters):
            close(one, other)
    assert max(work[0.2], work[0.5]) <= 0.75 * work[1.0], work


def test_checkpoints_in_whole_steps_are_computed_again():
    losses, parameters, _ = run_step(True)
    found, trained, work = run_step(True, memory_budget=1.0)
    close(torch.stack(found), torch.stack(losses))
    for one, other in zip(trained, parameters):
        close(one, other)
    assert work <= 0.75 * run_step(False, memory_budget=1.0)[2]
