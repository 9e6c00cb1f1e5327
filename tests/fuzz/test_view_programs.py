"""Generated programs of views: eager's values, ties between results, and gradients. Programs that eager refuses are left
out: it refuses more of views than is told apart here."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.fuzz.view_programs import SHAPES, function_of, generate, observed, same


def check(seed: int) -> bool:
    """Whether eager runs the program for some shapes; fails where compiled it does something else."""
    lines = generate(seed)
    program = function_of(lines)
    compiled = lampwork.compile(program, options={"cache": False})
    runs = False
    for call, shape in enumerate(SHAPES, 1):
        try:
            expected = observed(program, call, shape)
        except (RuntimeError, IndexError):
            continue
        found = observed(compiled, call, shape)
        assert same(found, expected), "\n".join([f"seed {seed}, {shape}", *lines, str(expected), str(found)])
        runs = True
    return runs


@pytest.mark.parametrize("part", range(8))
def test_programs(part):
    with torch.random.fork_rng():
        assert sum(check(seed) for seed in range(40 * part, 40 * (part + 1))) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100))
def test_many_programs(part):
    for seed in range(1000 + 100 * part, 1000 + 100 * (part + 1)):
        check(seed)
