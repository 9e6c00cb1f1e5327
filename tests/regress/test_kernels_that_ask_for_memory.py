"""A custom operator whose kernel asks for an argument's memory by `numpy()`, where no result of it is differentiable:
eager calls it below its derivative, in no_grad mode. It failed where the argument required grad."""

from __future__ import annotations

import pytest
import torch

import lampwork


@torch.library.custom_op("lampwork_tests::signs_by_numpy", mutates_args=())
def signs(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy((x.numpy() > 0).astype("int64"))


@signs.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape, dtype=torch.int64)


@torch.library.custom_op("lampwork_tests::positive_by_numpy", mutates_args=())
def positive(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.from_numpy((parts[0].numpy() > 0).nonzero()[0])


@positive.register_fake
def _(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0].new_empty([torch.library.get_ctx().new_dynamic_size()], dtype=torch.int64)


@pytest.mark.parametrize("program", [lambda x: signs(x) + 1, lambda x: positive([x]) + 1, lambda x: x * signs(x)])
def test_an_argument_that_requires_grad(program):
    compiled = lampwork.compile(program)
    for _ in range(2):
        x = torch.randn(6, requires_grad=True)
        expected, actual = program(x), compiled(x)
        torch.testing.assert_close(actual, expected)
        if expected.requires_grad:
            torch.testing.assert_close(torch.autograd.grad(actual.sum(), x), torch.autograd.grad(expected.sum(), x))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_a_kernel_without_a_derivative_is_called_as_eager_calls_it():
    """It raises, in eager too."""
    with torch.library._scoped_library("lampwork_tests", "FRAGMENT") as library:
        library.define("memory_of(Tensor x) -> Tensor")
        library.impl("memory_of", lambda x: torch.from_numpy(x.numpy().copy()), "CPU")
        library.impl("memory_of", lambda x: torch.empty_like(x), "Meta")
        operator = torch.ops.lampwork_tests.memory_of
        x = torch.randn(3, requires_grad=True)
        for function in (operator, lampwork.compile(lambda x: operator(x))):
            with pytest.raises(RuntimeError, match="requires grad"):
                function(x)
