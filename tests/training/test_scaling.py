"""Gradients scaled, clipped and averaged around an optimizer's step, next to eager."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import swa_utils

from tests.training.support import Steps, check_steps, state_of
from tests.training.test_backward import batch, mlp
from tests.training.test_optimizers import state_of_optimizer, training


def scaled(unscale: bool, overflow: int | None, **options) -> Steps:
    """Steps with a `GradScaler`, whose gradients are not finite in step `overflow`."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    def arguments(number: int) -> tuple:
        x, y = batch(number)
        if number == overflow:
            y[0, 0] = math.inf
        return x, y

    return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer), scaler.state_dict()], arguments)


@pytest.mark.parametrize("overflow", [None, 0, 2])
@pytest.mark.parametrize("unscale", [False, True])
def test_scaler_with_a_fused_optimizer_is_one_graph(unscale, overflow):
    """The kernel is told whether gradients overflowed; nobody on the host looks."""
    check_steps(lambda: scaled(unscale, overflow, fused=True), count=5)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_scaler_of_an_optimizer_that_is_not_fused(unscale, foreach):
    check_steps(lambda: scaled(unscale, 2, foreach=foreach), count=5, whole=False)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("norm", [0.5, 1.0, 2.0, math.inf])
def test_clip_norm(norm, foreach, strict):
    def body(model, optimizer, x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        found = nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm, error_if_nonfinite=strict, foreach=foreach)
        optimizer.step()
        return found

    training(lambda model: torch.optim.SGD(model.parameters(), lr=0.1), body)


def test_clip_norm_refuses_what_is_not_finite():
    def make() -> Steps:
        model = mlp()

        def step(x, y):
            F.mse_loss(model(x), y).backward()
            try:
                return nn.utils.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True)
            except RuntimeError as error:
                return str(error)

        return Steps(step, lambda: state_of(model), lambda number: (batch(number)[0], batch(number)[1] / (2 - number)))

    check_steps(make, whole=False)


def averaged(**options) -> Steps:
    # A bias in front of a batch norm would have gradients of rounding errors alone.
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    average = swa_utils.AveragedModel(model, **options)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        return loss.detach()

    def arguments(number: int) -> tuple:
        return (torch.randn(6, 4, generator=torch.Generator().manual_seed(number)),)

    return Steps(step, lambda: [state_of(model), state_of(average)], arguments)


AVERAGES = {
    "equal": {},
    "with buffers": {"use_buffers": True},
    "exponential": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "exponential, single": {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "equal, foreach": {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_model(name):
    """Whether it is the first model to be averaged is read from a counter on the CPU, which the host knows."""
    check_steps(lambda: averaged(**AVERAGES[name]), count=5)


def test_average_of_a_user():
    def make() -> Steps:
        model = mlp()
        average = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for one, other in zip(average.parameters(), model.parameters()):
                    one.lerp_(other, 0.1)

        return Steps(step, lambda: [state_of(model, average), state_of_optimizer(optimizer)], batch)

    check_steps(make)
