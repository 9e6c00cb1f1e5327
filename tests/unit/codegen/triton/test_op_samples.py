"""PyTorch's own operator samples through the GPU schedule and Triton's interpreter: results must equal eager's.

Wrong semantics show here, without a GPU. An ordinary run takes operators drawn with a fixed seed; `make test-slow` takes the
others too.
"""

from __future__ import annotations

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
from tests.unit.lower.op_samples import SEED, Sample, compare_samples, operators_with_samples

pytestmark = pytest.mark.skipif(bool(available()), reason=available())

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
ORDINARY = 40
#: What no instruction adds to memory atomically.
NOT_ATOMIC = "no atomic addition of"


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
