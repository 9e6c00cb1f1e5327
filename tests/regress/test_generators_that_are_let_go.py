"""A generator that has begun is closed where the program lets go of it, and what it does then is done: also of one that a
variable holds which functions share, and across breaks. Capture kept functions that the program had made, and a break
forgot generators that nothing reads again."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Context:
    def __init__(self, said):
        self.said = said

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.said.append("left")


def walk(said):
    try:
        yield 1
        yield 2
    finally:
        said.append("closed")


def walk_inside(said):
    with Context(said):
        yield from [1, 2]


def shared(x, said):
    generator = walk(said)
    next(generator)
    called = lambda: next(generator)
    called()
    return x + 1


def shared_in_a_call(x, said):
    def inner():
        numbers = {"of": walk(said)}
        next(numbers["of"])
        return (lambda: numbers) is None

    inner()
    said.append("after")
    return x + 1


def across_a_break(x, said):
    generator = walk(said)
    next(generator)
    if x.sum() > 0.5:
        said.append("positive")
    said.append("end")
    return x + 1


def in_a_list(x, said):
    generators = [walk_inside(said)]
    next(generators[0])
    if x.sum() > 0.5:
        said.append("positive")
    said.append("end")
    return x + 1


def shared_across_a_break(x, said):
    generator = walk(said)
    next(generator)
    held = lambda: generator
    if x.sum() > 0.5:
        said.append("positive")
    said.append("end")
    return x + 1 if held is not None else x


@pytest.mark.parametrize("program", [shared, shared_in_a_call, across_a_break, in_a_list, shared_across_a_break])
def test_they_are_closed(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        ours, eager = [], []
        assert torch.equal(compiled(torch.ones(2), ours), program(torch.ones(2), eager))
        assert ours == eager
