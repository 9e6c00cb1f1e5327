"""Small models with the zoo's architectures: one graph, no fall-back, numbers that pass the acceptance rule."""

from __future__ import annotations

import copy

import pytest
import torch

import lampwork
from lampwork.benchmark import zoo
from lampwork.verdict.verify import compare

GRAD_MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
# Without the disk cache, so that each test captures anew.
OPTIONS = {"default": {"cache": False}, "freeze": {"cache": False, "freeze": True}}


def float64_outputs(workload):
    module = copy.deepcopy(workload.module).double()
    return module(*zoo.convert(workload.args, dtype=torch.float64))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("grad_mode", GRAD_MODES)
@pytest.mark.parametrize("name", zoo.ZOO)
def test_model(name, grad_mode, options):
    lampwork.reset()
    workload = zoo.build(name, size="tiny")
    with GRAD_MODES[grad_mode]():
        expected = workload.function(*workload.args)
        reference = float64_outputs(workload)
        compiled = lampwork.compile(workload.function, options=OPTIONS[options])
        for call in ("first", "second"):
            verdict = compare(compiled(*workload.args), expected, reference)
            assert verdict.accepted, f"{call} call: {verdict.reasons}"
            assert not verdict.notes, f"{call} call: {verdict.notes}"
    stats = lampwork.stats(compiled)
    assert list(stats["breaks"]) == []
    assert list(stats["fallbacks"]) == []
    assert stats["captures"] == stats["entries"] == 1
    assert stats["native_kernels"] > 0


@pytest.mark.parametrize("name", zoo.ZOO)
def test_new_inputs_of_the_same_shape_use_the_same_entry(name):
    lampwork.reset()
    workload = zoo.build(name, size="tiny")
    (first, *rest) = workload.args
    other = torch.randn_like(first) if first.is_floating_point() else first.flip(-1)
    with torch.no_grad():
        compiled = lampwork.compile(workload.function, options={"cache": False})
        compiled(*workload.args)
        verdict = compare(compiled(other, *rest), workload.function(other, *rest))
    assert verdict.accepted, verdict.reasons
    assert lampwork.stats(compiled)["captures"] == 1
