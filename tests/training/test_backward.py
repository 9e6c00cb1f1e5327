"""`backward()` inside a compiled step: gradients land on the caller's tensors as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lampwork
from tests.training.support import Steps, check_steps, state_of


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(5, 4, generator=generator), torch.randn(5, 3, generator=generator)


def with_model(body, model=mlp, **options):
    """Steps of `body(model, x, y)`."""

    def make() -> Steps:
        made = model()
        return Steps(lambda x, y: body(made, x, y), lambda: state_of(made), batch)

    return check_steps(make, **options)


def test_gradients_from_none():
    def body(model, x, y):
        for parameter in model.parameters():
            parameter.grad = None
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss.detach()

    found = with_model(body)
    assert found["graphs"] == found["entries"]


def test_gradients_accumulate_over_calls():
    with_model(lambda model, x, y: F.mse_loss(model(x), y).backward())


def test_gradients_are_added_in_place():
    model = mlp()
    compiled = lampwork.compile(lambda x, y: F.mse_loss(model(x), y).backward())
    compiled(*batch(0))
    before = [(parameter.grad, parameter.grad.data_ptr()) for parameter in model.parameters()]
    compiled(*batch(1))
    assert all(parameter.grad is old and parameter.grad.data_ptr() == place
               for parameter, (old, place) in zip(model.parameters(), before))  # fmt: skip


def test_micro_batches_in_one_step():
    def body(model, x, y):
        model.zero_grad()
        total = 0.0
        for part, target in zip(x.split(2), y.split(2)):
            loss = F.mse_loss(model(part), target) / 3
            loss.backward()
            total += loss.detach()
        return total

    with_model(body)


def test_two_losses_share_a_history():
    def body(model, x, y):
        model.zero_grad()
        out = model(x)
        F.mse_loss(out, y).backward(retain_graph=True)
        out.abs().mean().backward()

    with_model(body)


def test_backward_with_directions_and_inputs():
    def body(model, x, y):
        out = model(x)
        torch.autograd.backward([out, out * 2], [y, y], inputs=[model[0].weight])

    with_model(body)


def test_gradients_of_outside_tensors_as_results():
    def body(model, x, y):
        loss = F.mse_loss(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.1 * gradient
        return gradients

    with_model(body, entries=1)


def test_shared_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).relu())[:, :3]

    with_model(lambda model, x, y: F.mse_loss(model(x), y).backward(), Tied)


def test_gradient_that_both_operands_share_is_copied():
    def make() -> Steps:
        left, right = (torch.randn(3, requires_grad=True) for _ in range(2))

        def step():
            left.grad = right.grad = None
            (left + right).backward(torch.arange(3.0))
            return left.grad.data_ptr() != right.grad.data_ptr()

        return Steps(step, lambda: [left.grad, right.grad])

    check_steps(make, whole=False)


def test_frozen_and_unused_parameters():
    def model():
        made = mlp()
        made[0].bias.requires_grad_(False)
        made.unused = nn.Parameter(torch.ones(2))
        return made

    with_model(lambda model, x, y: F.mse_loss(model[2](model[1](model[0](x))), y).backward(), model)


def test_batch_norm_updates_buffers():
    def model():
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    def body(model, x, y):
        model.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()

    with_model(body, model)


def test_update_by_hand():
    def body(model, x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad.zero_()
        return loss.item()

    with_model(body)


def test_input_that_requires_grad():
    def make() -> Steps:
        model, x = mlp(), torch.randn(5, 4, requires_grad=True)
        return Steps(lambda y: F.mse_loss(model(x), y).backward(), lambda: [x.grad, *state_of(model)],
                     lambda number: batch(number)[1:])  # fmt: skip

    check_steps(make)


# Hooks ----------------------------------------------------------------------------------------------------------------


def test_hooks_registered_before():
    def model():
        made = mlp()
        made[0].weight.register_hook(lambda gradient: gradient * 2)
        made[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        made[2].bias.register_hook(lambda gradient: None)
        return made

    with_model(lambda model, x, y: F.mse_loss(model(x), y).backward(), model)


def test_hooks_registered_inside():
    def body(model, x, y):
        hidden = model[1](model[0](x))
        seen = []
        hidden.register_hook(seen.append)
        handle = hidden.register_hook(lambda gradient: gradient * 3)
        hidden.register_hook(lambda gradient: gradient + 1)
        F.mse_loss(model[2](hidden), y).backward(retain_graph=True)
        handle.remove()
        return seen

    with_model(body)


def test_hook_on_a_parameter_stays_for_the_caller():
    model = mlp()

    @lampwork.compile
    def register():
        model[0].weight.register_hook(lambda gradient: gradient * 0)
        return torch.ones(1)

    register()
    x, y = batch(0)
    F.mse_loss(model(x), y).backward()
    assert not model[0].weight.grad.any() and model[2].weight.grad.any()


def test_update_in_hooks_after_accumulation():
    def model():
        made = mlp()

        def update(parameter):
            with torch.no_grad():
                parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None

        for parameter in made.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        return made

    with_model(lambda model, x, y: F.mse_loss(model(x), y).backward(), model)


def test_retained_gradient():
    def body(model, x, y):
        hidden = model[0](x)
        hidden.retain_grad()
        F.mse_loss(model[2](model[1](hidden)), y).backward()
        return hidden.grad

    with_model(body)


# Results ---------------------------------------------------------------------------------------------------------------


def test_loss_with_a_history_that_is_freed():
    def body(model, x, y):
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        return loss, out

    with_model(body)
    model = mlp()
    loss, out = lampwork.compile(lambda x, y: body(model, x, y))(*batch(0))
    for each in (loss, out.sum()):
        with pytest.raises(RuntimeError, match="second time"):
            each.backward()


def test_loss_with_a_history_that_is_kept_is_not_cut_off():
    model = mlp()

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        return loss

    loss = lampwork.compile(step)(*batch(0))
    once = model[0].weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model[0].weight.grad, 2 * once)


# What is refused ------------------------------------------------------------------------------------------------------


def test_sparse_gradients_run_eagerly():
    def model():
        return nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 3))

    def make() -> Steps:
        made = model()
        places = torch.tensor([[0, 3, 3], [6, 1, 0]])

        def step():
            made.zero_grad()
            made(places).sum().backward()

        return Steps(step, lambda: [made[0].weight.grad.to_dense(), made[1].weight.grad])

    found = check_steps(make, whole=False)
    assert found["fallbacks"] or found["breaks"]


def test_history_from_outside_breaks():
    def make() -> Steps:
        weight = torch.randn(4, requires_grad=True)

        def step():
            pass

        def run(number: int) -> tuple:
            return (weight * 2,)

        return Steps(lambda x: (x * x).sum().backward(), lambda: weight.grad, run)

    found = check_steps(make, whole=False)
    assert found["breaks"][0].diagnostic.id == "autograd"


def test_second_backward_raises_as_in_eager():
    model = mlp()

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        loss.backward()

    with pytest.raises(RuntimeError, match="second time"):
        lampwork.compile(step)(*batch(0))
