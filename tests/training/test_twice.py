"""Gradients of gradients: `create_graph=True` around compiled regions."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import lampwork


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def fallbacks(compiled) -> list[str]:
    return [each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]]


def same_twice(program, size: int) -> None:
    """First and second derivatives of a program of one vector are eager's."""
    found = []
    for each in (program, lampwork.compile(program)):
        x = leaf(size)
        (gradient,) = torch.autograd.grad(each(x), x, create_graph=True)
        found.append((gradient, torch.autograd.grad(gradient.sum(), x)))
    torch.testing.assert_close(found[1], found[0])


def penalised(critic, network, real, fake):
    """A gradient penalty (WGAN-GP), and the gradients of the whole loss."""
    between = (0.3 * real + 0.7 * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = ((gradient.flatten(1).norm(2, 1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    network.zero_grad()
    loss.backward()
    return loss.detach(), [each.grad.clone() for each in network.parameters()]


NETWORKS = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.LayerNorm(16), nn.Linear(16, 1)),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.SiLU(), nn.GroupNorm(2, 4), nn.AvgPool1d(2), nn.Flatten(),
        nn.Linear(8, 1),
    ),
    "batch norms": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Unflatten(1, (2, 4)),
        nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.Flatten(), nn.BatchNorm1d(8, momentum=None),
        nn.Softplus(), nn.Linear(8, 1),
    ),
    "softplus": lambda: nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradient_penalty(name, dynamic):
    torch.manual_seed(0)
    network = NETWORKS[name]()
    compiled = lampwork.compile(network, dynamic=dynamic)
    for rows in (4, 5):
        real, fake = leaf(rows, 6).detach(), leaf(rows, 6, seed=1).detach()
        wanted = penalised(network, network, real, fake)
        found = penalised(compiled, network, real, fake)
        torch.testing.assert_close(found, wanted)
    assert set(fallbacks(compiled)) == {"double-backward"}


def test_hessian_vector_products_of_several_results():
    def program(x, w):
        y = (x @ w).sin()
        return y, (y * y).sum(), y.T

    compiled = lampwork.compile(program)
    found = []
    for each in (program, compiled):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        first, second, third = each(x, w)
        gradients = torch.autograd.grad((first.sum() + 2 * third.exp().sum(), second), (x, w), create_graph=True)
        again = torch.autograd.grad([g.pow(2).sum() for g in gradients], (x, w), create_graph=True)
        found.append((gradients, again, torch.autograd.grad(again[0].sum(), w)))
    torch.testing.assert_close(found[1], found[0])


def test_an_input_computed_from_another():
    """Gradients of a region stop at its inputs."""

    def program(a, b):
        return (a * b).sum() + (b**3).sum()

    compiled = lampwork.compile(program)
    found = []
    for each in (program, compiled):
        a = leaf(5)
        b = a.exp()
        (gradient,) = torch.autograd.grad(each(a, b), a, create_graph=True)
        found.append((gradient, torch.autograd.grad(gradient.sum(), a)))
    torch.testing.assert_close(found[1], found[0])


def test_what_ran_without_grad_has_no_derivative():
    def program(x):
        with torch.no_grad():
            scale = x.exp()
        return (x**3 * scale * x.detach().sin()).sum()

    same_twice(program, 5)


def test_memory_of_its_own_is_written():
    def program(x):
        y = torch.zeros(6)
        y[::2] = x.sin()
        y.mul_(2)
        return (y**2).sum()

    same_twice(program, 3)


def test_undefined_tangents():
    def program(x, w):
        return x.sin() * 2, (w**3).sum()

    compiled = lampwork.compile(program)
    x, w = leaf(3), leaf(3, seed=1)
    first, second = compiled(x, w)
    gradients = torch.autograd.grad(second, (x, w), create_graph=True, allow_unused=True)
    assert gradients[0] is None
    torch.testing.assert_close(torch.autograd.grad(gradients[1].sum(), w)[0], 6 * w)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, tangent):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * tangent


COUNT = torch.zeros(4)

UNREPEATABLE = {
    "reads tensors from outside that it writes to": lambda x: (x**3 * COUNT.add_(1)).sum(),
    "draws random numbers": lambda x: (x**3 * torch.rand(4)).sum(),
    "backward is the user's": lambda x: Cubed.apply(x).sum(),
}


@pytest.mark.parametrize("reason", UNREPEATABLE)
def test_what_cannot_be_run_again_says_why(reason):
    """The first gradients are right all the same."""
    program = UNREPEATABLE[reason]
    compiled = lampwork.compile(program)
    x = leaf(4)
    torch.manual_seed(0)
    COUNT.zero_()
    (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    torch.manual_seed(0)
    COUNT.zero_()
    torch.testing.assert_close(gradient.detach(), torch.autograd.grad(program(x), x)[0])
    with pytest.raises(RuntimeError, match=f"double-backward.*{reason}"):
        gradient.sum().backward()


def test_a_norm_that_writes_statistics_of_its_own():
    """They are read afterwards."""

    def program(x):
        mean, variance = torch.zeros(3), torch.ones(3)
        y = nn.functional.batch_norm(x.view(4, 3), mean, variance, training=True, momentum=0.5)
        return (y.tanh() * mean * variance).sum()

    same_twice(program, 12)


@torch.library.custom_op("twice::cubed", mutates_args=())
def cubed(x: torch.Tensor) -> torch.Tensor:
    return x.detach() ** 3


cubed.register_fake(torch.empty_like)
cubed.register_autograd(
    lambda ctx, tangent: 3 * ctx.saved_tensors[0] ** 2 * tangent,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_an_operator_of_a_library():
    """Its derivative is registered in Python."""
    same_twice(lambda x: cubed(x.sin()).cos().sum(), 5)


def test_parameters_that_changed_in_between_are_noticed():
    layer = nn.Linear(3, 1)
    compiled = lampwork.compile(lambda x: (layer(x) ** 3).sum())
    x = leaf(2, 3)
    result = compiled(x)
    with torch.no_grad():
        layer.bias.add_(1)
    (gradient,) = torch.autograd.grad(result, x, create_graph=True)
    with pytest.raises(RuntimeError, match="changed in place"):
        gradient.sum().backward()


def test_activations_are_not_kept_for_it():
    """What eager would free, and nothing else saves, is freed."""
    compiled = lampwork.compile(lambda x, w: ((x + w) ** 2).sum())
    x = leaf(3)
    activation = x * 2
    result = compiled(activation, leaf(3, seed=1))
    gone = [False]
    weakref.finalize(activation, lambda: gone.__setitem__(0, True))
    del activation
    gc.collect()
    assert gone == [True]
    (gradient,) = torch.autograd.grad(result, x, create_graph=True)
    with pytest.raises(RuntimeError, match="freed"):
        gradient.sum().backward()


def test_a_stored_entry_replays_too():
    def program(x):
        return (x**3).sum()

    for warm in (False, True):
        compiled = lampwork.compile(program)
        x = leaf(4)
        (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        torch.testing.assert_close(torch.autograd.grad(gradient.sum(), x)[0], 6 * x)
        assert lampwork.stats(compiled)["cache_hits"] == int(warm)
