"""Numbers out of tensors that a step keeps count of: norms of gradients, averages, lists of rewards."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork


def norm(x):
    total = 0.0
    for part in (x, x * 2):
        total += part.norm(2).item() ** 2
    return total**0.5


def norm_behind_a_write(x):
    x.add_(1)
    return norm(x)


def root_behind_a_write(x):
    x.mul_(2)
    return math.sqrt(x.sum().item() ** 2)


@pytest.mark.parametrize(
    "program", [norm, norm_behind_a_write, root_behind_a_write, lambda x: x.abs().sum().item() ** 1.5]
)
def test_powers_are_computed_behind_the_graph(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for scale in (1.0, 1e30, 1e38, 0.0, math.inf, math.nan):
        x = torch.randn(3) * scale
        expected, found = program(x.clone()), compiled(x.clone())
        assert type(found) is float
        assert found == pytest.approx(expected, rel=1e-6, nan_ok=True)
    stats = lampwork.stats(compiled)
    assert stats["captures"] == 1 and not stats["breaks"] and not stats["fallbacks"]


@pytest.mark.parametrize("power", [2, 0.5, -1.5])
def test_powers_that_fail_or_are_complex_are_eagers(power):
    def program(x):
        return x.sum().item() ** power

    compiled = lampwork.compile(program, options={"cache": False})
    for value in (4.0, -4.0, 0.0, 1e300):
        x = torch.tensor([value], dtype=torch.float64)
        results = []
        for each in (program, compiled):
            try:
                results.append(each(x))
            except (OverflowError, ZeroDivisionError) as error:
                results.append(type(error))
        assert results[0] == results[1]


class Meter:
    def __init__(self):
        self.value = self.average = self.total = self.count = 0

    def update(self, value, count):
        self.value = value
        self.total += value * count
        self.count += count
        self.average = self.total / self.count


def test_an_average_behind_a_write_is_not_compiled_again():
    weight, meters = torch.zeros(3), (Meter(), Meter())

    def step(meter, x):
        weight.add_(x)
        meter.update(weight.sum().item(), x.size(0))

    compiled = lampwork.compile(step, options={"cache": False})
    batches = [torch.randn(3) for _ in range(6)]
    for x in batches:
        compiled(meters[0], x)
    weight.zero_()
    for x in batches:
        step(meters[1], x)
    assert vars(meters[0]) == pytest.approx(vars(meters[1]))
    assert lampwork.stats(compiled)["captures"] == 3  # counts begin as integers


def test_floats_of_one_list_vary_together():
    def program(x, rewards):
        total = 0.0
        for reward in rewards:
            total = reward + 0.9 * total
        return x * total

    compiled = lampwork.compile(program, options={"cache": False})
    for place in range(6):
        rewards = [1.0] * 6
        rewards[place] = 0.5
        torch.testing.assert_close(compiled(torch.ones(2), rewards), program(torch.ones(2), rewards))
    assert lampwork.stats(compiled)["captures"] == 2
