"""What eager does not raise reaches nobody, whatever has been written by the time a program fails."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork import _torch
from lampwork.config import environment


@torch.library.custom_op("lampwork_tests::two_rows", mutates_args=())
def two_rows(x: torch.Tensor) -> torch.Tensor:
    return x[:2].clone()


@two_rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(1, *x.shape[1:])  # wrong, as fakes of users are now and then


def _draws(state, x):
    return F.dropout(x, 0.5) + two_rows(x).sum()


def _writes(state, x):
    state.mul_(2)
    state.t()[1:].add_(1)
    noise = torch.rand(3)
    return two_rows(torch.cumsum(x + state.sum(), 0)).sum() + noise


def _writes_overlapping(state, x):
    state[0].add_(x[0])
    state.view(-1)[1:].mul_(3)
    return two_rows(torch.cumsum(x + state.sum(), 0))


@pytest.mark.parametrize("program", [_draws, _writes, _writes_overlapping])
def test_a_result_that_does_not_fit_its_plan(program, monkeypatch):
    monkeypatch.setitem(vars(environment), "strict", False)  # as users run it
    compiled = lampwork.compile(program, options={"cache": False})
    states = []
    for function in (program, compiled):
        torch.manual_seed(0)
        state, x = torch.ones(3, 4), torch.arange(12.0).view(3, 4)
        results = [function(state, x) for _ in range(3)]
        states.append((state, *results, torch.get_rng_state()))
    for ours, theirs in zip(*states):
        torch.testing.assert_close(ours, theirs)
    assert [each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]] == ["run-failed"]


def test_a_backward_pass_that_fails_is_eagers(monkeypatch):
    monkeypatch.setitem(vars(environment), "strict", False)
    plain = _torch.direct_call

    def failing(name):
        return (lambda *args: 1 // 0) if name.startswith("aten::convolution_backward") else plain(name)

    monkeypatch.setattr(_torch, "direct_call", failing)
    results = []
    for compile in (lambda model: model, lambda model: lampwork.compile(model, options={"cache": False})):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.Tanh(), torch.nn.Conv1d(3, 2, 3))
        run = compile(model)
        x = torch.linspace(0, 1, 32).view(2, 2, 8).requires_grad_()
        run(x).square().sum().backward()
        results.append([x.grad, *(each.grad for each in model.parameters())])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)
    assert [each.diagnostic.id for each in lampwork.stats(run)["fallbacks"]] == ["run-failed"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_an_lstm_is_trained(options, dtype):
    """oneDNN's layer saves a workspace whose size only it knows, and only where grad mode is on."""

    def made():
        torch.manual_seed(0)
        model = torch.nn.LSTM(6, 8, dtype=dtype, **options)
        return model, torch.optim.SGD(model.parameters(), 0.05)

    def step(model, optimizer, x, forward=None):
        loss = (forward or model)(x)[0].float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    found = []
    for road in ("eager", "module", "step"):
        model, optimizer = made()
        compiled = lampwork.compile(model, options={"cache": False}) if road == "module" else None
        run = lampwork.compile(step, options={"cache": False}) if road == "step" else step
        losses = [run(model, optimizer, torch.ones(5, 3, 6, dtype=dtype) / (k + 1), compiled) for k in range(3)]
        found.append([*losses, *(each.detach() for each in model.parameters())])
        counted = lampwork.stats(run if road == "step" else compiled) if road != "eager" else None
        assert counted is None or not counted["fallbacks"] and not counted["breaks"]
    for road in found[1:]:
        for ours, theirs in zip(road, found[0]):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 if dtype == torch.float32 else 1e-2)
