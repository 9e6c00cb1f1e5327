"""Partials that a program makes and hands out are made anew, attributes and all."""

from __future__ import annotations

import functools

import torch

import lampwork


def test_a_partial_that_leaves_has_its_attributes():
    def scaled(a, by):
        return a * by

    def program(x):
        named = functools.update_wrapper(functools.partial(scaled, by=2), scaled)
        named.seen = [x + 1]
        return named

    made = lampwork.compile(program, options={"cache": False}, fullgraph=True)(torch.ones(2))
    assert made.__wrapped__ is scaled and made.__name__ == "scaled" and made.seen[0].tolist() == [2.0, 2.0]
    assert list(vars(made)) == list(vars(program(torch.ones(2))))


def test_functions_that_leave_keep_their_annotations():
    """A function made in a region came out with none."""

    def program(x):
        def scaled(a: int, by: float = x) -> list:
            return [a, by]

        return x + 1, scaled

    for _ in range(2):
        (_, ours), (_, expected) = lampwork.compile(program)(torch.ones(2)), program(torch.ones(2))
        assert list(expected.__annotations__) == ["a", "by", "return"]
        assert ours.__annotations__ == expected.__annotations__
