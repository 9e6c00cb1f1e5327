"""Choices by measurement: the fastest is taken and remembered, and what is refused is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from lampwork.codegen.triton import tune
from lampwork.codegen.triton.tiles import candidate_tilings
from lampwork.codegen.triton.tune import Tuner
from lampwork.config import use_cache_dir
from lampwork.errors import CompileError
from tests.unit.codegen.triton.programs import TARGET, fused_program, program_of


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(tune, "environment", replace(tune.environment, cache=True))
    monkeypatch.setattr(tune, "compile_kernels", lambda sources: tuple(sources))
    with use_cache_dir(str(tmp_path)):
        yield


@pytest.fixture
def kernel():
    return program_of(lambda x: torch.softmax(x, -1), (torch.empty(512, 1024),)).kernels[0]


class Times:
    """A measurement that gives each form `times(form)` and each call `call`, and counts how often it is asked."""

    state = "some release"

    def __init__(self, times, call=1.0, whole=0.0):
        self.times, self.of_call, self.whole = times, call, whole
        self.asked = 0

    def kernels(self, kernel, forms):
        self.asked += 1
        return [self.times(form) for form in forms]

    def call(self, call):
        self.asked += 1
        return self.of_call

    def turns(self, rivals):
        self.asked += 1
        return [sum(map(self.times, forms)) + len(each.calls) * self.of_call + self.whole for each, forms in rivals]


def tuned(kernel, measure):
    (tiling,) = Tuner(TARGET, measure).tilings([kernel])
    return tiling


@pytest.mark.parametrize("warps", [1, 8])
def test_the_fastest_is_taken_and_remembered(kernel, warps):
    measure = Times(lambda form: 1.0 + abs(form.num_warps - warps))
    chosen = tuned(kernel, measure)
    assert chosen.num_warps == warps
    assert tuned(kernel, measure) == chosen and measure.asked == 1


def test_noise_decides_nothing(kernel):
    rule = candidate_tilings(kernel, TARGET)[0]
    assert tuned(kernel, Times(lambda form: 1.0 if form.num_warps == rule.num_warps else 0.99)) == rule


def test_what_does_not_compile_is_left_out(kernel, monkeypatch):
    def compile_kernels(sources):
        if any(source.num_warps == 8 for source in sources):
            raise CompileError("generate", "out of resources")
        return tuple(sources)

    monkeypatch.setattr(tune, "compile_kernels", compile_kernels)
    assert tuned(kernel, Times(lambda form: 1.0 / form.num_warps)).num_warps == 16
    assert all(each.num_warps <= 16 for each in candidate_tilings(kernel, TARGET))


def test_candidates_are_distinct_and_begin_with_the_rule(kernel):
    found = candidate_tilings(kernel, TARGET)
    assert len(set(found)) == len(found) > 3


# -- Products with what follows them ----------------------------------------------------------------------------------


def linear_gelu(measure):
    """The program of gelu(x w + b) as chosen by `measure`, and the tuner."""
    x, w, b = torch.empty(512, 256), torch.empty(1024, 256), torch.empty(1024)
    tuner = Tuner(TARGET, measure)
    return fused_program(lambda x, w, b: F.gelu(F.linear(x, w, b)), (x, w, b), choose=tuner.choose), tuner


def is_product(form):
    return form.num_stages > 1


@pytest.mark.parametrize("product, taken", [(1.9, True), (1.95, False), (2.5, False), (float("inf"), False)])
def test_the_faster_of_call_and_kernel_is_taken(product, taken):
    """An ATen call of 1 ms and a kernel of 1 ms against one kernel."""
    program, tuner = linear_gelu(Times(lambda form: product if is_product(form) else 1.0))
    assert len(program.steps) == (1 if taken else 2)
    if taken:
        (tiling,) = tuner.tilings(program.kernels)
        assert tiling.group  # on matrix units


def test_the_whole_decides():
    """What looks faster by parts, and hardly is by turns, is not taken."""
    program, _ = linear_gelu(Times(lambda form: 1.9 if is_product(form) else 1.0, whole=100.0))
    assert len(program.steps) == 2


def test_what_was_measured_is_remembered():
    measure = Times(lambda form: 0.5)
    linear_gelu(measure)
    asked = measure.asked
    assert asked == 4  # the call, its kernel, the product, and both by turns
    linear_gelu(measure)
    assert measure.asked == asked


def test_a_call_that_cannot_be_measured_stays():
    """Nothing is known of what it would be compared with."""
    program, _ = linear_gelu(Times(lambda form: 0.5 if is_product(form) else float("inf")))
    assert len(program.steps) == 2


def test_products_that_do_not_compile_stay_calls(monkeypatch):
    def compile_kernels(sources):
        if any("tl.dot" in source.source for source in sources):
            raise CompileError("generate", "out of resources")
        return tuple(sources)

    monkeypatch.setattr(tune, "compile_kernels", compile_kernels)
    program, _ = linear_gelu(Times(lambda form: 0.1))
    assert len(program.steps) == 2


def test_no_longer_than_a_limit(monkeypatch):
    monkeypatch.setattr(tune, "MOST_SECONDS", -1.0)
    measure = Times(lambda form: 0.1 if is_product(form) else 1.0)
    program, _ = linear_gelu(measure)
    assert len(program.steps) == 2


def test_time_is_counted():
    tuner = linear_gelu(Times(lambda form: 0.1))[1]
    assert tuner.choosing_seconds > 0.0
