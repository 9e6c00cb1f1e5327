"""PyTorch's own operator samples: each is lowered, verified and interpreted, and must equal eager.

Values, dtypes and strides are compared. Two samples an operator and type; operators that give sizes known only at run
time, sparse tensors or unspecified contents are left out below, each with its reason.

An ordinary run takes operators drawn with a fixed seed; `make test-slow` takes the others too.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.errors import CompileError
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from tests.unit.lower.graphs import _flatten, functional_graph, operators

SAMPLES = 2
DTYPES = (torch.float32, torch.int64, torch.bool)

#: Families whose operators are all calls of ATen: their own tests are ATen's.
NOT_OURS = ("fft", "linalg.", "signal", "special.", "masked.", "sparse", "svd", "pca", "lu", "jiterator", "_refs")
UNSPECIFIED = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"}
#: A view of an input is the result; whole-program results name it as an alias, which these graphs do not.
VIEWS_OF_INPUT = {
    "broadcast_to", "broadcast_tensors", "expand", "expand_as", "meshgrid", "narrow", "diagonal", "as_strided", "unfold",
}  # fmt: skip
#: How many operators an ordinary run takes.
ORDINARY = 120
#: What random operators' samples seed the generator with before they draw (`wrapper_set_seed`).
SEED = 42


def _chosen() -> list[Any]:
    seen, chosen = set(), []
    for op in op_db:
        name = op.name
        if op.full_name in seen or name.startswith(NOT_OURS) or name in UNSPECIFIED | VIEWS_OF_INPUT:
            continue
        seen.add(op.full_name)
        chosen.append(op)
    return chosen


def _parameters() -> list[Any]:
    chosen = _chosen()
    ordinary = {op.full_name for op in random.Random(SEED).sample(chosen, ORDINARY)}
    slow = (pytest.mark.slow,)
    return [pytest.param(op, id=op.full_name, marks=() if op.full_name in ordinary else slow) for op in chosen]


class _Sample:
    """A sample's tensors apart from everything else, so that a graph has them as inputs."""

    def __init__(self, op: Any, sample: Any) -> None:
        self.op, self.tensors = op, []
        self.tree = self._strip((sample.input, *sample.args))
        self.kwargs = {key: self._strip(value) for key, value in sample.kwargs.items()}

    def _strip(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return _Slot(len(self.tensors) - 1)
        if type(value) in (list, tuple):
            return type(value)(self._strip(item) for item in value)
        return value

    def _fill(self, value: Any, tensors: tuple) -> Any:
        if isinstance(value, _Slot):
            return tensors[value.index]
        if type(value) in (list, tuple):
            return type(value)(self._fill(item, tensors) for item in value)
        return value

    def __call__(self, *tensors: torch.Tensor) -> Any:
        return self.op.op(
            *self._fill(self.tree, tensors), **{key: self._fill(value, tensors) for key, value in self.kwargs.items()}
        )


class _Slot:
    def __init__(self, index: int) -> None:
        self.index = index


@pytest.mark.parametrize("op", _parameters())
def test_operator_like_eager(op):
    compared = 0
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        for raw in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES):
            compared += _compare(_Sample(op, raw))
    if not compared:
        pytest.skip("no sample that lowering takes")


def _compare(sample: _Sample) -> bool:
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
