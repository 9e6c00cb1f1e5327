"""Clocks and memory of a GPU, with stand-ins for what PyTorch says of one."""

from __future__ import annotations

import pytest
import torch

from lampwork.benchmark import device


class Gpu:
    """Counts calls; each costs 2 ms between two events."""

    def __init__(self):
        self.calls = self.waits = 0

    def call(self):
        self.calls += 1

    def event(self, enable_timing):
        assert enable_timing
        gpu = self

        class Event:
            def record(self):
                self.at = gpu.calls

            def elapsed_time(self, end):
                return 2.0 * (end.at - self.at)

        return Event()

    def synchronize(self):
        self.waits += 1


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    return gpu


def test_a_sample_is_a_row_of_calls_between_two_synchronisations(gpu):
    wall, events = device.sample(gpu.call, 5, "cuda")
    assert (gpu.calls, gpu.waits) == (5, 2)
    assert events == 2.0 and 0 < wall < 1


def test_candidates_take_turns(gpu):
    timings = device.measure_in_turns({"a": gpu.call, "b": gpu.call}, "cuda", seconds=0.01, min_rounds=4, calls=3)
    assert set(timings) == {"a", "b"}
    assert timings["a"].device.median_ms == 2.0 and timings["a"].device.rounds >= 4
    assert timings["a"].as_dict()["calls"] == 3


def test_a_cpu_has_no_events_and_no_memory_of_its_own():
    timing = device.measure_in_turns({"a": lambda: None}, "cpu", seconds=0.01, min_rounds=2, calls=10)["a"]
    assert timing.device is None and timing.as_dict()["device"] is None and timing.wall.median_ms >= 0
    assert device.peak_mib(lambda: None, "cpu") is None
    assert device.reserved_mib("cpu") is None
    assert device.kernel_profile(lambda: None, "cpu") is None
    assert device.describe("cpu") == {}
    assert device.measure_in_turns({}, "cpu") == {}


def test_peak_memory(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    segments = [
        {"segment_pool_id": pool, "total_size": 4 * 2**20, "allocated_size": 2**20} for pool in ((0, 0), (0, 1), (1, 0))
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", list)
    assert device.peak_mib(gpu.call, "cuda", calls=4) == 3.0
    assert gpu.calls == 4
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert device.peak_mib(gpu.call, "cuda", calls=4) == 9.0  # what graphs keep is in use
