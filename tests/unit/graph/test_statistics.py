"""Log-softmaxes taken apart: the same values up to rounding, and two numbers a row between forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import group_norm

from lampwork.capture.record.recorder import record
from lampwork.debug.interpret.graphs import run_functional
from lampwork.graph.functionalize import functionalize
from lampwork.graph.simplify import remove_dead
from lampwork.graph.statistics import decompose_log_softmaxes, decompose_norms


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_parts_compute_the_same(dtype, dim):
    x = torch.randn(5, 33, dtype=dtype)
    x[2] = float("-inf")
    x[3, 7] = float("nan")
    with torch.no_grad():
        functional = decompose_log_softmaxes(functionalize(record(lambda x: x.log_softmax(dim), [x])))
        functional.graph.lint()
        assert torch.ops.aten._log_softmax.default not in {node.target for node in functional.graph.nodes}
        (result,) = run_functional(functional, [x])
    torch.testing.assert_close(result, x.log_softmax(dim), equal_nan=True)


def test_half_types_stay_whole():
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    with torch.no_grad():
        functional = decompose_log_softmaxes(functionalize(record(lambda x: x.log_softmax(1), [x])))
    assert torch.ops.aten._log_softmax.default in {node.target for node in functional.graph.nodes}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_group_norm_is_computed_from_its_statistics(dtype, memory_format):
    x = (3 * torch.randn(2, 6, 5, 4, dtype=dtype) + 1).to(memory_format=memory_format)
    x[1, 4] = float("nan")
    weight, bias = (torch.randn(6, dtype=torch.float64 if dtype == torch.float64 else torch.float32) for _ in range(2))
    function = lambda x, weight=None, bias=None: group_norm(x, 3, weight, bias)
    for operands in ((weight, bias), (weight,), ()):
        expected = function(x, *operands)
        with torch.no_grad():
            functional = remove_dead(decompose_norms(functionalize(record(function, [x, *operands]))))
            functional.graph.lint()
            norms = [node for node in functional.graph.nodes if node.target is torch.ops.aten.native_group_norm.default]
            is_whole = any(user.args[1] == 0 for node in norms for user in node.users)
            assert is_whole == (dtype == torch.bfloat16 and not operands)  # statistics of half precision
            (result,) = run_functional(functional, [x, *operands])
        assert result.stride() == expected.stride() and result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, equal_nan=True)
