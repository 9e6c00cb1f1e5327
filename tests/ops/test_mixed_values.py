"""A small part of `python -m tests.ops.mixed_values`, for every run of the tests."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.ops import mixed_values
from tests.ops.check import full_name
from tests.ops.mixed_values import compare, difference

NAMES = """
    add mul div pow maximum where lerp addcmul addcdiv clamp atan2 copysign logaddexp xlogy cat masked_fill index_fill
    index_add scatter_add addmm baddbmm nn.functional.binary_cross_entropy_with_logits nn.functional.mse_loss
    nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.l1_loss nn.functional.kl_div
    nn.functional.binary_cross_entropy nn.functional.prelu nn.functional.cross_entropy
""".split()
OPS = [op for op in op_db if full_name(op) in NAMES]


@pytest.mark.parametrize("op", OPS, ids=full_name)
def test_one_operand_of_another_type(op, monkeypatch):
    monkeypatch.setattr(mixed_values, "SAMPLES", 1)
    calls, others = compare(op)
    assert calls and not others


def test_a_wrong_number_is_found():
    values = torch.tensor([1.0, float("inf"), float("nan")])
    assert not difference([values], [values.clone()])
    for place, other in ((0, float("inf")), (0, float("nan")), (1, 3e38), (1, -float("inf")), (2, 0.0)):
        changed = values.clone()
        changed[place] = other
        assert difference([changed], [values])
    assert difference(RuntimeError(""), [values]) and difference([values], RuntimeError(""))
    assert difference([values.double()], [values])
