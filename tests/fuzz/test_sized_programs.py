"""Generated programs compiled once for many sizes: eager's results, effects and refusals at each of them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lampwork
from tests.dynamic.support import compare
from tests.fuzz.sized_programs import TYPICAL, SizedProgram, generate

SEEDS = range(16)
MORE_SEEDS = range(100, 400)
SIZES = ((5, 6), (7, 9), (1, 6), (2, 3), (0, 5), (6, 1), (4, 4), (9, 0), (13, 8), (1, 1))


def outcome(function: Any, inputs: list[torch.Tensor]) -> Any:
    """What a call returns; the class of what it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return function(*inputs)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        if type(error).__module__.startswith("lampwork"):
            raise
        return type(error)


def check(program: SizedProgram, sizes: Any, dynamic: bool | None) -> dict[str, Any]:
    """Every call gives what eager gives; returns the statistics."""
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False, "recompile_limit": 64})
    with torch.no_grad():
        for n, m in sizes:
            mine, theirs = program.make_inputs(n, m), program.make_inputs(n, m)
            expected = outcome(program, theirs)
            found = outcome(compiled, mine)
            try:
                compare(found, expected, rtol=1e-4, atol=1e-4)  # single precision, made double on the way
                if not isinstance(expected, type):
                    compare(mine, theirs)
            except AssertionError as error:
                raise AssertionError(f"{program}\nat {(n, m)} after {sizes}: {error}") from None
    return dict(lampwork.stats(compiled))


@pytest.mark.parametrize("seed", SEEDS)
def test_symbols_from_the_first_call(seed):
    check(generate(seed), SIZES, dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_programs(seed):
    check(generate(seed), SIZES, dynamic=[True, None][seed % 2])


@given(
    seed=st.integers(0, 100_000),
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    dynamic=st.sampled_from([None, True]),
)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_sizes_in_any_order(seed, sizes, dynamic):
    check(generate(seed, length=6), [TYPICAL, *sizes], dynamic)
