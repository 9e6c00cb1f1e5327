"""Losses and pieces of tensors without elements, and their derivatives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


def same(program, *inputs):
    compiled = lampwork.compile(program, options={"cache": False})
    seen = []
    for function in (program, compiled):
        given = [each.clone().requires_grad_() if each.is_floating_point() else each for each in inputs]
        result = function(*given)
        try:
            result.backward(torch.ones_like(result))
        except RuntimeError as error:  # before PyTorch 2.12 for types that differ
            seen.append([str(error), []])
            continue
        seen.append([str(result.tolist()), [each.grad for each in given if each.requires_grad]])
    assert seen[0][0] == seen[1][0]
    for one, other in zip(seen[0][1], seen[1][1], strict=True):
        torch.testing.assert_close(other, one)
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss])
def test_losses(loss):
    """PyTorch's decompositions of their derivatives divide by the number of elements, in Python."""
    same(loss, torch.zeros(2, 0, 3), torch.zeros(2, 0, 3))


def test_a_loss_between_types():
    same(lambda x, y: F.mse_loss(torch.frexp(x)[0], y), torch.zeros(2, 0, 8), torch.tensor(True))


def test_pieces_of_nothing():
    """The second column of no rows begins behind the memory that there is."""
    same(lambda x: x % torch.combinations(x), torch.tensor([-0.5]))
    same(lambda x: torch.combinations(x, 3) * 2, torch.tensor([-0.5]))
