"""Log-softmaxes taken apart: the same values up to rounding, and two numbers a row between forward and backward."""

from __future__ import annotations

import pytest
import torch

from lampwork.capture.recorder import record
from lampwork.graph.functionalize import functionalize
from lampwork.graph.interpret import interpret_functional
from lampwork.graph.statistics import take_log_softmaxes_apart


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_parts_compute_the_same(dtype, dim):
    x = torch.randn(5, 33, dtype=dtype)
    x[2] = float("-inf")
    x[3, 7] = float("nan")
    with torch.no_grad():
        functional = take_log_softmaxes_apart(functionalize(record(lambda x: x.log_softmax(dim), [x])))
        functional.graph.lint()
        assert torch.ops.aten._log_softmax.default not in {node.target for node in functional.graph.nodes}
        (result,) = interpret_functional(functional, [x])
    torch.testing.assert_close(result, x.log_softmax(dim), equal_nan=True)


def test_half_types_stay_whole():
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    with torch.no_grad():
        functional = take_log_softmaxes_apart(functionalize(record(lambda x: x.log_softmax(1), [x])))
    assert torch.ops.aten._log_softmax.default in {node.target for node in functional.graph.nodes}
