"""A device for CUDA graphs on the CPU: it records a run by remembering it, and replays it by running it again into the
memory of the first results, as a graph does.

    pytest -p tests.graph_device tests/training ...      all tests there, every program by graphs at once
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from lampwork.runtime import cuda_graphs, entry, training_graphs
from lampwork.runtime.cuda_capture import NotCapturable
from lampwork.runtime.reading import tensor_extent_bytes

_memory_for_inputs = cuda_graphs.memory_for_inputs


class StandIn:
    """Stands in for `CudaDevice`. `fails`: what every capture fails with. `times`: what is measured."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0
        self.current = 0
        self.times = (1.0, 1.0)
        self.fails = ""
        self.bytes = 1 << 30

    def stream(self) -> int:
        return self.current

    def is_capturing(self) -> bool:
        return False

    def holds(self, tensor: torch.Tensor) -> bool:
        return True

    def memory_bytes(self) -> int:
        return self.bytes

    def measure(self, run: Callable[[], Any]) -> tuple:
        return (*self.times, run())

    def record(self, run: Callable[[], tuple], workspace_bytes: int) -> tuple[Callable[[], None], tuple]:
        if self.fails:
            raise NotCapturable("graph-failed", self.fails)
        self.recorded += 1
        with _undone(run), torch.no_grad():
            results = run()

        places = [_place(each) for each in results]  # a graph knows addresses, and owns nothing of its results

        def replay() -> None:
            self.replayed += 1
            made = run()
            for (start, size_bytes), each in zip(places, made):
                begins, length = _place(each)
                assert length == size_bytes
                if begins != start and size_bytes:
                    ctypes.memmove(start, begins, size_bytes)

        return replay, results


def _place(result: Any) -> tuple[int, int]:
    """Where a tensor begins, and its extent in bytes. (The Python object of its storage would be one more owner.)"""
    return (result.data_ptr(), tensor_extent_bytes(result)) if isinstance(result, torch.Tensor) else (0, 0)


@contextmanager
def _undone(run: Callable) -> Iterator[None]:
    """Recording a run changes nothing: what it writes to holds what it held, and the generator stands where it stood."""
    generator = torch.get_rng_state()
    values = [cell.cell_contents for cell in run.__closure__ or () if isinstance(cell.cell_contents, list)]
    tensors = [each for value in values for each in value if isinstance(each, torch.Tensor)]
    copies = [tensor.detach().clone() for tensor in tensors]
    versions = [tensor._version for tensor in tensors]
    yield
    torch.set_rng_state(generator)
    for tensor, copy, version in zip(tensors, copies, versions):
        if tensor._version != version:
            with torch.no_grad():
                tensor.copy_(copy)


def _filled(artifact: Any, values: Any, *more: Any) -> dict[int, torch.Tensor]:
    """As `memory_for_inputs`: recording runs here, on indices that must be some."""
    made = _memory_for_inputs(artifact, values, *more)
    with torch.no_grad():
        return {index: memory.copy_(values[index]) for index, memory in made.items()}


@contextmanager
def on_stand_in(plain_calls: int = cuda_graphs.PLAIN_CALLS, always: bool = False) -> Iterator[StandIn]:
    """Meanwhile programs for the CPU have graphs where those for a GPU have them; `always`: in every mode."""
    device = StandIn()
    patch = pytest.MonkeyPatch()
    patch.setattr(entry, "graph_device", lambda name: device)
    for module in (cuda_graphs, training_graphs):
        patch.setattr(module, "PLAIN_CALLS", plain_calls)
        patch.setattr(module, "memory_for_inputs", _filled)
    if always:
        patch.setattr(entry, "GRAPHS", dict.fromkeys((*entry.GRAPHS, "max-autotune-no-cudagraphs"), "always"))
    try:
        yield device
    finally:
        patch.undo()


def pytest_runtest_setup(item: Any) -> None:
    """As a plugin: every test of the run."""
    item.stand_in = on_stand_in(0, always=True)
    item.stand_in.__enter__()


def pytest_runtest_teardown(item: Any) -> None:
    item.stand_in.__exit__(None, None, None)
