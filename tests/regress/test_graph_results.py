"""Replays of CUDA graphs that were wrong or wasteful, on a stand-in for a GPU."""

from __future__ import annotations

import torch

import lampwork
from tests.graph_device import on_stand_in


def test_a_result_that_is_a_view_frees_its_capture():
    """What a result was a view of owned its memory, too: no capture was ever free again, and results were copied."""

    def flat(x):
        return (x @ x).reshape(-1)

    with on_stand_in(), torch.no_grad():
        compiled = lampwork.compile(flat, mode="reduce-overhead", options={"cache": False})
        for _ in range(8):
            x = torch.randn(6, 6)
            torch.testing.assert_close(compiled(x), flat(x))
        (found,) = lampwork.stats(compiled)["cuda_graphs"]
    assert found["captures"] == 1 and found["replays"] == 6


def test_a_leaf_behind_a_break_is_written_in_place():
    """A continuation is passed parameters as arguments; copying the graph's back was an error of autograd's."""

    def step(weight, x):
        x = x * 2
        print(end="", file=Quiet())
        with torch.no_grad():
            weight.sub_(x)
        return x

    with on_stand_in(0):
        compiled = lampwork.compile(step, mode="reduce-overhead", options={"cache": False})
        ours, theirs = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(4))
        for _ in range(4):
            x = torch.randn(4)
            torch.testing.assert_close(compiled(ours, x), step(theirs, x))
            torch.testing.assert_close(ours, theirs)
            assert ours.is_leaf and ours.grad_fn is None


class Quiet:
    def write(self, text):
        pass
