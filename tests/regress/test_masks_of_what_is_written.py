"""Places where a mask is true are found once, unless what the mask was computed from was written in between."""

from __future__ import annotations

import pytest
import torch

import lampwork


def input_written(x, y):
    first = x[x > 0]
    x.neg_()
    return first, x[x > 0]


def mask_written(x, y):
    mask = x > 0
    first = x[mask]
    mask[0] = False
    second = x[mask]
    mask.logical_not_()
    return first, second, x[mask], x[x > 0]


def view_written(x, y):
    z = x * 1
    first = z[z > 0]
    z[0] = -1
    second = z[z > 0]
    flat = z.view(-1)
    flat.neg_()
    return first, second, z[z > 0], flat[flat > 0]


def written_in_a_loop(x, y):
    z, found = x.clone(), []
    for least in range(3):
        found.append(z[z > least])
        z.add_(1)
    return found


def picked_by_equal_masks(x, y):
    """Two masks, equal but not one: the backward pass looks for the second's places, whose number is the first's."""
    z = x * 2
    z[0] = 0.0
    z[z > 0] = y[z > 0]
    return (z,)


PROGRAMS = [input_written, mask_written, view_written, written_in_a_loop]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_picked(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for scale in (1.0, -2.0):
        x, y = scale * torch.tensor([1.0, -2.0, 3.0, 4.0]), torch.arange(4.0)
        torch.testing.assert_close(compiled(x.clone(), y), program(x.clone(), y))
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("program", [view_written, written_in_a_loop, picked_by_equal_masks])
def test_gradients(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for scale in (1.0, -2.0):
        found = []
        for function in (program, compiled):
            x = (scale * torch.tensor([1.0, -2.0, 3.0, 4.0])).requires_grad_()
            y = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
            sum(each.square().sum() for each in function(x, y)).backward()
            found.append((x.grad, y.grad))
        assert (found[0][1] is None) is (found[1][1] is None)
        torch.testing.assert_close(found[1][0], found[0][0])
        if found[0][1] is not None:
            torch.testing.assert_close(found[1][1], found[0][1])
    assert not lampwork.stats(compiled)["fallbacks"]
