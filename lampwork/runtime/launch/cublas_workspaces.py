"""cuBLAS's workspaces under captured graphs: memory that nobody else ever gets, the same for all graphs of a stream.

ATen gives cuBLAS a workspace for each thread and stream that it is called on, 33 MiB on an H100, and keeps it in a map.
A graph has its address for good, so it must not become anybody else's: neither when the map is cleared (PyTorch's own
CUDA graphs do that around a capture), nor when a graph that owned it dies. So before a capture cuBLAS is called once
on the capture's stream while what this thread allocates comes from a pool of that stream's (`provide`), from which
nothing else is ever allocated.

    stream 7    pool of its captures' stream    one workspace: a step's graph, or a forward pass's on the main thread
                                                and the backward pass's on autograd's, by turns in the same place
    eager       the caching allocator           one for each thread, which goes when a graph is captured

Graphs of one stream are replayed in order, so one workspace is enough for all of them, whatever thread captured them;
and where a graph takes the place of plain calls, theirs lie idle. Both takes clearing the map, which is done where
nobody else can be using what is in it (`clear_unused`).
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from lampwork import _torch, collector

#: Where threads of the standard library wait: (module, function).
_WAITING = (
    ("threading", "Condition.wait"),
    ("threading", "Thread._wait_for_tstate_lock"),
    ("selectors", "EpollSelector.select"),
    ("selectors", "PollSelector.select"),
    ("selectors", "SelectSelector.select"),
    ("concurrent.futures.thread", "_worker"),
    ("multiprocessing.connection", "Connection._recv"),
)
#: After clearing, other threads that have gone on meanwhile get so long to launch what they were about to.
_SETTLING_MILLISECONDS = 20


class LibraryWorkspaces:
    """The workspaces that captures of one device have. Calls are one at a time."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._pools: dict[torch.cuda.Stream, Any] = {}

    def provide(self, side: torch.cuda.Stream) -> None:
        """Before a capture on `side`, which is current: cuBLAS has its workspace for this thread there."""
        clear_unused(self._index)
        if torch.cuda.get_allocator_backend() != "native":  # which alone has pools
            self._call()
        else:
            pool = self._pools.get(side)
            if pool is None:
                pool = self._pools[side] = torch.cuda.graph_pool_handle()
            with _torch.allocating_from(self._index, pool):
                self._call()
        side.synchronize()

    def _call(self) -> None:
        """By both roads, which have a workspace each: cuBLAS's own, and that of cuBLASLt."""
        with torch.inference_mode(False), _torch.below_autograd():
            square = torch.zeros((16, 16), device=f"cuda:{self._index}")
            torch.addmm(square[0], torch.mm(square, square), square)


# Whether clearing takes nothing from anybody --------------------------------------------------------------------------

#: Graphs that were captured here, whose workspaces stay theirs.
own_graphs: weakref.WeakSet[Any] = weakref.WeakSet()


def clear_unused(index: int) -> bool:
    """Takes all workspaces from ATen's map if no other thread can be in a call of cuBLAS, and no graph but our own has
    one from there. Whether it did.

    A thread between ATen's look into the map and the launch would write to memory that another tensor may have by then.
    """
    if not (other_threads_wait() and _is_only_device(index) and not graphs_of_others()):
        return False
    if not other_threads_wait():  # finding graphs takes a while
        return False
    _torch.clear_library_workspaces()
    # Who got the interpreter's lock between answer and deed launches before any memory is given out again.
    for _ in range(_SETTLING_MILLISECONDS):
        if other_threads_wait():
            break
        time.sleep(1e-3)
    return True


def graphs_of_others() -> bool:
    """Whether the process may have CUDA graphs that were not captured here: a workspace is in the pool of the first one
    that needed it, or in nobody's, and later ones have it, too."""
    if collector.may_hide_graphs():
        return True
    kinds: list[Any] = [torch.cuda.CUDAGraph]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return any(isinstance(each, kinds[0]) and each not in own_graphs for each in gc.get_referrers(*kinds))


def other_threads_wait() -> bool:
    """Whether every other thread with Python on its stack waits in the standard library, or for this one to get on
    with a backward pass. (They cannot go on before they get the interpreter's lock, which this thread has.)"""
    # The engine has one thread for a device: what it has to do for others comes after this.
    waiting = _waiting()
    if _torch.is_in_backward() and not any(frame.f_code is _engine() for frame in _stack(sys._getframe())):
        waiting = waiting | {_engine()}
    this = threading.get_ident()
    return all(frame.f_code in waiting for thread, frame in sys._current_frames().items() if thread != this)


def _is_only_device(index: int) -> bool:
    """Whether nothing is allocated on other devices, whose threads of the autograd engine have no Python to be seen."""
    others = (other for other in range(torch.cuda.device_count()) if other != index)
    return not any(torch.cuda.memory_allocated(other) for other in others)


def _engine() -> CodeType:
    return _torch.run_backward.__code__


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _waiting() -> frozenset[CodeType]:
    return _codes(tuple(module for module, _ in _WAITING if module in sys.modules))


@functools.cache
def _codes(loaded: tuple[str, ...]) -> frozenset[CodeType]:
    """The code of those functions whose modules are loaded: nobody waits in others."""
    found = set()
    for module, name in _WAITING:
        function: Any = sys.modules[module] if module in loaded else None
        for part in name.split("."):
            function = getattr(function, part, None)
        if function is not None:
            found.add(function.__code__)
    return frozenset(found)
