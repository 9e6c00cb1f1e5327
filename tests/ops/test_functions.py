"""PyTorch's own samples of `torch.autograd.Function` and of custom operators: results and gradients."""

from __future__ import annotations

import pytest
import torch

import tests.ops  # noqa: F401  before the samples: stands in for a package that they import
from tests.ops.check import check_sample, samples
from tests.ops.gradients import check_gradient, gradient_samples

from torch.testing._internal.autograd_function_db import autograd_function_db  # isort: skip
from torch.testing._internal.custom_op_db import custom_op_db  # isort: skip

EVERY = [*autograd_function_db, *custom_op_db]


@pytest.mark.parametrize("op", EVERY, ids=lambda each: each.name)
def test_samples_do_what_eager_does(op):
    """Those that leave for numpy break the graph; what is compared is what comes out."""
    for label, function, args, kwargs in samples(op, torch.float32, 3):
        outcome = check_sample(op, function, args, kwargs)
        assert outcome.kind != "failed", f"sample {label}: {outcome}"
    for how in ("whole", "apart"):
        for label, program, args, kwargs in gradient_samples(op, torch.float32, 3):
            outcome = check_gradient(op, program, args, kwargs, how)
            assert outcome.kind != "failed", f"gradient {label}, {how}: {outcome}"
