"""Batch norms over images of one column that lie with channels last: a layout that eager reads in two ways."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("training", [True, False])
def test_results_lie_as_eager_lays_them(training):
    norm = torch.nn.BatchNorm2d(8).train(training)
    compiled = lampwork.compile(norm, options={"cache": False})
    whole = torch.randn(2, 1, 6, 8)
    for x in (whole.transpose(1, 3), whole.transpose(1, 3).contiguous(), whole.permute(0, 3, 1, 2)):
        with torch.no_grad():
            assert compiled(x).stride() == norm(x).stride()


def test_derivatives_are_those_of_the_numbers():
    """Eager's own are wrong here (PyTorch 2.13): its backward kernel takes one of its arguments for contiguous."""
    norm = torch.nn.BatchNorm2d(8)
    x, weight = torch.randn(2, 1, 6, 8), torch.randn(2, 1, 8, 6)
    compiled = lampwork.compile(
        lambda x: norm(x.transpose(1, 3)).transpose(1, 3).mT.contiguous(), options={"cache": False}
    )
    (compiled(x) * weight).sum().backward()
    torch.testing.assert_close(norm.bias.grad, weight.sum((0, 1, 3)))
