"""Passes without a digest are told apart by the functions that they are, not by their names: modules of one class
share what is compiled."""

from __future__ import annotations

import torch

import lampwork


class Block(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x) + 1


def in_place_of_sin(operator):
    def replace(graph):
        for node in graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                node.target = operator
        return graph

    return replace


X = torch.linspace(-2, 2, 12)
FOUND = {torch.ops.aten.cos.default: torch.cos(X), torch.ops.aten.tanh.default: torch.tanh(X)}


def options(operator):
    return {"cache": False, "passes": {"forward": [in_place_of_sin(operator)]}}


def test_modules_of_one_class():
    ours = [(lampwork.compile(Block(), options=options(operator)), found) for operator, found in FOUND.items()]
    for compiled, found in ours:
        torch.testing.assert_close(compiled(X), found)


def test_regions_of_one_class():
    ours = []
    for operator, found in FOUND.items():
        regions = {"block": {"options": options(operator)}}
        ours.append((lampwork.compile(Stack(), regions=regions, options={"cache": False}), found + 1))
    for compiled, found in ours:
        torch.testing.assert_close(compiled(X), found)


def test_what_a_region_was_made_with_is_not_stored(tmp_path):
    stacks = lampwork.compile(Stack(), regions={"block": {"options": options(torch.ops.aten.cos.default)}})
    stacks(X)
    assert lampwork.stats(stacks)["cache"]["stored"] == 0
