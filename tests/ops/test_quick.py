"""A small part of the operator sweep (`make test-ops`), for every run of the tests."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.ops.check import check_sample, full_name, samples
from tests.ops.gradients import check_gradient, gradient_samples

FLOAT = """
    add sub mul div exp log sin sigmoid tanh erf relu nn.functional.gelu nn.functional.silu clamp where maximum abs neg
    rsqrt pow sum mean amax argmax prod var softmax log_softmax logsumexp cumsum nn.functional.layer_norm
    nn.functional.group_norm nn.functional.batch_norm nn.functional.rms_norm nn.functional.cross_entropy
    cat stack reshape permute transpose expand select slice squeeze unsqueeze split unbind flip roll tril
    index_select gather scatter scatter_add index_put masked_fill nn.functional.embedding
    nn.functional.pad.constant nn.functional.interpolate.nearest nn.functional.max_pool2d nn.functional.avg_pool2d
    mm bmm addmm nn.functional.linear nn.functional.conv2d nn.functional.scaled_dot_product_attention
    sort topk zeros_like full arange tril diagonal clone to nn.functional.dropout bernoulli
""".split()
OTHERS = (
    "add mul div bitwise_and eq lt where sum amax argmax cat index_select gather any all floor_divide remainder".split()
)

DIFFERENTIATED = """
    mul div exp sigmoid tanh relu nn.functional.gelu nn.functional.silu nn.functional.softplus nn.functional.glu
    nn.functional.logsigmoid nn.functional.elu nn.functional.prelu nn.functional.hardswish logit sum mean amax var
    softmax log_softmax nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm
    nn.functional.rms_norm nn.functional.cross_entropy nn.functional.nll_loss nn.functional.mse_loss
    nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.binary_cross_entropy
    nn.functional.soft_margin_loss cat select slice diagonal split index_select gather scatter_add index_add
    nn.functional.embedding nn.functional.pad.constant nn.functional.max_pool2d nn.functional.avg_pool2d
    nn.functional.interpolate.nearest unfold mm nn.functional.linear nn.functional.conv2d cumsum
    nn.functional.scaled_dot_product_attention nn.functional.dropout
""".split()
GRADIENTS = [op for op in op_db if full_name(op) in DIFFERENTIATED]

CASES = [
    (op, dtype)
    for op in op_db
    for names, dtype in (
        (FLOAT, torch.float32),
        (FLOAT[:40], torch.bfloat16),
        (OTHERS, torch.int64),
        (OTHERS, torch.bool),
    )
    if (full_name(op) in names) and dtype in op.supported_dtypes("cpu")
]


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{full_name(op)}-{str(dtype)[6:]}" for op, dtype in CASES])
def test_operator_equals_eager(op, dtype):
    for label, function, args, kwargs in samples(op, dtype, 2):
        outcome = check_sample(op, function, args, kwargs)
        # In-place operators that change the shape of the caller's own tensor run eagerly, as documented.
        allowed = ("native", "aten", "raises", *(["fallback"] if label == "in-place" else []))
        assert outcome.kind in allowed, f"sample {label}: {outcome}"


@pytest.mark.parametrize("how", ["whole", "apart"])
@pytest.mark.parametrize("op", GRADIENTS, ids=[full_name(op) for op in GRADIENTS])
def test_gradients_equal_eager(op, how):
    cases = gradient_samples(op, torch.float32, 2)
    assert cases
    for label, program, args, kwargs in cases:
        outcome = check_gradient(op, program, args, kwargs, how)
        assert outcome.kind in ("native", "aten"), f"sample {label}: {outcome}"


#: Derivatives that are kernels of our own and shall stay so.
NATIVE = """
    nn.functional.gelu nn.functional.silu nn.functional.layer_norm nn.functional.rms_norm nn.functional.cross_entropy
    softmax log_softmax nn.functional.mse_loss slice select
""".split()


@pytest.mark.parametrize("op", [op for op in GRADIENTS if full_name(op) in NATIVE], ids=full_name)
def test_gradients_are_generated(op):
    label, program, args, kwargs = gradient_samples(op, torch.float32, 2)[0]
    assert check_gradient(op, program, args, kwargs).kind == "native"
