"""Steps that decide by a number which they compute: what lies on either side of the decision is compiled, once."""

from __future__ import annotations

import collections
import copy

import pytest
import torch
from torch import nn

import lampwork

CALLS = 5


def finite_norm(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    if torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
        optimizer.step()
    return loss.detach()


def nan_loss(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if loss.isnan():
        return loss.detach()
    loss.backward()
    optimizer.step()
    return loss.detach()


def small_norm(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    if nn.utils.clip_grad_norm_(model.parameters(), 1.0) < 1e4:
        optimizer.step()
    return loss.detach()


def large_loss(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if not loss < 1e4:
        return loss.detach()
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize(
    "program, breaks, captures",
    [
        (small_norm, {"data-dependent": CALLS}, 3),
        (large_loss, {"data-dependent": CALLS, "autograd": CALLS - 1}, 4),  # one of them takes no gradients
        (finite_norm, {}, 1),  # these are assumed to be finite; the call for which they are not runs eagerly
        (nan_loss, {}, 1),
    ],
)
def test_a_decision_by_a_number(program, breaks, captures):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    theirs = copy.deepcopy(ours)
    steps = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (ours, theirs)]
    compiled = lampwork.compile(program, options={"cache": False})
    for number in range(CALLS):
        x = torch.randn(4, 8) * (float("nan") if number == 3 else 1.0)
        found, expected = compiled(ours, steps[0], x), program(theirs, steps[1], x)
        torch.testing.assert_close(found, expected, equal_nan=True)
        for one, other in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(one, other)
            assert (one.grad is None) == (other.grad is None)
    stats = lampwork.stats(compiled)
    counted: collections.Counter[str] = collections.Counter()
    for each in stats["breaks"]:
        counted[each.diagnostic.id] += each.count
    assert counted == breaks and stats["captures"] <= captures
    assert [(each.id, each.count) for each in stats["fallbacks"]] == [("assumption-failed", 1)] * (not breaks)
