"""CUDA graphs for symbolic sizes, on the CPU: the stand-in of `tests/graph_device.py`."""

from __future__ import annotations

import torch

from lampwork.config import make_settings
from lampwork.pipeline import compile_call
from lampwork.runtime.graphs.cuda_graphs import GraphRunner
from lampwork.runtime.graphs.sized_graphs import CALLS_BEFORE, GRAPHED_SIZES, MANY_SIZES, NUMBERS, SizedGraphs
from lampwork.runtime.launch.host import Host
from tests.graph_device import StandIn


def graphs_for(function, *args):
    with torch.no_grad():
        artifact = compile_call(function, args, {}, make_settings(dynamic=True))
    assert artifact.program.sizes
    device = StandIn()
    host = Host(artifact).call
    return SizedGraphs(
        artifact, host, lambda: GraphRunner(artifact, lambda: Host(artifact).call, "always", device)
    ), device


def double(x):
    return x.relu() * 2


def test_each_size_that_comes_up_often_has_its_own_graph():
    graphs, device = graphs_for(double, torch.randn(4, 6))
    for turn in range(12):
        for shape in ((4, 6), (9, 6)):
            x = torch.randn(*shape)
            (result,) = graphs.call([x])
            assert torch.equal(result, double(x)), turn
    account = graphs.account()
    assert account["captures"] >= 2 and account["replays"] == device.replayed > 0 and account["refused"] is None


def test_a_size_that_comes_once_runs_plainly():
    graphs, device = graphs_for(double, torch.randn(4, 6))
    for rows in range(2, 60):
        x = torch.randn(rows, 6)
        assert torch.equal(graphs.call([x])[0], double(x))
    assert device.recorded == 0 and graphs.account()["captures"] == 0


def test_graphs_are_bounded():
    graphs, _ = graphs_for(double, torch.randn(4, 6))
    for rows in range(2, 2 + 2 * GRAPHED_SIZES):
        for _ in range(CALLS_BEFORE + 4):
            x = torch.randn(rows, 6)
            assert torch.equal(graphs.call([x])[0], double(x))
    assert len(graphs._runners) == GRAPHED_SIZES and graphs.account()["refused"] is MANY_SIZES
    graphs.release()


def test_numbers_among_the_inputs_refuse():
    graphs, _ = graphs_for(lambda x, n: x * n, torch.randn(4, 6), 5)
    for n in (5, 6, 7, 5, 5, 5, 5, 5):
        assert torch.equal(graphs.call([x := torch.randn(4, 6), n])[0], x * n)
    assert graphs.account()["refused"] is NUMBERS
