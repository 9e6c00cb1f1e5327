"""Results of operands of two floating-point types have the types that kernels give them, of tensors of any size."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

LARGE = 5000
PROGRAMS = {
    # The meta kernel promotes; the kernel writes to a result of the input's type.
    "soft_margin_loss": lambda x, y: (F.soft_margin_loss(x, y), F.soft_margin_loss(y, x)),
    "soft_margin_loss of each": lambda x, y: (F.soft_margin_loss(x, y, reduction="none"),),
    # The meta kernel takes a scalar for one of no weight; eager expands it first.
    "addr": lambda x, y: (torch.addr(y[0], x[:60], x[60:150]), torch.addr(y[:60, None], x[:60], x[60:150])),
    "addr without its first operand": lambda x, y: (torch.addr(y[0], x[:60], x[60:150], beta=0),),
    "layer_norm's statistics": lambda x, y: torch.native_layer_norm(x, (LARGE,), None, y, 1e-5),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_types(name, dynamic):
    x, y = torch.randn(LARGE, dtype=torch.bfloat16), torch.randn(LARGE)
    expected = PROGRAMS[name](x, y)
    found = lampwork.compile(PROGRAMS[name], dynamic=dynamic)(x, y)
    assert [(each.dtype, each.stride()) for each in found] == [(each.dtype, each.stride()) for each in expected]
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
