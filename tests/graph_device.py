"""A device for CUDA graphs on the CPU: it records a run by remembering it, and replays it by running it again into the
memory of the first results, as a graph does.

What a run let go of while it was captured with a shared pool is garbage behind each of its replays, and all that later
runs with that pool made is so behind a replay of the first one, unless it lies in memory that was given.

    pytest -p tests.graph_device tests/training ...      all tests there, every program by graphs at once
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
import torch

from lampwork import _torch
from lampwork.ir.program import Program
from lampwork.runtime import entry
from lampwork.runtime.graphs import cuda_graphs, training_graphs
from lampwork.runtime.graphs.cuda_capture import NotCapturable, Pool
from lampwork.runtime.graphs.result_pool import Outside
from lampwork.runtime.guards.interpreter import tensor_extent_bytes
from lampwork.runtime.launch import memory

_memory_for_inputs = cuda_graphs.memory_for_inputs


class StandIn:
    """Stands in for `CudaDevice`. `fails`: what every capture fails with. `times`: what is measured."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0
        self.current = 0
        self.times = (1.0, 1.0)
        self.fails = ""
        self.bytes = 1 << 30
        self.shared = Pool()

    def stream(self) -> int:
        return self.current

    def pool(self) -> Pool:
        return self.shared

    def is_capturing(self) -> bool:
        return False

    def holds(self, tensor: torch.Tensor) -> bool:
        return True

    def memory_bytes(self) -> int:
        return self.bytes

    def measure(self, run: Callable[[], Any]) -> tuple:
        return (*self.times, run())

    def record(
        self,
        run: Callable[[], tuple],
        workspace_bytes: int,
        pool: Any = None,
        outside: Program | None = None,
        allocated_bytes: int = 0,
        with_results_bytes: int | None = None,
    ) -> tuple[Callable[[], None], tuple]:
        if self.fails:
            raise NotCapturable("graph-failed", self.fails)
        self.recorded += 1
        if pool is not None and with_results_bytes is not None and "captures" not in vars(pool):
            outside = None
        given = Outside(outside) if outside is not None else None
        elsewhere = {_torch.storage_address(each) for each in given.memory} if given is not None else set()
        with _undone(run), torch.no_grad():
            made = run() if given is None else given.moved(run())
        garbage: Callable[[], list[Any]] = list
        if pool is not None:
            made, garbage = self._in_pool(pool, made, elsewhere)
        return self._replay(run, made, garbage), made

    def _in_pool(self, pool: Any, made: Any, elsewhere: set[int]) -> tuple[Any, Callable[[], list[Any]]]:
        """The results of the run that has just been captured, in memory of the pool, and what is garbage behind each
        of its replays."""
        blocks: dict[int, _Block] = {}
        tensors = {id(each): each for each in made if isinstance(each, torch.Tensor)}
        addresses = [_torch.storage_address(each) for each in tensors.values()]
        for key, each in tuple(tensors.items()):
            address = _torch.storage_address(each)
            owners = _torch.storage_use_count_at(address)
            lazy = each.is_conj() or each.is_neg()
            # What nobody else has is new.
            if address not in elsewhere and owners == addresses.count(address) and not lazy:
                block = blocks[address] = blocks.get(address) or _Block(each)
                tensors[key] = block.holding(each)
            elif address not in elsewhere:
                vars(pool).setdefault("others", []).append(each.detach())
        captures = vars(pool).setdefault("captures", [])
        captures.append([*blocks.values()])
        made = type(made)([tensors.get(id(each), each) for each in made])
        for block in blocks.values():
            block.memory = None  # from now on the results own it
        if len(captures) == 1:
            return made, lambda: [block for later in captures[1:] for block in later]
        freed = [block for earlier in captures[:-1] for block in earlier if block.is_free()]
        return made, lambda: freed

    def _replay(self, run: Callable, results: Any, garbage: Callable[[], list[Any]]) -> Callable[[], None]:
        places = [_place(each) for each in results]  # a graph knows addresses, and owns nothing of its results

        def replay() -> None:
            self.replayed += 1
            made = run()
            for (start, size_bytes), each in zip(places, made):
                begins, length = _place(each)
                assert length == size_bytes
                if begins != start and size_bytes:
                    ctypes.memmove(start, begins, size_bytes)
            for block in garbage():
                ctypes.memset(block.bytes.ctypes.data, 0xFF, block.bytes.nbytes)

        return replay


class _Block:
    """Memory that stays, and knows whether a tensor owns it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.bytes = numpy.zeros(tensor.untyped_storage().nbytes(), dtype=numpy.uint8)
        view = self.bytes[:]
        self._owner = weakref.ref(view)
        self.memory: torch.Tensor | None = torch.from_numpy(view)

    def holding(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self.memory is not None
        # Never through `untyped_storage()`: that Python object would be one more owner.
        memory, empty = self.memory.view(tensor.dtype), torch.empty(0, dtype=tensor.dtype)
        made = empty.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
        return made.copy_(tensor)

    def is_free(self) -> bool:
        return self._owner() is None


def _place(result: Any) -> tuple[int, int]:
    """Where a tensor begins, and its extent in bytes. (The Python object of its storage would be one more owner.)"""
    return (result.data_ptr(), tensor_extent_bytes(result)) if isinstance(result, torch.Tensor) else (0, 0)


@contextmanager
def _undone(run: Callable) -> Iterator[None]:
    """Recording a run changes nothing: what it writes to holds what it held, and the generator stands where it stood."""
    generator = torch.get_rng_state()
    cells = [cell.cell_contents for cell in run.__closure__ or ()]
    cells += [each.cell_contents for cell in cells for each in getattr(cell, "__closure__", None) or ()]
    values = [cell for cell in cells if isinstance(cell, list)]
    tensors = [each for value in values for each in value if isinstance(each, torch.Tensor)]
    copies = [tensor.detach().clone() for tensor in tensors]
    yield
    torch.set_rng_state(generator)
    for tensor, copy in zip(tensors, copies):
        tensor.data.copy_(copy)  # what is saved for a backward pass holds what it held, too


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
    patch.setattr(memory, "KEPT_LIMIT_BYTES", 0)  # programs for a GPU keep no memory of results
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
