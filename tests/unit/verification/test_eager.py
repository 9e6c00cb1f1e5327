"""Eager beside float64, and off by roundings."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lampwork.verification.eager import Beside64, Noted, Rounded


def forward(x, w):
    """Views, writes, views of what was written, numbers out of tensors."""
    h = torch.tanh(x @ w)
    h[1:].mul_(0.3)
    view = h.t()
    view[0] += h.sum(1)
    return F.layer_norm(h.view(2, -1), (h.numel() // 2,)).exp().mean() + h.flatten()[3:9].sum()


def test_every_operator_is_in_float64_beside_eager():
    x, w = torch.randn(4, 5), torch.randn(5, 6)
    expected = forward(x.double(), w.double())
    plain = forward(x.clone(), w)
    mode = Beside64()
    with mode:
        found = forward(x, w)
    assert torch.equal(found, plain), "eager's own numbers are as they were"
    torch.testing.assert_close(mode.of(found), expected, rtol=1e-14, atol=1e-14)
    assert not mode.failed


def test_gradients_and_steps_of_an_optimizer_are_in_float64():
    def trained(dtype, mode):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.Linear(7, 3)).to(dtype)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        x = torch.randn(8, 5).to(dtype)
        for _ in range(3):
            with mode or torch.enable_grad():
                optimizer.zero_grad()
                module(x).square().sum().backward()
                optimizer.step()
        of = mode.of if mode is not None else lambda value: value.detach()
        return [of(value) for value in module.parameters()] + [of(value.grad) for value in module.parameters()]

    with torch.no_grad():
        torch.manual_seed(0)
    # The same weights, rounded to float32 first.
    mode = Beside64()
    wide = trained(torch.float32, mode)
    assert all(value.dtype is torch.float64 for value in wide)
    plain = trained(torch.float32, None)
    for exact, value in zip(wide, plain):
        torch.testing.assert_close(exact.float(), value, rtol=2e-4, atol=1e-5)
        assert bool((exact != value.double()).any()), "more than eager's own numbers"


def test_random_numbers_are_eagers():
    x = torch.randn(50)
    torch.manual_seed(3)
    plain = F.dropout(x, 0.5) + torch.randn(50)
    mode = Beside64()
    torch.manual_seed(3)
    with mode:
        found = F.dropout(x, 0.5) + torch.randn(50)
    assert torch.equal(found, plain)
    torch.testing.assert_close(mode.of(found).float(), plain)


def test_memory_that_is_used_again_begins_anew():
    mode = Beside64()
    with mode:
        for number in range(2000):
            total = torch.full((3,), float(number)) / 3
        assert torch.equal(mode.of(total), torch.full((3,), 1999.0, dtype=torch.float64) / 3)
    assert len(mode._known) < 1500, "what was freed is forgotten"


def test_complex_numbers_and_halves():
    z, h = torch.randn(4, dtype=torch.complex64), torch.randn(4, dtype=torch.bfloat16)
    mode = Beside64()
    with mode:
        first = torch.view_as_real((z * 2).conj() * z)
        second = (h * 1.7).float() * h
    exact = z.to(torch.complex128)
    torch.testing.assert_close(mode.of(first), torch.view_as_real((exact * 2).conj() * exact).clone())
    torch.testing.assert_close(mode.of(second), h.double() * 1.7 * h.double())


def test_a_rounding_moves_results_and_leaves_counts():
    x = torch.rand(100) + 1

    def program():
        return x * 1.1, torch.arange(100.0), torch.cat([x, x]), (x > 1.5).sum()

    plain = program()
    with Rounded(0):
        moved = program()
    off = (moved[0] - plain[0]).abs() / plain[0]
    assert 0 < off.max() < 3e-7
    assert bool((off > 0).all())
    assert all(torch.equal(a, b) for a, b in zip(moved[1:], plain[1:]))
    with Rounded(1):
        assert not torch.equal(program()[0], moved[0])


def test_operators_are_noted_in_order():
    seen = []
    with Noted(lambda op, results: seen.append((str(op), results[0].shape))):
        torch.ones(3).add(1).sum()
    assert [name for name, _ in seen] == ["aten.ones.default", "aten.add.Tensor", "aten.sum.default"]


@pytest.mark.parametrize("index", [0, 2])
def test_indices_keep_their_way(index):
    """float64 goes where eager goes."""
    x = torch.tensor([1.0, 1.0 + 2.0**-23, 1.0])
    mode = Beside64()
    with mode:
        found = x[(x / 3 * 3).argmax()] + x[index] * 0
    assert mode.of(found) in (1.0, 1.0 + 2.0**-23)
