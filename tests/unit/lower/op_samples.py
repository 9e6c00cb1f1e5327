"""PyTorch's own operator samples, as functions of their tensors alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

#: Samples an operator and type.
SAMPLES = 2
#: Families whose operators are all calls of ATen: their own tests are ATen's.
NOT_OURS = ("fft", "linalg.", "signal", "special.", "masked.", "sparse", "svd", "pca", "lu", "jiterator", "_refs")
UNSPECIFIED = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"}
#: A view of an input is the result; whole-program results name it as an alias, which these graphs do not.
VIEWS_OF_INPUT = {
    "broadcast_to", "broadcast_tensors", "expand", "expand_as", "meshgrid", "narrow", "diagonal", "as_strided", "unfold",
}  # fmt: skip
#: What random operators' samples seed the generator with before they draw (`wrapper_set_seed`).
SEED = 42


def operators_with_samples(ordinary: int) -> list[Any]:
    """Operators to parametrize a test with; all but `ordinary` of them, drawn with a fixed seed, are slow tests."""
    chosen = _chosen()
    drawn = {op.full_name for op in random.Random(SEED).sample(chosen, ordinary)}
    slow = (pytest.mark.slow,)
    return [pytest.param(op, id=op.full_name, marks=() if op.full_name in drawn else slow) for op in chosen]


def compare_samples(op: Any, dtypes: Sequence[torch.dtype], compare: Callable[[Sample], bool]) -> None:
    """Run `compare`, which says whether it compared anything, on samples of each type; skips where it never did."""
    compared = 0
    for dtype in dtypes:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        for raw in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES):
            compared += compare(Sample(op, raw))
    if not compared:
        pytest.skip("no sample that lowering takes")


def _chosen() -> list[Any]:
    seen, chosen = set(), []
    for op in op_db:
        name = op.name
        if op.full_name in seen or name.startswith(NOT_OURS) or name in UNSPECIFIED | VIEWS_OF_INPUT:
            continue
        seen.add(op.full_name)
        chosen.append(op)
    return chosen


class Sample:
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
