"""Operators of PyTorch's samples that are given the tensors to write to, beside eager: `out=` of their results' shapes.

For types that the results are not of, eager's error is the answer, where it raises one.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import lampwork
from lampwork.errors import LampworkError
from tests.sampled import one_of

#: Eager's kernels end the process under any mode that intercepts operators, or take what memory held before.
LEFT_OUT = frozenset({"_native_batch_norm_legit", "empty", "empty_like", "empty_strided", "new_empty"})
OPERATORS = [op for op in op_db if op.supports_out and not op.name.startswith("_refs") and op.name not in LEFT_OUT]


def given(results, dtype):
    return [torch.full(each.shape, 1, dtype=dtype or each.dtype) for each in results]


def answer(function, args, kwargs, out):
    torch.manual_seed(0)
    try:
        function(args, kwargs, out)
    except LampworkError:
        raise
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("op", one_of(2, OPERATORS), ids=lambda op: f"{op.name}-{op.variant_test_name}")
def test_what_is_written(op, dtype):
    if dtype not in op.supported_dtypes("cpu"):
        pytest.skip("no such kernel")
    sample = next((each for each in op.sample_inputs("cpu", dtype)), None)
    if sample is None:
        pytest.skip("no samples")
    args = (sample.input, *sample.args)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    result = op.op(*args, **sample.kwargs)
    results = result if isinstance(result, (tuple, list)) else (result,)
    if not all(isinstance(each, torch.Tensor) and each.numel() for each in results):
        pytest.skip("no tensors with elements")

    def call(args, kwargs, out):
        return op.op(*args, **kwargs, out=tuple(out) if isinstance(result, (tuple, list)) else out[0])

    compiled = lampwork.compile(call, options={"cache": False})
    for other in (None,) if len(results) > 1 else (None, torch.float16, torch.float64):
        expected, written = given(results, other), given(results, other)
        raised = answer(call, args, sample.kwargs, expected)
        assert answer(compiled, args, sample.kwargs, written) == raised
        if raised is None:
            for left, right in zip(written, expected):
                assert left.stride() == right.stride()
                torch.testing.assert_close(left, right, rtol=1e-2, atol=1e-2, equal_nan=True)
