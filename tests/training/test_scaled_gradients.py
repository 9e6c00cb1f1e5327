"""`torch.amp.GradScaler` without a fused optimizer: steps with infinite gradients are left out, as in eager."""

from __future__ import annotations

import copy

import pytest
import torch

import lampwork


def _setting():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), scaler


def _step(model, optimizer, scaler, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _clipped_step(model, optimizer, scaler, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@pytest.mark.parametrize("step", [_step, _clipped_step])
@pytest.mark.parametrize("factors", [(1, 1, 1, 1), (1, 1, float("inf"), 1, 1), (1, 1, float("nan"), float("inf"), 1)])
def test_steps(step, factors):
    eager = _setting()
    ours = copy.deepcopy(eager)
    compiled = lampwork.compile(step, options={"cache": False})
    x = torch.randn(5, 3)
    for factor in factors:
        torch.testing.assert_close(compiled(*ours, x * factor), step(*eager, x * factor), equal_nan=True)
        assert ours[2].state_dict() == eager[2].state_dict()
        torch.testing.assert_close(list(ours[0].parameters()), list(eager[0].parameters()))
        torch.testing.assert_close(ours[1].state_dict(), eager[1].state_dict())
    stats = lampwork.stats(compiled)
    assert not stats["breaks"]
    assert sum(each.count for each in stats["fallbacks"]) == sum(factor != 1 for factor in factors)
