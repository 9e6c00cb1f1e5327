"""A small part of `python -m tests.ops.mixed_values`, for every run of the tests."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.ops.check import full_name
from tests.ops.mixed_values import compare, difference

NAMES = """
    where lerp addcmul addcdiv clamp logaddexp xlogy masked_fill index_fill scatter_add addmm
    nn.functional.binary_cross_entropy_with_logits nn.functional.mse_loss nn.functional.smooth_l1_loss
    nn.functional.huber_loss nn.functional.kl_div nn.functional.binary_cross_entropy nn.functional.prelu
""".split()
OPS = [op for op in op_db if full_name(op) in NAMES]


@pytest.mark.parametrize("op", OPS, ids=full_name)
def test_one_operand_of_another_type(op):
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
