"""Operators on constants that raise or do not, the same in every run."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.graph.constant_checks import is_known_to_fit
from lampwork.graph.functionalize import functionalize


def put(places):
    def function(x):
        made = torch.zeros(2, 3)
        made[torch.arange(2), torch.where(torch.arange(2) < 5, places, 0)] = torch.ones(2)
        return x + made.sum()

    return function


def checked(function, *arguments):
    graph = functionalize(capture(function, arguments, {}, Settings())).graph
    return [is_known_to_fit(node) for node in graph.nodes if "index_put" in str(node.target)]


def test_what_was_run_on_constants_is_known():
    assert checked(put(2), torch.ones(3)) == [True]
    assert checked(put(3), torch.ones(3)) == [False]


def test_what_is_not_constant_is_not():
    def function(x, index):
        made = torch.zeros(2, 3)
        made[torch.arange(2), index] = 1.0
        return x + made.sum()

    assert checked(function, torch.ones(3), torch.tensor([0, 2])) == [False]


@pytest.mark.parametrize("place", [2, 3])
def test_like_eager(place):
    function, x = put(place), torch.ones(3)
    compiled = lampwork.compile(function, options={"cache": False})
    for each in (function, compiled):
        if place == 2:
            assert torch.equal(each(x), x + 2)
        else:
            with pytest.raises(IndexError):
                each(x)
