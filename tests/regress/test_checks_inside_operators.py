"""Operators that look at contents themselves, and those without a shape rule, stay in the graph of a step."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lampwork


def trained(model, loss, batches):
    """What three or more steps leave, eager and compiled, is the same; one graph or one for each kind of sizes."""
    ran = []
    for compiled in (False, True):
        trainee = copy.deepcopy(model)

        def step(*batch, trainee=trainee):
            trainee.zero_grad()
            value = loss(trainee, *batch)
            value.backward()
            return value.detach()

        program = lampwork.compile(step, options={"cache": False}) if compiled else step
        seen = []
        for number, batch in enumerate(batches):
            torch.manual_seed(number)
            try:
                seen.append(program(*batch))
            except RuntimeError as error:
                seen.append(str(error))
            seen += [p.grad.clone() for p in trainee.parameters() if p.grad is not None]
        ran.append(seen)
    for expected, found in zip(*ran, strict=True):
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)
    stats = lampwork.stats(program)
    assert not stats["breaks"]
    return stats


def speech(*lengths, flat=False):
    torch.manual_seed(0)
    for inputs, targets in lengths:
        labels = torch.randint(1, 6, (sum(targets),) if flat else (len(targets), 3))
        yield torch.randn(7, 2, 4), labels, torch.tensor(inputs), torch.tensor(targets)


@pytest.mark.parametrize("options", [{}, {"zero_infinity": True}, {"reduction": "sum", "blank": 5}])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_loss(flat, options):
    def loss(model, x, targets, inputs, lengths):
        return F.ctc_loss(model(x).log_softmax(-1), targets, inputs, lengths, **options)

    batches = list(speech(([7, 6], [3, 2]), ([7, 6], [2, 3]), ([5, 7], [1, 1]), ([7, 7], [0, 2]), flat=flat))
    assert not trained(nn.Linear(4, 6), loss, batches)["fallbacks"]


def test_ctc_loss_of_wrong_lengths_raises():
    def loss(model, x, targets, inputs, lengths):
        return F.ctc_loss(model(x).log_softmax(-1), targets, inputs, lengths)

    lampwork.reset()
    batches = list(speech(([7, 6], [3, 2]), ([7, 6], [2, 3]), ([7, 9], [3, 2]), ([7, 6], [3, 5]), ([7, 6], [1, 2])))
    trained(nn.Linear(4, 6), loss, batches)


def test_inverse_of_a_spectrogram():
    def loss(model, x, window):
        spectrum = torch.stft(model(x), 16, 4, window=window, return_complex=True)
        return torch.istft(spectrum, 16, 4, window=window, length=64).pow(2).sum()

    batches = [(torch.randn(2, 64), torch.hann_window(16)) for _ in range(3)]
    trained(nn.Linear(64, 64), loss, [*batches, (torch.randn(2, 64), torch.zeros(16)), *batches])


def test_samples_of_a_dirichlet_distribution():
    def loss(model, x):
        return torch.distributions.Dirichlet(F.softplus(model(x)) + 0.5).rsample()[:, 0].sum()

    assert not trained(nn.Linear(3, 4), loss, [(torch.randn(5, 3),) for _ in range(3)])["fallbacks"]


def test_divergences_are_looked_up_by_two_classes():
    def loss(model, x):
        mean, scale = model(x).chunk(2, -1)
        return torch.distributions.kl_divergence(
            torch.distributions.Normal(mean, scale.exp()), torch.distributions.Normal(0.0, 1.0)
        ).sum()

    trained(nn.Linear(3, 4), loss, [(torch.randn(5, 3),) for _ in range(3)])


def test_momentum_of_a_batch_norm_that_varies():
    norms = [nn.BatchNorm1d(4), nn.BatchNorm1d(4)]
    norms[1].load_state_dict(norms[0].state_dict())
    compiled = lampwork.compile(norms[1], options={"cache": False})
    for momentum in (0.1, 0.2, 0.3, 0.5, 0.7):
        x = torch.randn(6, 4)
        for norm in norms:
            norm.momentum = compiled.momentum = momentum
        torch.testing.assert_close(compiled(x), norms[0](x))
        torch.testing.assert_close(norms[1].state_dict(), norms[0].state_dict())
    assert lampwork.stats(compiled)["captures"] == 2


def test_targets_of_a_cross_entropy():
    """They are probabilities, too."""
    for reduction in ("none", "mean"):
        program = lambda x, y, reduction=reduction: F.binary_cross_entropy(x, y, reduction=reduction)
        compiled = lampwork.compile(program)
        x = torch.rand(40)
        for y in (torch.rand(40), -torch.rand(40), 2 * torch.rand(40), torch.full((40,), math.nan)):
            try:
                expected = program(x, y)
            except RuntimeError as error:
                with pytest.raises(RuntimeError, match=str(error)):
                    compiled(x, y)
            else:
                torch.testing.assert_close(compiled(x, y), expected)


VALUES_ALONE = [
    torch.linalg.eigvals, torch.linalg.eigvalsh, torch.linalg.svdvals, lambda x: torch.norm(x, "nuc"),
    lambda x: x.norm(p="nuc"), lambda x: torch.linalg.norm(x, 2),
]  # fmt: skip


@pytest.mark.parametrize("program", VALUES_ALONE)
def test_values_alone_of_matrices_that_are_not_finite(program):
    """Vectors, whose operator refuses infinities, are computed for derivatives alone."""
    compiled = lampwork.compile(lambda x: program(x), options={"cache": False})
    x = torch.eye(3, dtype=torch.float64)
    assert torch.equal(compiled(x), program(x))
    x[2, 2] = torch.inf
    x[0, 1], x[2, 0] = -torch.inf, torch.inf
    outcomes = []
    for function in (program, compiled):
        try:
            outcomes.append(torch.view_as_real(function(x).to(torch.complex128)).nan_to_num(9.0))
        except RuntimeError as error:
            outcomes.append(str(error))
    assert str(outcomes[0]) == str(outcomes[1])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.linalg.matrix_rank(x, hermitian=True),
        lambda x: torch.linalg.matrix_rank(x),
        lambda x: torch.linalg.cond(x),
        lambda x: torch.linalg.matrix_norm(x, "nuc"),
        lambda x: torch.linalg.norm(x, 2),
    ],
)
def test_operators_made_of_values_alone(program):
    """Computed with vectors, they raise for other matrices that are not finite."""
    compiled = lampwork.compile(lambda x: program(x), options={"cache": False})
    x = torch.arange(16.0).view(4, 4) + torch.eye(4)
    torch.testing.assert_close(compiled(x), program(x))
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(-2, 3, (4, 4), generator=generator).float()
        large = torch.rand(4, 4, generator=generator)
        x[large < 0.1], x[large > 0.93] = torch.inf, torch.finfo(torch.float32).max
        outcomes = []
        for function in (program, compiled):
            try:
                outcomes.append(function(x).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert str(outcomes[0]) == str(outcomes[1])


def test_targets_that_a_derivative_negates():
    """Eager's derivative of this loss raises for a target of booleans, in the backward pass: ours raises there, too."""
    program = torch.nn.functional.soft_margin_loss
    compiled = lampwork.compile(lambda x, y: program(x, y), options={"cache": False})
    target = torch.tensor([True, False])
    for function in (program, compiled):
        loss = function(torch.tensor([0.5, -0.25], requires_grad=True), target)
        with pytest.raises(RuntimeError, match="on a bool tensor is not supported"):
            loss.backward()
