"""Operators on lists of tensors from outside, beside a number that varies: averages of weights with a decay."""

from __future__ import annotations

import pytest
import torch

import lampwork

OPERATORS = {
    "mul": lambda a, b, d: torch._foreach_mul_(a, d),
    "add": lambda a, b, d: torch._foreach_add_(a, b, alpha=1 - d),
    "lerp": lambda a, b, d: torch._foreach_lerp_(a, b, 1 - d),
    "stack": lambda a, b, d: a[0].add_(torch.stack(b).sum(0), alpha=d),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("decay", [lambda n: (1 + n) / (10 + n), lambda n: 0.1 * n])
def test_lists_beside_a_number_that_varies(name, decay):
    def make():
        averages, weights = ([torch.arange(3.0) + each for each in range(2)] for _ in range(2))

        def program(number):
            OPERATORS[name](averages, weights, decay(number))

        return program, averages

    (program, expected), (other, found) = make(), make()
    compiled = lampwork.compile(other, options={"cache": False})
    for number in range(2, 9):
        program(number)
        compiled(number)
        torch.testing.assert_close(found, expected)
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 2 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]
