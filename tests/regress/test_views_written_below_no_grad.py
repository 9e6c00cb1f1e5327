"""A view that is made and written under `no_grad`, of a tensor that requires grad: PyTorch refuses to say what its
history is, which a region that is differentiated asked while it was prepared."""

from __future__ import annotations

import pytest
import torch

import lampwork


def of_a_result(x, weight):
    result = x * weight
    with torch.no_grad():
        result[0] = 0
    return result


def of_a_part(x, weight):
    result = x * weight
    with torch.no_grad():
        result.view(-1)[2:].add_(1)
        result[:2].mul_(3)
    return result * 2


def of_the_weight(x, weight):
    with torch.no_grad():
        weight.t()[0].fill_(1)
        weight.diagonal().zero_()
    return x @ weight


@pytest.mark.parametrize("program", [of_a_result, of_a_part, of_the_weight])
def test_as_eager(program):
    def outcome(run):
        weight = torch.nn.Parameter(torch.arange(1.0, 10.0).view(3, 3) / 8)
        result = run(torch.arange(1.0, 10.0).view(3, 3), weight)
        result.sum().backward()
        return result.detach(), weight.detach().clone(), weight.grad

    compiled = lampwork.compile(lambda x, weight: program(x, weight), options={"cache": False})
    torch.testing.assert_close(outcome(compiled), outcome(program))
    assert not lampwork.stats(compiled)["breaks"] and not lampwork.stats(compiled)["fallbacks"]
