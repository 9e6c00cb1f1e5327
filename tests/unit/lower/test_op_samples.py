"""PyTorch's own operator samples: each is lowered, verified and interpreted, and must equal eager.

Values, dtypes and strides are compared. Two samples an operator and type; operators that give sizes known only at run
time, sparse tensors or unspecified contents are left out below, each with its reason.

An ordinary run takes operators drawn with a fixed seed; `make test-slow` takes the others too.
"""

from __future__ import annotations

import pytest
import torch

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.errors import CompileError
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from tests.unit.lower.graphs import _flatten, functional_graph, operators
from tests.unit.lower.op_samples import SEED, Sample, compare_samples, operators_with_samples

DTYPES = (torch.float32, torch.int64, torch.bool)

#: How many operators an ordinary run takes.
ORDINARY = 120


@pytest.mark.parametrize("op", operators_with_samples(ORDINARY))
def test_operator_like_eager(op):
    compare_samples(op, DTYPES, _compare)


def _compare(sample: Sample) -> bool:
    if not sample.tensors:
        return False
    try:
        torch.manual_seed(SEED)
        with torch.no_grad():
            expected = _flatten(sample(*[tensor.clone() for tensor in sample.tensors]))
        graph = functional_graph(sample, sample.tensors)
    except Exception:
        return False  # eager refuses it, or PyTorch's tracer does: nothing for lowering to be compared with
    if any(not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)) for node in graph.graph.nodes
           if node.op == "call_function" and node.users):  # fmt: skip
        return False
    try:
        lowered = lower(graph, Settings())
    except CompileError as error:
        assert "symbolic size" in str(error)
        return False
    verify_lowered(lowered)
    if not operators(lowered)[0]:
        return False
    torch.manual_seed(SEED)
    found = interpret_lowered(lowered, sample.tensors)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.numel() and not any(s == 0 for s in theirs.stride()):
            wide = [k for k, n in enumerate(theirs.shape) if n > 1]
            assert [ours.stride(k) for k in wide] == [theirs.stride(k) for k in wide]
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    return True
