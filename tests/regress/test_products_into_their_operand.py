"""`torch.addmm(a, x, y, out=a)`: a product that is added to an operand in that operand's memory."""

from __future__ import annotations

import pytest
import torch

import lampwork


def newton_schulz(x):
    a = torch.empty(3, 3)
    b, c = torch.empty_like(a), torch.empty_like(x)
    for beta in (2.0, -1.5, 0.5):
        torch.addmm(a, x, x.mT, beta=0.5, out=a.fill_(1.0))
        torch.addmm(a, a, a, beta=beta, alpha=0.1, out=b)
        torch.addmm(x, b, x, beta=beta, out=c)
        x, c = c, x.clone()
    return x


def into_arguments(x):
    vector, many = torch.ones(3), torch.ones(2, 3, 4)
    torch.baddbmm(many, torch.ones(2, 3, 3), x.expand(2, 3, 4), beta=0.5, out=many)
    torch.addmv(vector, x[:, :3], torch.ones(3), out=vector)
    torch.addmm(x, torch.ones(3, 3), x.clone(), out=x)
    return vector, many


@pytest.mark.parametrize("program", [newton_schulz, into_arguments])
def test_one_graph(program):
    compiled = lampwork.compile(program, fullgraph=True)
    for seed in range(2):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        one, other = x.clone(), x.clone()
        torch.testing.assert_close(compiled(one), program(other))
        torch.testing.assert_close(one, other)


def test_other_operands_are_not_read_where_they_are_written():
    def program(a, x):
        torch.addmm(x, a, x, out=x)
        return x

    compiled = lampwork.compile(program)
    a, x = torch.eye(3), torch.randn(3, 3)
    torch.testing.assert_close(compiled(a, x.clone()), program(a, x.clone()))
    assert [each.diagnostic.id for each in lampwork.stats(compiled)["breaks"]] == ["unsupported-operator"]
