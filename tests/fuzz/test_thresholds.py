"""Thresholds are lowered for one program, are numbers of the compiler, and change what is made of small programs."""

from __future__ import annotations

import importlib

import pytest
import torch

import lampwork
from tests.fuzz.generate import Options, generate
from tests.fuzz.report import script
from tests.fuzz.thresholds import LOWERED, as_if_large, lowered


def numbers():
    return {
        name: getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in LOWERED
    }


def test_all_are_set_back():
    before = numbers()
    assert all(before[name] not in values for name, values in LOWERED.items())
    seed = next(seed for seed in range(50) if len(lowered(seed)) == len(LOWERED))
    with pytest.raises(ZeroDivisionError), as_if_large(seed):
        assert numbers() == lowered(seed)
        raise ZeroDivisionError
    assert numbers() == before


def test_a_printed_script_has_the_sizes_while_it_runs(monkeypatch):
    before, found = numbers(), []

    def compile_eagerly(program, **options):
        found.append(numbers())
        return program

    monkeypatch.setattr(lampwork, "compile", compile_eagerly)
    seed = next(seed for seed in range(50) if len(lowered(seed)) == len(LOWERED))
    exec(compile(script(generate(seed, Options())), "script", "exec"), {})
    assert found == [lowered(seed)] and numbers() == before


def test_seeds_lower_none_or_some_or_all():
    counts = [len(lowered(seed)) for seed in range(200)]
    assert counts.count(0) > 25 and counts.count(len(LOWERED)) > 25
    assert sum(0 < count < len(LOWERED) for count in counts) > 50
    assert lowered(7) == lowered(7)


def test_small_programs_are_compiled_as_large_ones_are():
    def kernels(seed):
        with as_if_large(seed):
            compiled = lampwork.compile(
                lambda x, y: (torch.cos(x @ y) * 2, torch.exp(x).sum(1)), options={"cache": False}
            )
            x, y = torch.ones(8, 8), torch.ones(8, 8)
            torch.testing.assert_close(compiled(x, y), (torch.cos(x @ y) * 2, torch.exp(x).sum(1)))
            (entry,) = compiled.__lampwork__.entries
            return {
                (parameter.access, len(entry.artifact.program.kernels))
                for kernel in entry.artifact.program.kernels
                for parameter in kernel.parameters
            }

    plain = next(seed for seed in range(50) if not lowered(seed))
    every = next(seed for seed in range(50) if len(lowered(seed)) == len(LOWERED))
    assert not any(access == "readwrite" for access, _ in kernels(plain))
    assert any(access == "readwrite" for access, _ in kernels(every))
