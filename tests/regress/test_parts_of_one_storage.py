"""Inputs that are parts of one tensor and are written, wherever in its storage they begin."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.errors import CompileError


def vectors(first, second):
    first.mul_(0.5)
    second.add_(1)
    first.add_(1)


def matrices(first, second):
    first.mul_(2)
    second.view(2, 2).add_(first[0, 0])
    first.sub_(1)


@pytest.mark.parametrize("begins", [(0, 1, 4), (1, 0), (3, 3, 1)])
def test_vectors(begins):
    compiled = lampwork.compile(vectors, options={"cache": False})
    for begin in begins:
        ours, theirs = torch.arange(20.0), torch.arange(20.0)
        compiled(ours[begin : begin + 5], ours[begin + 6 : begin + 9])
        vectors(theirs[begin : begin + 5], theirs[begin + 6 : begin + 9])
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("begins", [(0, 1, 4), (1, 0)])
def test_matrices(begins):
    compiled = lampwork.compile(matrices, options={"cache": False})
    for begin in begins:
        ours, theirs = torch.arange(20.0), torch.arange(20.0)
        compiled(ours[begin : begin + 6].view(2, 3), ours[begin + 7 : begin + 11])
        matrices(theirs[begin : begin + 6].view(2, 3), theirs[begin + 7 : begin + 11])
        assert torch.equal(ours, theirs)


def test_columns_are_refused():
    def columns(first, second):
        first.mul_(2)
        second.add_(1)

    square = torch.arange(26.0)[1:].view(5, 5)
    with pytest.raises(CompileError, match="shares memory"):
        lampwork.compile(columns, options={"cache": False})(square[:, 1], square[:, 3])
    assert torch.equal(square.flatten(), torch.arange(1.0, 26.0))
