"""What eager's GPU kernels assert, a GPU program asserts where it uses the value, without waiting for the answer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.capture import capture
from lampwork.config import make_settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.graph.prepare import prepare
from lampwork.ir.loops import Compute, Expr, Load, LoopNest
from lampwork.ir.program import Check, Extern, Lowered
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in


def lowered(function, *args) -> Lowered:
    settings = make_settings()
    with torch.no_grad(), cuda_stand_in():
        return lower(prepare(capture(function, args, {}, settings), settings), settings)


def assertions(program: Lowered) -> int:
    """How many nests assert; none asks the host, and no call of ATen is made for it."""
    assert not any(isinstance(item, (Check, Extern)) for item in program.items)

    def asserts(expr: Expr) -> bool:
        if isinstance(expr, Load):
            return any(asserts(value) for _, value in expr.indirect)
        return isinstance(expr, Compute) and (expr.op == "asserted" or any(asserts(arg) for arg in expr.args))

    nests = [item for item in program.items if isinstance(item, LoopNest)]
    return sum(asserts(nest.store.value) or any(asserts(value) for _, value in nest.store.indirect) for nest in nests)


def test_indices_are_asserted_where_they_are_used():
    tables = torch.nn.Embedding(10, 4), torch.nn.Embedding(7, 4)

    def function(i, j, x):
        return tables[0](i) + tables[1](j), x[i]

    assert assertions(lowered(function, torch.tensor([1]), torch.tensor([2]), torch.randn(5))) == 3


def test_nothing_to_assert():
    assert not assertions(lowered(lambda x: x + 1, torch.randn(3)))
    # CUDA's integer division does not look at the divisor.
    assert not assertions(lowered(lambda x, y: x // y, torch.tensor([3]), torch.tensor([2])))


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda x, i: x[i], [1, -6], [1, 6]),
        (lambda x, i: x[i], [0, 5], [-7, 5]),
        (lambda x, i: x.index_add(0, i, torch.ones_like(x)[:2]), [1, 5], [1, 6]),
        (lambda x, i: F.nll_loss(x.expand(2, 6), i), [5, -100], [6, 0]),
        (lambda x, i: F.binary_cross_entropy(i.float(), torch.ones_like(i).float()), [0, 1], [0, 2]),
    ],
)
def test_what_is_out_of_range_stops_the_program(function, good, bad):
    x = torch.randn(6)
    program = lowered(function, x, torch.tensor(good))
    assert assertions(program)
    interpret_lowered(program, [x, torch.tensor(good)])
    with pytest.raises(AssertionError, match="does not hold"):
        interpret_lowered(program, [x, torch.tensor(bad)])
