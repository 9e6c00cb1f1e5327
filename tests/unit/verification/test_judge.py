"""One wrong element is found next to any others, and rounding is not taken for one."""

from __future__ import annotations

import pytest
import torch

from lampwork.verification.judge import Allowed, difference, differences


def run_of(values, share=2.0**-24, seed=0):
    """Float32 numbers that are off from `values` by about a rounding."""
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (values * (1 + share * noise)).float()


@pytest.fixture
def exact():
    """Of sizes from 1e-4 to 1e4."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.logspace(-4, 4, 4096, dtype=torch.float64)
    return (sizes * torch.randn(4096, generator=generator, dtype=torch.float64)).reshape(64, 64)


def test_another_order_of_adding_is_right(exact):
    rounded = [run_of(exact, 2.0**-23, seed) for seed in (2, 3)]
    for seed in range(4, 14):
        assert difference("x", run_of(exact, 2.0**-22, seed), run_of(exact), exact, rounded) is None


@pytest.mark.parametrize("place", [0, 1000, 2000, 4000])
def test_one_wrong_element_is_found_whatever_its_size(exact, place):
    ours = run_of(exact)
    ours.view(-1)[place] *= 1 + 1e-4
    found = difference("x", ours, run_of(exact, seed=5), exact, [run_of(exact, 2.0**-23, 2)])
    assert found is not None and (found.wrong, found.elements) == (1, 4096)
    assert f"[{place // 64}, {place % 64}]" in found.what
    assert found.times > 1


def test_an_element_that_roundings_move_may_be_off(exact):
    eager = run_of(exact)
    moved = eager.clone()
    moved[3, 3] *= 1.5
    ours = eager.clone()
    ours[3, 3] *= 1.6
    assert difference("x", ours, eager, exact, [moved]) is None
    assert difference("x", ours, eager, exact, [eager]) is not None


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_so_in_eager(number):
    eager = torch.ones(5)
    ours = eager.clone()
    ours[2] = number
    assert difference("x", ours, eager, eager.double()) is not None
    assert difference("x", ours, ours.clone(), ours.double()) is None


def test_whole_numbers_are_equal_or_those_of_a_disturbed_run():
    eager = torch.tensor([3, 4, 5])
    ours = torch.tensor([3, 4, 6])
    assert difference("x", ours, eager) is not None
    assert difference("x", ours, eager, eager, [torch.tensor([3, 4, 6])]) is None


def test_halves_may_be_off_by_few_roundings():
    exact = torch.linspace(1, 2, 256, dtype=torch.float64)
    eager = exact.bfloat16()
    assert difference("x", (exact * (1 + 2.0**-8)).bfloat16(), eager, exact) is None
    ours = eager.clone()
    ours[100] *= 1.1
    assert difference("x", ours, eager, exact) is not None


def test_types_and_shapes_are_eagers():
    eager = torch.ones(4)
    assert "float64[4] instead of float32[4]" in str(difference("x", eager.double(), eager))
    assert difference("x", torch.ones(5), eager) is not None
    assert difference("x", torch.ones(4, dtype=torch.complex64), torch.ones(4, dtype=torch.complex64)) is None
    assert difference("x", 3, 3.0) is not None
    assert difference("x", 0.1 + 1e-12, 0.1) is None
    assert difference("x", 0.1001, 0.1) is not None


def test_values_that_one_side_lacks():
    found = differences({"a": torch.ones(1), "c": 1}, Allowed({"a": torch.ones(1), "b": 1}, {}))
    assert [each.name for each in found] == ["b", "c"]
