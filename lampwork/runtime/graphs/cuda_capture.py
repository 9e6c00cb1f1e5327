"""Captures runs into CUDA graphs: what the rules of `cuda_graphs.py` and `training_graphs.py` need of a device.

What a graph uses in passing is written at each of its replays. So memory that another graph hands out, or keeps, must
never lie there, whichever of the two was captured first. Where a graph's results have memory from outside
(`result_pool.py`) nothing in its pool outlives a replay, and all captures of a stream have one pool, as their replays
are in order. The first of them may leave its results there: captures after it find that memory taken.
Where ATen makes large results by itself, or sizes are symbolic, the capture has a pool of its own. Small buffers, and
there the large ones, too, are planned memory in any case, one workspace for all captures of a stream.

A forward pass and the backward pass after it share a pool (`Pool`): nobody else gets memory of theirs, and they are
replayed by turns.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from lampwork import _torch
from lampwork.errors import Diagnostic
from lampwork.ir.program import Program
from lampwork.runtime.graphs.result_pool import Outside
from lampwork.runtime.launch.arenas import capturing_with
from lampwork.runtime.launch.cublas_workspaces import LibraryWorkspaces, own_graphs
from lampwork.runtime.launch.cuda import new_stream
from lampwork.runtime.launch.memory import SLACK_BYTES, new_workspace
from lampwork.runtime.launch.randomness import captured_draws

#: Keys that the random numbers of one graph are drawn from, at most.
KEYS = 1024


T = TypeVar("T")


class NotCapturable(Exception):
    """Why a program cannot be a graph, for its user."""

    def __init__(self, id: str, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.diagnostic = Diagnostic(id, reason, remedy=remedy)


#: A pool is one block where captures need so much.
ONE_BLOCK_BYTES = 64 << 20


class Pool:
    """Memory for captures that nothing outlives a replay of, but for what the first returns: all captures of a stream
    have one (`CudaDevice.pool`).

    Or memory of captures that are replayed by turns, in the order in which they were made, so that the later ones find
    what the first left. What is let go of while one of them is captured is the next allocation's, as in a plain run. It
    stays there until all captures are gone, and so does what `_torch.lent` gives of it.
    """

    def __init__(self) -> None:
        #: torch's name for it, from the first capture on.
        self.handle: Any = None
        #: What captures have needed, at most.
        self.size_bytes = 0

    def begin(self, index: int, size_bytes: int) -> bool:
        """Before a capture that allocates so much at its peak on the current stream, and on none else: makes it one
        block, which torch's allocator cuts up. Left alone, it gets what comes first in pieces that later ones do not
        fit into: a step of ResNet-50 that needs 2.5 GiB took 3.0.

        True where `_torch.release_pool` is to follow once a graph has the pool. What does not fit lies elsewhere, as
        where there is no memory for one block, or most of it is there from smaller captures.
        """
        if self.handle is None:
            self.handle, self.size_bytes = torch.cuda.graph_pool_handle(), 0
        there, self.size_bytes = self.size_bytes, max(size_bytes, self.size_bytes)
        if size_bytes < max(ONE_BLOCK_BYTES, 2 * there) or torch.cuda.get_allocator_backend() != "native":
            return False
        torch.cuda.empty_cache()  # plain runs, whose place the graph takes, have left as much
        with _torch.allocating_from(index, self.handle), torch.inference_mode(False):
            try:
                torch.empty(size_bytes, dtype=torch.uint8, device=f"cuda:{index}")
            except torch.OutOfMemoryError:
                pass
        return True


class CudaDevice:
    """One CUDA device. `cuda_device` gives the one of the process, whose captures share workspaces."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._workspaces: dict[int, SharedWorkspace] = {}
        self._pools: weakref.WeakValueDictionary[int, Pool] = weakref.WeakValueDictionary()
        self._sides: dict[int, torch.cuda.Stream] = {}
        self._lock = threading.Lock()
        self._libraries = LibraryWorkspaces(index)

    def stream(self) -> int:
        return torch.cuda.current_stream(self.index).cuda_stream

    def pool(self) -> Pool:
        """For captures on the current stream whose results lie elsewhere; while there are any, all get the same."""
        with self._lock:
            return self._pools.setdefault(self.stream(), Pool())

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cuda" and tensor.device.index == self.index

    def memory_bytes(self) -> int:
        """All memory of the device."""
        return torch.cuda.get_device_properties(self.index).total_memory

    def measure(self, run: Callable[[], T]) -> tuple[float, float, T]:
        """Seconds the host needs to issue `run`, seconds the device needs for it, its results. Waits for the device."""
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.current_stream(self.index).synchronize()
        start = time.perf_counter()
        before.record()
        results = run()
        after.record()
        host = time.perf_counter() - start
        after.synchronize()
        # An event is recorded when the device gets there: while it waits for the host, its time is the host's.
        return host, before.elapsed_time(after) / 1e3, results

    def record(
        self,
        run: Callable[[], Any],
        workspace_bytes: int,
        pool: Pool | None = None,
        outside: Program | None = None,
        allocated_bytes: int = 0,
        with_results_bytes: int | None = None,
    ) -> tuple[Callable[[], None], Any]:
        """`run` captured: what replays it on the current stream, and what it returned. Raises `NotCapturable`.

        `workspace_bytes`: what the run takes of planned memory. With a `pool`, that is the program's lease alone; its
        large buffers are the pool's, `allocated_bytes` at most at once. `outside`: the results are this program's and
        lie outside the pool (`Outside`), unless `with_results_bytes` says what is allocated at once with them, and the
        pool is new.
        """
        graph = torch.cuda.CUDAGraph()
        own_graphs.add(graph)
        with self._lock:  # a workspace is made for one capture at a time
            stream = self.stream()
            side = self._side(stream)
            shared = self._workspaces.setdefault(stream, SharedWorkspace())
            torch.cuda.synchronize(self.index)
            try:
                workspace = shared.at_least(workspace_bytes, f"cuda:{self.index}")
                if pool is not None and pool.handle is None and with_results_bytes is not None:
                    outside, allocated_bytes = None, with_results_bytes
                memory = Outside(outside) if outside is not None else None
                with torch.inference_mode(False):
                    keys = torch.empty(KEYS, dtype=torch.int64, device=f"cuda:{self.index}")
                with torch.cuda.stream(side):
                    self._libraries.provide(side)
                    begun = pool is not None and pool.begin(self.index, allocated_bytes)
                    handle = (pool.handle,) if pool is not None else ()
                    try:
                        graph.capture_begin(*handle, capture_error_mode="thread_local")
                    finally:
                        if begun:
                            _torch.release_pool(self.index, *handle)
                    try:
                        given = memory.storages if memory is not None else None
                        with captured_draws(keys) as draws, capturing_with(workspace, pool is None, given):
                            results = run() if memory is None else memory.moved(run())
                    finally:
                        graph.capture_end()
            except Exception as error:
                self._forget_capture()
                if pool is not None:
                    pool.handle = None  # torch forgets a pool that no graph has
                cause = error.__cause__ or error
                reason = f"capture failed: {type(cause).__name__}: {cause}".splitlines()[0]
                raise NotCapturable("graph-failed", reason) from error

        def replay(kept: Any = (workspace, pool)) -> None:  # which live as long as the graph
            if draws:
                draws.before_replay()
            graph.replay()

        return replay, results

    def _side(self, stream: int) -> torch.cuda.Stream:
        """The stream that graphs for `stream` are captured on: libraries have a workspace for each stream, and graphs
        that are replayed on two streams must not share one (see `cublas_workspaces.py`). Nobody else calls anything
        there: torch hands the streams that it has made out again after a while."""
        side = self._sides.get(stream)
        if side is None:
            side = self._sides[stream] = torch.cuda.ExternalStream(new_stream(self.index), self.index)
        return side

    def _forget_capture(self) -> None:
        """A capture that failed half-way leaves the generator's state with it, and the next draw would fail."""
        generator = torch.cuda.default_generators[self.index]
        try:
            generator.graphsafe_set_state(generator.clone_state())
        except Exception:  # nothing was left behind
            pass


class SharedWorkspace:
    """The workspace of a stream's captures: the newest one's, which has served all that needed no more.

    A larger one takes its place; captures that were made with the old one keep that alive.
    """

    def __init__(self) -> None:
        self._memory: weakref.ref[torch.Tensor] | None = None

    def at_least(self, size_bytes: int, device: str) -> torch.Tensor:
        memory = self._memory() if self._memory is not None else None
        if memory is None or memory.numel() < size_bytes + SLACK_BYTES:
            memory = new_workspace(size_bytes, device)
            self._memory = weakref.ref(memory)
        return memory


@functools.cache
def cuda_device(index: int) -> CudaDevice:
    """The device's captures in this process."""
    return CudaDevice(index)
