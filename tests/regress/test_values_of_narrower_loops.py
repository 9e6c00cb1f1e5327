"""A value of two dimensions, computed again in loops over three, was read as if its rows had no gaps: the loops of both
dimensions became one, and nobody had asked what it reads."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


def gaps(rows: int, columns: int) -> torch.Tensor:
    """Rows with two numbers between them that are no part."""
    flat = torch.full((3 + rows * (columns + 2),), torch.nan)
    made = flat.as_strided((1, 1, rows, columns), (rows * (columns + 2),) * 2 + (columns + 2, 1), 3)
    return made.copy_(torch.linspace(-1, 1, rows * columns).view(1, 1, rows, columns))


PROGRAMS = {
    "kron": lambda x, w: (torch.var(v := F.lp_pool2d(x, 2, 1), ()), torch.kron(v, w)),
    "outer": lambda x, w: ((v := (x.sin() * x.cos()).exp().sqrt()).double().var(), v.unsqueeze(-1) * w),
    "softmax": lambda x, w: ((v := (x.sin() * x.cos()).exp().sqrt()).logsumexp((2, 3)), v.unsqueeze(-1) + w),
    "mean": lambda x, w: ((v := (x.sin() * x.cos()).exp().sqrt()) - v.mean(), v.unsqueeze(-1).expand(-1, -1, -1, -1, 2) / w),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 5), (7, 33)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_with_gaps(name, shape):
    x, w = gaps(*shape), torch.tensor([-0.5, 0.75])
    compiled = lampwork.compile(PROGRAMS[name], options={"cache": False})
    torch.testing.assert_close(compiled(x, w), PROGRAMS[name](x, w))
