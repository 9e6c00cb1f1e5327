"""A small part of `python -m tests.ops.modules`, for every run of the tests; all of it is slow."""

from __future__ import annotations

import pytest
import torch

from tests.ops.modules import check, module_db, samples

QUICK = """
    BatchNorm2d GroupNorm LayerNorm InstanceNorm1d Conv2d ConvTranspose1d LSTMCell Bilinear Embedding CrossEntropyLoss
    SmoothL1Loss MultiheadAttention MaxPool2d AdaptiveAvgPool2d PReLU Hardswish TripletMarginLoss
""".split()


@pytest.mark.parametrize(
    "info", [each for each in module_db if each.name.split(".")[-1] in QUICK], ids=lambda each: each.name
)
def test_modules_do_what_eager_does(info):
    for sample in samples(info, torch.float32, 1):
        outcome = check(sample)
        assert outcome.kind == "native", f"sample {sample.label}: {outcome}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("info", module_db, ids=lambda each: each.name)
def test_every_sample_does_what_eager_does(info, dtype):
    for sample in samples(info, dtype):
        outcome = check(sample)
        assert outcome.kind != "failed", f"sample {sample.label}: {outcome}"
