"""Operators as PyTorch's own graphs spell them: `torch.ops.prims` (views failed in lowering, and `as_strided`, whose schema
names a write, gave its whole argument), and `torch.ops.aten` without an overload (where the first one did not take the
arguments, the text of a tensor was asked for)."""

from __future__ import annotations

import pytest
import torch

import lampwork

prims, aten = torch.ops.prims, torch.ops.aten

PRIMS = {
    "broadcast_in_dim": lambda x: prims.broadcast_in_dim(x, [2, 3, 4], [0, 1]) * 2,
    "transpose": lambda x: prims.transpose(x, [1, 0]) + 1,
    "split_dim": lambda x: prims.split_dim(x, 0, 1) + 1,
    "squeeze": lambda x: prims.squeeze(x[None], [0]) + 1,
    "view_of": lambda x: prims.view_of(x) + 1,
    "collapse_view": lambda x: prims.collapse_view(x, 0, 1) + 1,
    "as_strided": lambda x: prims.as_strided(x, [2], [1], 0) + 1,
    "written": lambda x: (prims.transpose(x, [1, 0]).mul_(2), x)[1] * 1,
    "copy_to": lambda x: prims.copy_to(x.clone(), x * 2),
    "device_put": lambda x: prims.device_put(x, torch.device("cpu")),
    "var": lambda x: prims.var(x, [0], correction=0.0),
}
PACKETS = {
    "scatter": lambda x: aten.scatter(x, -1, torch.tensor([[0]]), torch.ones(2, 3)),
    "scatter, a number": lambda x: aten.scatter(x, -1, torch.tensor([[0]]), 2.0),
    "clamp": lambda x: aten.clamp(x, x * 2),
    "max": lambda x: aten.max(x, 1)[0],
    "pow": lambda x: aten.pow(2.0, x),
    "sum": lambda x: aten.sum(x, [0]),
}


@pytest.mark.parametrize("program", (PRIMS | PACKETS).values(), ids=(PRIMS | PACKETS).keys())
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_spelling(program):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    x, y = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    found, expected = compiled(x), program(y)
    assert found.stride() == expected.stride() and torch.equal(x, y)
    torch.testing.assert_close(found, expected)


def test_a_call_that_no_overload_takes():
    compiled = lampwork.compile(lambda x: aten.scatter(x, "x", x, x))
    with pytest.raises(RuntimeError, match="failed to match any schema"):
        compiled(torch.ones(2))
