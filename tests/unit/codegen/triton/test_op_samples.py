"""PyTorch's own operator samples through the GPU schedule and Triton's interpreter: results must equal eager's.

Wrong semantics show here, without a GPU. An ordinary run takes operators drawn with a fixed seed; `make test-slow` takes the
others too.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.errors import CompileError
from lampwork.lower import lower
from lampwork.schedule import schedule
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, compare, copied, run_program
from tests.unit.lower.graphs import _flatten, functional_graph, operators
from tests.unit.lower.test_op_samples import SEED, _chosen, _Sample

pytestmark = pytest.mark.skipif(bool(available()), reason=available())

SAMPLES = 2
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
ORDINARY = 40
#: What no instruction adds to memory atomically.
NOT_ATOMIC = "no atomic addition of"


def _parameters() -> list[Any]:
    chosen = _chosen()
    ordinary = {op.full_name for op in random.Random(SEED).sample(chosen, ORDINARY)}
    slow = (pytest.mark.slow,)
    return [pytest.param(op, id=op.full_name, marks=() if op.full_name in ordinary else slow) for op in chosen]


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
        lowered = lower(graph, Settings())
    except Exception:
        return False  # tests of lowering say why
    if not operators(lowered)[0]:
        return False
    program = schedule(lowered, Settings(), TARGET)
    if not program.kernels:
        return False
    torch.manual_seed(SEED)
    try:
        found = run_program(program, [copied(tensor) for tensor in sample.tensors])
    except CompileError as error:
        assert NOT_ATOMIC in str(error)
        return False
    if any(tensor.dtype == torch.bfloat16 for tensor in sample.tensors):
        # Where eager rounds between its steps is lowering's business.
        torch.manual_seed(SEED)
        expected = interpret_lowered(lowered, sample.tensors)
    compare(found, expected)
    return True
