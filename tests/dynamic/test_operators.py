"""PyTorch's own operator samples, compiled with symbols for all sizes and numbers: eager's answer for the sample, and for
one whose first or last size doubled. The second may need another compile; it never gets a wrong answer.

Every `STRIDE`th operator; LAMPWORK_SWEEP=1 takes all (two minutes).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import lampwork
import tests.ops  # noqa: F401  before the samples: stands in for a package that they import

from torch.testing._internal.common_methods_invocations import op_db  # isort: skip

STRIDE = 1 if os.environ.get("LAMPWORK_SWEEP") else 9
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "uniform", "cauchy", "exponential", "geometric", "dropout", "rrelu",
          "fractional", "lowrank", "multi_head")  # fmt: skip
OPERATORS = [
    op
    for op in op_db
    if torch.float32 in op.supported_dtypes("cpu")
    and not any(word in op.name for word in RANDOM)
    and not op.name.startswith(("empty", "new_empty", "to_sparse"))
]


def leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(mapped(each, change) for each in value)
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in value.items()}
    return value


def doubled(size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Every dimension of that size twice as long."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        for dim, each in enumerate(tensor.shape):
            if each == size:
                tensor = torch.cat([tensor, tensor], dim)
        return tensor

    return change


def answer(function: Callable, call: Any) -> Any:
    """What eager says; the exception where it refuses."""
    args, kwargs = mapped(call, torch.clone)
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error


def agrees(compiled: Callable, call: Any, expected: Any) -> None:
    args, kwargs = mapped(call, torch.clone)
    actual = compiled(*args, **kwargs)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    for one, other in zip(leaves(actual), leaves(expected)):
        assert one.stride() == other.stride() or one.numel() < 2, (one.shape, one.stride(), other.stride())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPERATORS[::STRIDE], ids=lambda op: f"{op.name}{op.variant_test_name}")
def test_operator(op):
    def program(*args, **kwargs):
        return op.op(*args, **kwargs)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in list(op.sample_inputs("cpu", torch.float32))[:4]:
            call = mapped(((sample.input, *sample.args), sample.kwargs), torch.detach)
            tensors = list(leaves(call))
            if not tensors or any(
                type(each) is not torch.Tensor or each.layout is not torch.strided for each in tensors
            ):
                continue
            expected = answer(program, call)
            if isinstance(expected, Exception):
                continue
            shaped = [each.shape for each in tensors if each.dim()]
            for size in {shape[place] for shape in shaped[:1] for place in (0, -1)}:
                compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
                agrees(compiled, call, expected)
                larger = mapped(call, doubled(size)) if size > 1 else call
                expected_larger = answer(program, larger)
                if not isinstance(expected_larger, Exception):
                    agrees(compiled, larger, expected_larger)
