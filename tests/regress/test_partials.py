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
