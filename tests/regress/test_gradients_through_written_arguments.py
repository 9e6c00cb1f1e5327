"""Arguments that are written from tensors that require grad: what they hold afterwards is no output of the region, and
was asked for as one where the layouts of gradients are found (`graph/replay.py`)."""

from __future__ import annotations

import pytest
import torch

import lampwork


def in_place(x, y):
    y.remainder_(x)
    return (y,)


def power(x, y):
    y **= x
    return x, y


def part(x, y):
    y[..., 0] = x[..., 0]
    return (y * 2,)


def rows(x, y):
    y[torch.tensor([0, 0])] = x[:1]
    return (x,)


def own_memory(x, y):
    part = torch.remainder(x, True)
    same = torch.allclose(part, part)
    part[..., 1:] = x[..., 1:]
    return same, part


@pytest.mark.parametrize("program", [in_place, power, part, rows, own_memory])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_gradients(program, shape):
    found = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        torch.manual_seed(3)
        leaf, written = torch.rand(shape).requires_grad_(), torch.rand(shape)
        results = [each for each in function(leaf, written) if isinstance(each, torch.Tensor)]
        sum((each * 3).sum() for each in results if each.requires_grad).backward()
        found.append([leaf.grad, written.detach(), *(each.detach() for each in results)])
    for ours, eagers in zip(found[1], found[0]):
        torch.testing.assert_close(ours, eagers)
        assert ours.stride() == eagers.stride()


def overwritten(x, y):
    z = x * 2
    y[0] = z[0]
    return z


def doubled(x, y):
    y *= 2
    return y


@pytest.mark.parametrize("program", [overwritten, doubled])
def test_the_history_of_what_is_overwritten(program):
    """It has saved the value that is overwritten. Eager runs it, and raises, where the result depends on it alone."""
    outcomes = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        leaf = torch.tensor([0.25, 0.5]).requires_grad_()
        result = function(leaf, leaf.detach().requires_grad_().exp())
        try:
            result.sum().backward()
        except RuntimeError as error:
            outcomes.append("modified by an inplace operation" in str(error))
        else:
            outcomes.append(leaf.grad.tolist())
    assert outcomes[0] == outcomes[1] == (True if program is doubled else [2.0, 2.0])
