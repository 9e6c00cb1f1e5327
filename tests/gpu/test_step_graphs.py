"""CUDA graphs of whole training steps: gradients, which lie in memory that graphs share, are what eager's are for as
long as they are held."""

from __future__ import annotations

import copy
import gc

import pytest
import torch

import lampwork
from lampwork import _torch
from lampwork.benchmark.device import unused_in_graphs_bytes
from lampwork.runtime.launch.cuda import new_stream
from tests.gpu.support import Block, compiled_of

CALLS = 12


@pytest.fixture(autouse=True)
def exact():
    with _torch.exact_products():
        yield


def step_of(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("larger", [0, 1])
def test_steps_by_turns(larger, cuda, device):
    """Captured one after the other, the second in memory that the first's gradients lie in: with what other programs
    returned, all of it stays what it was."""
    rows, kept = [256, 256], []
    rows[larger] = 16384
    ours = [Block(256).to(device) for _ in range(2)]
    theirs = copy.deepcopy(ours)
    steps = [compiled_of(step_of(module), "reduce-overhead") for module in ours]
    eager = [step_of(module) for module in theirs]
    look = compiled_of(ours[1].eval(), "reduce-overhead")
    for number in range(CALLS):
        for index in range(2):
            x = torch.randn(rows[index], 256, device=device)
            close(steps[index](x), eager[index](x))
        if number >= 2:  # captured last
            with torch.no_grad():
                out = look(x)
            kept.append((out, out.clone()))
        if number in (6, 9):
            kept += [(each.grad, each.grad.clone()) for module in ours for each in module.parameters()]
        for one, other in zip(ours, theirs):
            for mine, its in zip(one.parameters(), other.parameters()):
                close(mine.grad, its.grad)
                close(mine, its)
    for compiled in steps:
        assert any(each["replays"] for each in lampwork.stats(compiled)["cuda_graphs"])
    for held, copied in kept:
        assert torch.equal(held, copied)


def test_gradients_outlive_all_graphs(device):
    module = Block(256).to(device)
    compiled = compiled_of(step_of(module), "reduce-overhead")
    for _ in range(CALLS):
        compiled(torch.randn(16384, 256, device=device))
    kept = [(each.grad, each.grad.clone()) for each in module.parameters()]
    del compiled
    lampwork.reset()
    gc.collect()
    torch.cuda.empty_cache()
    others = [torch.full((1 << 20,), 7.0, device=device) for _ in range(64)]
    for held, copied in kept:
        assert torch.equal(held, copied)
    assert all(bool((each == 7).all()) for each in others)


def test_gradients_take_no_memory_of_their_own(cuda, device):
    """Where no other graph is, a step takes as a graph what it takes plainly: what was saved has gone where gradients
    are made."""
    peaks = {}
    for mode in ("max-autotune-no-cudagraphs", "reduce-overhead"):
        layers = [each for _ in range(16) for each in (torch.nn.Linear(2048, 2048), torch.nn.GELU())]
        module = torch.nn.Sequential(*layers).to(device)
        compiled = compiled_of(step_of(module), mode)
        x = torch.randn(4096, 2048, device=device)
        gc.collect()
        torch.cuda.synchronize()
        _torch.clear_library_workspaces()
        torch.cuda.empty_cache()
        with torch.cuda.stream(torch.cuda.ExternalStream(new_stream(x.device.index))):
            before, peak = torch.cuda.memory_allocated() + unused_in_graphs_bytes(), 0
            for _ in range(CALLS):
                unused = unused_in_graphs_bytes()
                torch.cuda.reset_peak_memory_stats()
                compiled(x)
                torch.cuda.synchronize()
                peak = max(peak, torch.cuda.max_memory_allocated() + unused - before)
        peaks[mode] = peak
        gradients = sum(each.grad.nbytes for each in module.parameters())
        del module, compiled, layers, x
        lampwork.reset()
    assert peaks["reduce-overhead"] < peaks["max-autotune-no-cudagraphs"] + gradients // 2, (peaks, gradients)
