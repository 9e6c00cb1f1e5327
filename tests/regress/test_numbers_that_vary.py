"""Numbers from outside that change, where the program looks at them."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize(
    "program",
    [
        lambda x, number: (x * number, round(number, 1)),
        lambda x, number: (x * number, str(number)),
        lambda x, number: (x * number, f"{number:+.1f}"),
        lambda x, number: (x * number, number == number, number > 1),
    ],
    ids=["rounded", "text", "formatted", "compared"],
)
def test_floats_without_an_equal(program):
    """`nan` equals nothing, and zeros of both signs are equal: guards tell them apart all the same."""
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (0.5, 0.25, -0.0, 0.0, float("nan"), float("inf"), float("nan"), -0.0, 0.0):
        assert str(compiled(torch.ones(2), number)) == str(program(torch.ones(2), number))
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("program", [lambda x, n: (x + n, int(str(n))), lambda x, n: (x + n, repr(n), format(n, "b"))])
def test_text_of_integers(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (5, 8, -7, 1 << 40):
        assert str(compiled(torch.ones(2), number)) == str(program(torch.ones(2), number))


LARGE = {
    "returned": lambda x, n: (x * 2, n + 1),
    "beside floats": lambda x, n: x * (n / 4),
    "a remainder": lambda x, n: x * (n % 7),
    "a square": lambda x, n: x + n * n,
    "filled": lambda x, n: torch.full((3,), n * n),
    "made": lambda x, n: torch.tensor([n * n, 1]),
    "a factor": lambda x, n: x.long().add(1, alpha=n * n * n),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(
    "large", [(1 << 63, (1 << 63) + 1, -(1 << 63) - 7, 1 << 62), (1 << 33, 1 << 21, 1 << 20), (4 * 10**9, 3 * 10**9)]
)
def test_integers_of_64_bits_and_more(name, large):
    """The program of an entry failed for them, or its arithmetic wrapped around."""
    program = LARGE[name]
    compiled = lampwork.compile(program, options={"cache": False})
    for n in (3, 4, *large, 5):
        outcomes = []
        for run in (compiled, program):
            try:
                outcomes.append(str(run(torch.ones(3), n)))
            except (OverflowError, ValueError, RuntimeError) as error:
                outcomes.append(f"{type(error)} {error}")
        assert outcomes[0] == outcomes[1], n


def test_a_tensor_of_numbers_that_are_computed():
    """Returns of an episode, as policy gradients discount them: each call's numbers were guarded to be equal."""

    def program(x, rewards):
        later, returns = 0.0, []
        for reward in reversed(rewards):
            later = reward + 0.9 * later
            returns.insert(0, later)
        weights = torch.tensor([*returns, 1.5, 2])
        exact = torch.tensor(tuple(returns), dtype=torch.float64)
        return x * (weights - weights.mean()), exact

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for seed in range(6):
        torch.manual_seed(seed)
        x, rewards = torch.randn(6), torch.randn(4).tolist()
        torch.testing.assert_close(compiled(x, rewards), program(x, rewards))
    assert lampwork.stats(compiled)["captures"] <= 3


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: x.new_full((4,), n),
        lambda x, n: torch.nn.functional.pad(x, (1, 1, 2, 1), value=n),
        lambda x, n: torch.addmm(torch.ones(3, 3), x.t(), x, beta=n),
        lambda x, n: torch.cat([x * n, x.new_full((1, 3), n)]),
    ],
)
def test_what_is_filled_beside_a_tensor_without_elements(program):
    """Operators on such tensors were taken to compute nothing with the number."""
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (-1e30, 0.1, 0.7, 2.5):
        assert torch.equal(compiled(torch.zeros(0, 3), number), program(torch.zeros(0, 3), number))


@pytest.mark.parametrize("grad", [False, True])
def test_exponents_that_are_roots(grad):
    """Eager takes roots, which of -0 and -inf are not what powers are."""

    def program(x, exponent):
        return x**exponent

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for exponent in (1.25, 0.5, -0.5, 1.5, 2.5):
        outcomes = []
        for function in (program, compiled):
            x = torch.tensor([-0.0, -float("inf"), 2.0, -3.0], requires_grad=grad)
            result = function(x, exponent)
            if grad:
                result.backward(torch.ones(4))
            outcomes.append([*result.tolist(), *(x.grad.tolist() if grad else ())])
        assert list(map(str, outcomes[1])) == list(map(str, outcomes[0])) or exponent in (1.25, 2.5)
        torch.testing.assert_close(torch.tensor(outcomes[1]), torch.tensor(outcomes[0]), equal_nan=True)
