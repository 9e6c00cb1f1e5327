"""Recurrent layers were compiled again at every length and every size of the batch, and then run by eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork

SIZES = [(2, 3), (3, 4), (4, 4), (5, 6), (3, 2), (2, 7)]


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [each for part in value for each in flat(part)]


def layer(kind, **options):
    return nn.RNN(5, 6, nonlinearity="relu", **options) if kind == "relu" else getattr(nn, kind)(5, 6, **options)


def compare(make, inputs, grad, captures=2):
    """`make()` compiled gives eager's results, layouts, gradients and draws at all sizes, with so many captures."""
    torch.manual_seed(0)
    mine = make()
    other = copy.deepcopy(mine)
    compiled = lampwork.compile(mine, fullgraph=True, options={"cache": False})
    for seed, args in enumerate(inputs):
        both = []
        for module in (compiled, other):
            own = [each.clone().requires_grad_(grad) for each in args]
            torch.manual_seed(seed)
            with torch.set_grad_enabled(grad):
                results = flat(module(*own))
            if grad:
                sum((each * torch.linspace(0, 1, each.numel()).view(each.shape)).sum() for each in results).backward()
            both.append((results, [each.grad for each in own], torch.rand(2)))
        (found, gradients, drawn), (expected, wanted, reference) = both
        assert [each.stride() for each in found] == [each.stride() for each in expected]
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(drawn, reference)
        if grad:
            torch.testing.assert_close(gradients, wanted)
            for own, reference in zip(mine.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(own.grad, reference.grad, rtol=1e-4, atol=1e-5)
    stats = lampwork.stats(compiled)
    assert (stats["captures"], stats["fallbacks"]) == (captures, ())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "relu"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True, "bias": False}, {"num_layers": 2, "bidirectional": True, "dropout": 0.4}],
    ids=["one", "both", "two"],
)
@pytest.mark.parametrize("grad", [False, True])
def test_one_entry_for_all_sizes(kind, batch_first, options, grad):
    inputs = [[torch.rand(*(size if batch_first else size[::-1]), 5)] for size in SIZES]
    compare(lambda: layer(kind, batch_first=batch_first, **options), inputs, grad)


class WithStates(nn.Module):
    """A layer that is given its states, over a sequence and then on."""

    def __init__(self, kind):
        super().__init__()
        self.layer = layer(kind)

    def forward(self, x, state):
        states = (state, state * 2) if isinstance(self.layer, nn.LSTM) else state
        first, states = self.layer(x, states)
        second, _ = self.layer(x.flip(0) + first[..., :5], states)
        return first.relu(), second


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("grad", [False, True])
def test_with_states(kind, grad):
    compare(lambda: WithStates(kind), [[torch.rand(t, b, 5), torch.rand(1, b, 6)] for b, t in SIZES], grad)


def test_gradients_are_differentiated_again():
    torch.manual_seed(0)
    module = nn.GRU(5, 6)
    compiled = lampwork.compile(module, options={"cache": False})
    for length in (3, 4, 5):
        x = torch.rand(length, 2, 5, requires_grad=True)
        found, expected = (
            torch.autograd.grad(torch.autograd.grad(each(x)[0].sin().sum(), x, create_graph=True)[0].sum(), x)[0]
            for each in (compiled, module)
        )
        torch.testing.assert_close(found, expected)
    assert lampwork.stats(compiled)["captures"] == 2


def test_whole_steps():
    """Gradients are computed inside of the program; those that are differentiated again there have steps of their own."""

    def penalised(module, x):
        y = module(x)[0].square().sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return gradient.square().sum()

    def step(module, x):
        module.zero_grad()
        loss = module(x)[0].sin().sum()
        loss.backward()
        return loss.detach()

    for program, captures in ((step, 2), (penalised, 4)):
        torch.manual_seed(0)
        mine = nn.GRU(5, 6)
        other = copy.deepcopy(mine)
        compiled = lampwork.compile(lambda x, program=program, mine=mine: program(mine, x), options={"cache": False})
        for length in (3, 4, 5, 6):
            x = torch.rand(length, 2, 5, requires_grad=True)
            torch.testing.assert_close(compiled(x), program(other, x))
            for own, reference in zip(mine.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(own.grad, reference.grad)
        stats = lampwork.stats(compiled)
        assert stats["captures"] == captures and not stats["fallbacks"]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_are_taken_twice(kind):
    """What a layer leaves for its derivative goes as it is used; a second derivative does without."""
    torch.manual_seed(0)
    module = layer(kind, num_layers=2)
    compiled = lampwork.compile(module, options={"cache": False})
    for length in (3, 4, 5):
        x = torch.rand(length, 2, 5, requires_grad=True)
        for each in (compiled, module):
            y = each(x)[0].sin().sum()
            y.backward(retain_graph=True)
            y.backward()
        found, expected = (torch.autograd.grad(each(x)[0].sin().sum(), x)[0] for each in (compiled, module))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(x.grad, 4 * expected)
    assert lampwork.stats(compiled)["captures"] == 2
