"""Tilings by measurement: the fastest is taken and remembered, and one that is refused is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lampwork.codegen.triton import tune
from lampwork.codegen.triton.tiles import candidate_tilings
from lampwork.errors import CompileError
from tests.unit.codegen.triton.programs import TARGET, program_of


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    monkeypatch.setattr(tune, "environment", replace(tune.environment, cache=True, cache_dir=str(tmp_path)))
    monkeypatch.setattr(tune, "compile_kernels", lambda sources: tuple(sources))
    return program_of(lambda x: torch.softmax(x, -1), (torch.empty(512, 1024),)).kernels[0]


def by(times):
    """A measurement that gives each form the time of its (warps, blocks), and counts how often it is asked."""

    def measure(kernel, forms):
        measure.asked += 1
        return [times(form) for form in forms]

    measure.asked = 0
    return measure


@pytest.mark.parametrize("warps", [1, 8])
def test_the_fastest_is_taken_and_remembered(kernel, warps):
    measure = by(lambda form: 1.0 + abs(form.num_warps - warps))
    (chosen,) = tune.tune([kernel], TARGET, measure)
    assert chosen.num_warps == warps
    assert tune.tune([kernel], TARGET, measure) == [chosen] and measure.asked == 1


def test_noise_decides_nothing(kernel):
    rule = candidate_tilings(kernel, TARGET)[0]
    measure = by(lambda form: 1.0 if form.num_warps == rule.num_warps else 0.99)
    assert tune.tune([kernel], TARGET, measure) == [rule]


def test_what_does_not_compile_is_left_out(kernel, monkeypatch):
    def compile_kernels(sources):
        if any(source.num_warps == 8 for source in sources):
            raise CompileError("generate", "out of resources")
        return tuple(sources)

    monkeypatch.setattr(tune, "compile_kernels", compile_kernels)
    (chosen,) = tune.tune([kernel], TARGET, by(lambda form: 1.0 / form.num_warps))
    assert chosen.num_warps == 16
    assert all(each.num_warps <= 16 for each in candidate_tilings(kernel, TARGET))


def test_candidates_are_distinct_and_begin_with_the_rule(kernel):
    found = candidate_tilings(kernel, TARGET)
    assert len(set(found)) == len(found) > 3
