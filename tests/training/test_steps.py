"""Whole training steps as users write them: clipping, several optimizers, averages of weights, schedulers inside."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

import lampwork
from tests.training.support import Steps, check_steps, compare, state_of
from tests.training.test_backward import batch, mlp
from tests.training.test_optimizers import state_of_optimizer, training


def test_clip_norm():
    def body(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss, norm

    training(lambda model: torch.optim.AdamW(model.parameters(), lr=0.01), body)


def test_clip_values():
    def body(model, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()

    training(lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), body)


def test_optimizer_alone():
    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for index, parameter in enumerate(model.parameters()):
            parameter.grad = torch.full_like(parameter, 0.1 * index)
        return Steps(optimizer.step, lambda: [state_of(model), state_of_optimizer(optimizer)])

    check_steps(make)


def test_accumulation_over_micro_batches():
    def body(model, optimizer, x, y):
        optimizer.zero_grad()
        losses = []
        for part, target in zip(x.split(2), y.split(2)):
            loss = F.mse_loss(model(part), target) / 3
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        return torch.stack(losses)

    training(lambda model: torch.optim.Adam(model.parameters(), lr=0.01), body)


def test_two_models_and_optimizers():
    def make() -> Steps:
        generator, discriminator = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1))
        optimizers = [torch.optim.Adam(each.parameters(), lr=0.01, betas=(0.5, 0.999))
                      for each in (generator, discriminator)]  # fmt: skip
        judge = nn.BCEWithLogitsLoss()

        def step(noise, real):
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            optimizers[1].zero_grad()
            fake = generator(noise)
            loss = judge(discriminator(real), ones) + judge(discriminator(fake.detach()), zeros)
            loss.backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            fooled = judge(discriminator(fake), ones)
            fooled.backward()
            optimizers[0].step()
            return loss.detach(), fooled.detach()

        return Steps(step, lambda: [state_of(generator, discriminator), *map(state_of_optimizer, optimizers)], batch)

    check_steps(make)


def test_average_of_weights():
    def make() -> Steps:
        model = mlp()
        average = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)

        return Steps(step, lambda: [state_of(model), [each.detach() for each in average.parameters()]], batch)

    check_steps(make)


def test_parameters_as_a_vector():
    def body(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y) + 0.01 * nn.utils.parameters_to_vector(model.parameters()).square().sum()
        loss.backward()
        optimizer.step()
        return nn.utils.parameters_to_vector(parameter.grad for parameter in model.parameters())

    training(lambda model: torch.optim.SGD(model.parameters(), lr=0.1), body)


def test_closure():
    def body(model, optimizer, x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    training(lambda model: torch.optim.Adam(model.parameters(), lr=0.01), body)


def test_batch_norm_and_dropout():
    def model():
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3))

    # Not Adam: the gradient of a bias in front of a batch norm is rounding noise, which it would make steps of.
    training(lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model=model)


def test_autocast():
    def body(model, optimizer, x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    training(lambda model: torch.optim.SGD(model.parameters(), lr=0.1), body, rtol=2e-2, atol=2e-3)


def test_scheduler_inside_the_step():
    """Its counter varies: a symbol after two calls. Nothing breaks, and results are eager's."""

    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            scheduler.step()

        return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer), scheduler.last_epoch], batch)

    check_steps(make, count=7, whole=False)


@pytest.mark.parametrize("enabled", [False, True])
def test_gradient_scaler(enabled):
    """Whether gradients overflow decides on the host: a break where scaling is on, none where it is off."""

    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=8.0, growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer), scaler.get_scale()], batch)

    found = check_steps(make, whole=not enabled)
    assert found["calls"] == 4


@pytest.mark.parametrize("unscaled", [False, True])
def test_scaled_losses_with_a_fused_optimizer(unscaled):
    """One graph: whether gradients overflowed stays in tensors. The second of these steps overflows."""

    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x, y, factor):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x) * factor, y)
            scaler.scale(loss).backward()
            if unscaled:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        def arguments(number: int) -> tuple:
            return *batch(number), torch.tensor(float("inf") if number == 1 else 1.0)

        return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer), scaler.get_scale()], arguments)

    check_steps(make, count=5, entries=3)


def test_training_resumed_from_state_dicts():
    def make() -> tuple:
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 20)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, optimizer, scheduler, lampwork.compile(step, options={"cache": False})

    def run(step, scheduler, numbers):
        losses = []
        for number in numbers:
            losses.append(step(*batch(number)))
            scheduler.step()
        return losses

    model, optimizer, scheduler, step = make()
    whole = run(step, scheduler, range(8))
    model, optimizer, scheduler, step = make()
    first = run(step, scheduler, range(4))
    saved = copy.deepcopy([each.state_dict() for each in (model, optimizer, scheduler)])
    run(step, scheduler, range(20, 22))  # what is trained meanwhile is undone by loading
    model, optimizer, scheduler, step = make()
    for each, state in zip((model, optimizer, scheduler), saved):
        each.load_state_dict(state)
    compare(first + run(step, scheduler, range(4, 8)), whole, "losses", 1e-6, 1e-7)
    assert not lampwork.stats(step)["fallbacks"]
