"""The seed of the default generator and types of numpy's arrays broke the graph where a program read and returned them."""

from __future__ import annotations

import pytest
import torch

import lampwork


def seed_read(x):
    return x + 1, torch.initial_seed(), torch.rand(2)


def seed_read_between(x):
    first = torch.initial_seed()
    torch.manual_seed(5)
    noise = torch.rand(2)
    return x + noise, first, torch.initial_seed()


def seed_read_under_a_fork(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        inner = torch.initial_seed()
    return x, inner, torch.initial_seed()


@pytest.mark.parametrize("program", [seed_read, seed_read_between, seed_read_under_a_fork])
def test_seeds(program):
    compiled = lampwork.compile(program, fullgraph=program is seed_read, options={"cache": False})
    for seed in (1, 2, 1, (1 << 63) + 5):
        seen = []
        for function in (program, compiled):
            torch.manual_seed(seed)
            seen.append((str(function(torch.ones(2))), torch.initial_seed(), torch.rand(1).item()))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_types_of_arrays(dtype):
    def program(x):
        array = x.numpy()
        return array.dtype, {"type": array.dtype}

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for _ in range(2):
        found, expected = compiled(torch.ones(2).to(dtype)), program(torch.ones(2).to(dtype))
        assert found == expected and found[0] is expected[0] and found[1]["type"] is expected[0]
