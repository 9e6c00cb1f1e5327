"""What eager's GPU kernels assert, a GPU program asserts: once for the whole program, without waiting for the answer."""

from __future__ import annotations

import torch

from lampwork.capture.capture import capture
from lampwork.config import make_settings
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Check, Extern, Lowered
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in


def lowered(function, *args) -> Lowered:
    settings = make_settings()
    with torch.no_grad(), cuda_stand_in():
        return lower(prepare(capture(function, args, {}, settings), settings), settings)


def assertions(program: Lowered) -> list[Extern]:
    assert not any(isinstance(item, Check) for item in program.items)
    return [item for item in program.items if isinstance(item, Extern) and item.op == "aten::_assert_async.msg"]


def test_indices_are_asserted_once():
    tables = torch.nn.Embedding(10, 4), torch.nn.Embedding(7, 4)

    def function(i, j, x):
        return tables[0](i) + tables[1](j), x[i]

    (found,) = assertions(lowered(function, torch.tensor([1]), torch.tensor([2]), torch.randn(5)))
    assert "index out of range" in found.args[1] and ";" in found.args[1]


def test_nothing_to_assert():
    assert not assertions(lowered(lambda x: x + 1, torch.randn(3)))
    # CUDA's integer division does not look at the divisor.
    assert not assertions(lowered(lambda x, y: x // y, torch.tensor([3]), torch.tensor([2])))
