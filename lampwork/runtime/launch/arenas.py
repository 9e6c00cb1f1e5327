"""Workspaces on a GPU: one for all programs that run one after the other on a stream, as large as the largest needs.

    stream 7    arena 0: 40 MiB, leases of entries 3, 8, 9        one call at a time has it
                arena 1: 16 MiB, leases of entry 3                 for calls of other threads meanwhile

A lease is given back when its call's last kernel has been launched, not when it has run: whoever takes the arena next
launches after that kernel, on the same stream. The memory is allocated with that stream current, so torch may give it
to others by the same rule. Were workspaces each entry's own, a process would hold the sum of all, where eager holds
nothing between calls.

While a stream is captured into a CUDA graph, a call gets the memory that whoever captures has for it (see
`capturing_with`). Where the program captures by itself, that is memory of the call's own, which is not used again: the
graph is replayed on streams, and at times, that nobody here knows of.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from lampwork import _torch
from lampwork.runtime.launch.memory import Lease, new_workspace, planned

#: Arenas kept for one stream: as many threads may run programs on it at once without allocating.
IDLE_ARENAS = 4

_numbers = itertools.count()
_capture = threading.local()
#: device -> stream -> idle arenas
_devices: dict[str, dict[int, list[Arena]]] = {}


class Arena:
    """Memory, and the lease on it of each entry that has used it, by the entry's number."""

    __slots__ = ("leases", "memory")

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.leases: dict[int, Lease] = {}


class StreamLeases:
    """The leases of one entry on a GPU; see `LeasePool`. Safe to use from many threads at once.

    `make` makes a lease on a workspace of `size_bytes`.
    """

    def __init__(
        self, make: Callable[[torch.Tensor], Lease], size_bytes: int, device: str, is_capturing: Callable[[], bool]
    ) -> None:
        self._make, self._size_bytes, self._device, self._is_capturing = make, size_bytes, device, is_capturing
        self._number = next(_numbers)
        self._streams = _devices.setdefault(device, {})

    def pop(self, stream: int) -> Lease:
        """A lease that was used before. Raises `LookupError` where there is none: `make` one."""
        if stream and self._is_capturing():  # the default stream cannot be captured
            raise LookupError
        arenas = self._streams[stream]
        arena = arenas.pop()
        lease = arena.leases.get(self._number)
        if lease is None:
            arenas.append(arena)
            raise LookupError
        return lease

    def make(self, stream: int) -> Lease:
        if stream and self._is_capturing():
            return self._make(self._captured_workspace())
        arenas = self._streams.setdefault(stream, [])
        try:
            arena = arenas.pop()
        except IndexError:
            arena = Arena(new_workspace(0, self._device))
        if arena.memory.numel() < self._size_bytes:
            # The old memory first: it may be part of the new.
            arena.leases = {}
            arena.memory = new_workspace(0, self._device)
            arena.memory = self._workspace()
        lease = arena.leases.get(self._number)
        if lease is None:
            lease = arena.leases[self._number] = self._make(arena.memory)
            lease.home = (arena, arenas)
        return lease

    def _captured_workspace(self) -> torch.Tensor:
        memory, _capture.unused = getattr(_capture, "unused", None), None  # for one lease
        if memory is None or memory.numel() < self._size_bytes:
            return self._workspace()
        return memory

    def _workspace(self) -> torch.Tensor:
        try:
            return new_workspace(self._size_bytes, self._device)
        except torch.OutOfMemoryError:
            self.release()  # other streams' arenas may be in the way
            return new_workspace(self._size_bytes, self._device)

    def give(self, lease: Lease) -> None:
        """The call that had the lease has launched all it had to."""
        if lease.home is not None:
            arena, arenas = lease.home
            if len(arenas) < IDLE_ARENAS:
                arenas.append(arena)

    def release(self) -> None:
        """Give back the memory of all idle arenas of the device."""
        for arenas in tuple(self._streams.values()):
            arenas.clear()

    def forget(self) -> None:
        """Let go of the entry's idle leases, which hold weights, and of arenas that nobody has leases on any more.
        Takes no lock."""
        for arenas in tuple(self._streams.values()):
            for arena in tuple(arenas):
                if arena.leases.pop(self._number, None) is not None and not arena.leases:
                    try:
                        arenas.remove(arena)
                    except ValueError:  # a call of another thread has just taken it
                        pass

    __del__ = forget


@contextmanager
def capturing_with(
    workspace: torch.Tensor, passing: bool = True, results: dict[int, torch.Tensor] | None = None
) -> Iterator[None]:
    """Meanwhile this thread captures a run of one program, whose lease is on `workspace`.

    `passing`: so are its large buffers; else torch allocates them. `results`: memory for the program's result storages,
    by number; taken out as it is used.
    """
    _capture.unused, _capture.memory, _capture.results = workspace, workspace if passing else None, results
    try:
        yield
    finally:
        _capture.unused = _capture.memory = _capture.results = None


def passing(offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory for a large buffer that nobody sees: new, or that part of the workspace while a graph is captured."""
    memory = getattr(_capture, "memory", None)
    if memory is None:
        return _empty()(shape, strides, dtype)
    with torch.inference_mode(False), _torch.below_autograd():
        return planned(memory, dtype, shape, strides, offset_bytes)


def given_results() -> dict[int, torch.Tensor] | None:
    """Memory that whoever captures a graph has for the program's result storages, by number; None elsewhere."""
    return getattr(_capture, "results", None)


@functools.cache
def _empty() -> Callable[..., torch.Tensor]:
    return _torch.empty_cuda()


def release_all() -> None:
    """Give back all idle arenas."""
    for streams in tuple(_devices.values()):
        for arenas in tuple(streams.values()):
            arenas.clear()
