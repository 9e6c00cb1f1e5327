"""A small part of `python -m tests.ops.bits`, for every run of the tests."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.ops.bits import bits_apart, cases
from tests.ops.check import full_name

NAMES = """
    add sub mul div addcmul addcdiv lerp clamp where maximum pow rsqrt exp tanh nn.functional.gelu nn.functional.silu
    sum mean softmax var nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm
    nn.functional.rms_norm nn.functional.cross_entropy nn.functional.embedding nn.functional.linear
    nn.functional.conv2d nn.functional.scaled_dot_product_attention nn.functional.dropout cat index_select gather
    masked_fill nn.functional.pad.constant nn.functional.max_pool2d to
""".split()
OPERATORS = [op for op in op_db if full_name(op) in NAMES]


@pytest.mark.parametrize("op", OPERATORS, ids=full_name)
def test_operator_and_its_gradients_have_eagers_bits(op):
    for dtype in (torch.float32, torch.bfloat16):
        for label, program, args, kwargs, compiler in cases(op, dtype, 1):
            assert not bits_apart(program, args, kwargs, compiler), (dtype, label)


def test_other_bits_are_told():
    def program(x):
        return x.sum(-1)

    class Default:
        compile = staticmethod(lambda function, options: lambda x: function(x) + 1e-6 * x[..., 0])

    assert "of 3 elements" in bits_apart(program, (torch.full((3, 4), 0.3),), {}, Default)
