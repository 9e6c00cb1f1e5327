"""Where contents decide that an operator raises, a program that had drawn random numbers raised itself: what the program
catches it did not catch, and what it does before the error was lost. The generator is put back, and eager makes the call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.config import environment


def of_the_draw_itself(x, index, told):
    try:
        return torch.bernoulli(x)
    except RuntimeError:
        told.append("not a probability")
        return torch.bernoulli(x.sigmoid())


def with_a_way_out(x, index, told):
    drawn = torch.rand(2)
    try:
        return torch.multinomial(x, 1), drawn
    finally:
        told.append("cleaned up")


def tried_again(x, index, told):
    noise = torch.randn(2)
    for jitter in (0.0, 1e-3, 10.0):
        try:
            return torch.linalg.cholesky(torch.diag(x) + jitter * torch.eye(2)), noise
        except torch.linalg.LinAlgError:
            told.append(jitter)
    return noise


def of_an_index(x, index, told):
    noise = F.dropout(x, 0.5)
    told.append("drawn")
    try:
        return x[index] + noise.sum()
    except IndexError:
        return noise


def of_a_target(x, index, told):
    told.append("begun")
    return F.cross_entropy(x[None], index) + torch.rand(2)


def of_its_arguments(x, index, told):
    try:
        return torch.randint(5, 2, (2,)) + x
    except RuntimeError:
        return torch.randn(2)


@pytest.mark.parametrize(
    "program", [of_the_draw_itself, with_a_way_out, tried_again, of_an_index, of_a_target, of_its_arguments]
)
def test_is_as_in_eager(program, monkeypatch):
    monkeypatch.setitem(environment.__dict__, "strict", False)  # eager succeeds where the program catches its error

    def outcomes(function):
        torch.manual_seed(3)
        found = []
        for number, place in ((0.5, 0), (-2.0, 7), (0.25, 1), (3.0, -9)):
            told: list = []
            try:
                result = function(torch.full((2,), number), torch.tensor([place]), told)
            except (RuntimeError, IndexError) as error:
                result = type(error), str(error)
            found.append((str(result), told, torch.rand(1).item()))
        return found

    assert outcomes(lampwork.compile(program, options={"cache": False})) == outcomes(program)
