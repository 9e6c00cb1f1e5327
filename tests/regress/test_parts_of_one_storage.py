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


def columns(first, second):
    first.mul_(2)
    second.add_(1)


@pytest.mark.parametrize("calls", [((0, 1, 3), (0, 0, 2), (2, 1, 3)), ((3, 1, 3), (0, 1, 3), (3, 3, 1))])
def test_columns(calls):
    compiled = lampwork.compile(columns, options={"cache": False})
    for begin, first, second in calls:
        ours, theirs = torch.arange(40.0), torch.arange(40.0)
        own, square = ours[begin : begin + 25].view(5, 5), theirs[begin : begin + 25].view(5, 5)
        compiled(own[:, first], own[:, second])
        columns(square[:, first], square[:, second])
        assert torch.equal(ours, theirs)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_parts_that_lie_elsewhere_in_later_calls():
    """Parts that do not overlap were taken to lie as far apart as in the first call, and in one storage."""
    compiled = lampwork.compile(vectors, options={"cache": False})
    for first, second in ((0, 6), (0, 7), (9, 2), (1, 12)):
        ours, theirs = torch.arange(20.0), torch.arange(20.0)
        compiled(ours[first : first + 5], ours[second : second + 3])
        vectors(theirs[first : first + 5], theirs[second : second + 3])
        assert torch.equal(ours, theirs)
    apart, other = torch.arange(5.0), torch.arange(3.0)
    compiled(apart, other)
    assert torch.equal(apart, torch.arange(5.0) * 0.5 + 1) and torch.equal(other, torch.arange(3.0) + 1)


def test_a_view_into_another_input_that_is_written():
    def program(first, second):
        beyond = first.as_strided((8,), (1,), 0)
        second.mul_(3)
        return beyond + 1

    ours, theirs = torch.arange(8.0), torch.arange(8.0)
    with pytest.raises(CompileError, match="reaches beyond"):
        lampwork.compile(program, options={"cache": False})(ours[:4], ours[4:])
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("rows", [slice(1, 2), slice(0, 2), slice(0, 3)])
def test_a_part_is_written_beside_the_whole(rows):
    """The whole was written by a kernel that read the part, whose elements another had changed by then: twice."""

    def program(whole, part):
        part.mul_(2)
        return whole * 3

    compiled = lampwork.compile(program, options={"cache": False})
    ours, theirs = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)
    assert torch.equal(compiled(ours, ours[rows]), program(theirs, theirs[rows])) and torch.equal(ours, theirs)
    apart = ours.detach()
    compiled(ours, apart), program(theirs, theirs.detach())
    assert torch.equal(ours, theirs)


def test_parts_that_overlap_in_part():
    def program(first, second, other):
        first.add_(other[:8])
        second.mul_(first.clone())

    compiled = lampwork.compile(program, options={"cache": False})
    ours, theirs, other = torch.arange(10.0), torch.arange(10.0), torch.arange(10.0) / 3
    compiled(ours[:8], ours[2:], other), program(theirs[:8], theirs[2:], other)
    torch.testing.assert_close(ours, theirs)
