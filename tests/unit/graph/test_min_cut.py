"""Cuts of small networks are as cheap as the cheapest of all cuts."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from lampwork.graph.min_cut import INFINITE, Network


def cost(edges, side):
    return sum(capacity for tail, head, capacity in edges if tail in side and head not in side)


@pytest.mark.parametrize("seed", range(60))
def test_small_networks(seed):
    choose = random.Random(seed)
    count = choose.randint(2, 7)
    nodes = range(count)
    edges = [
        (tail, head, choose.choice([0, 1, 2, 3, 5, 8, INFINITE]))
        for tail in nodes for head in nodes if tail != head and choose.random() < 0.5
    ]  # fmt: skip
    network = Network(count)
    for edge in edges:
        network.connect(*edge)
    inner = range(2, count)
    best = min(cost(edges, {0, *chosen}) for size in range(count - 1) for chosen in itertools.combinations(inner, size))
    if best >= INFINITE:
        with pytest.raises(ValueError, match="no cut"):
            network.source_side(0, 1)
        return
    side = network.source_side(0, 1)
    assert 0 in side and 1 not in side
    assert cost(edges, side) == best


def test_a_large_chain_takes_milliseconds():
    """3000 nodes in layers, each of which can be cut."""
    choose = random.Random(0)
    network = Network(6002)
    source, sink = 6000, 6001
    for node in range(3000):
        network.connect(2 * node, 2 * node + 1, choose.randint(1, 1000))
        network.connect(source, 2 * node, INFINITE if node % 10 == 0 else choose.randint(1, 1000))
        if node % 10:
            network.connect(2 * node - 1, 2 * node, INFINITE)
        if node % 3 == 0:
            network.connect(2 * node + 1, sink, INFINITE)
    start = time.perf_counter()
    network.source_side(source, sink)
    assert time.perf_counter() - start < 0.5
