"""Memory that outlives a call: workspaces leased by calls, and the storages of large results.

Fresh pages are the hidden cost of a large result: the first write to each page faults (gelu on 4096x4096 float32 takes
4.3 ms into memory that was used before and 26 ms into new memory, on the 2-core machine of our measurements). So the
storage of a large result is kept, and used again once nobody else owns it. (Eight layers of 4096x4096, AdamW
on 4 rows, one core: 0.9 s a step, of which 0.3 s are 131,000 faults for gradients; 0.6 s without any.)
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch, forks

#: At most so much memory of results is kept in the process, busy or not.
KEPT_LIMIT_BYTES = 1 << 30
#: Storages kept for one result of one entry: a caller who drops a result when it has the next needs two.
KEPT_PER_RESULT = 3
#: So many calls after the last one that had to make memory, what lies idle at entries that did not run since goes.
SETTLED_CALLS = 2
#: Workspaces kept per entry: as many calls of it may run at once without allocating.
IDLE_LEASES = 4

#: Kernels may read a vector past the last planned element.
SLACK_BYTES = 64

#: So many places are looked at for memory that another entry has no use for.
_LOOKED_AT = 32
#: Where nothing was found to forget for the limit's sake, so many results pass before the next look.
PAUSE = 256

_lock = threading.RLock()  # re-entered where the collector runs, and releases an entry's memory, under it


@forks.in_child
def _in_child() -> None:
    global _lock
    _lock = threading.RLock()


_kept_bytes = 0
_pause = 0
#: Where storages of a size and type are kept, and by whom: entries whose results are alike share what lies idle.
_places: dict[tuple[int, torch.dtype], deque[tuple[int, deque]]] = {}
#: Who keeps memory, by the number in `_places`; counts what they were asked for, so that the idle can be told.
_owners: weakref.WeakValueDictionary[int, ResultMemory] = weakref.WeakValueDictionary()
_clock = 0


def kept_bytes() -> int:
    """Memory of results that this process keeps for later calls (some of it in use by the program)."""
    return _kept_bytes


def _over(flat: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """A tensor in the memory of `flat`, which nobody has written to as far as autograd knows."""
    result = torch.empty(0, dtype=flat.dtype).set_(flat, 0, shape, strides)
    _torch.set_versions((result,), (0,))
    return result


class ResultMemory:
    """Makes large result tensors of one entry, in memory of earlier results that nobody owns any more.

    Those may be another entry's: the first step of a training loop makes gradients in an entry of its own, which never
    runs again, and all later steps make the same in another.
    """

    def __init__(self) -> None:
        self._kept: dict[int, deque[tuple[torch.Tensor, int, int]]] = {}
        self._asked_at = self._made_at = self._settling = 0

    def empty(self, index: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor for result storage `index`, with memory of its own as far as anyone can see."""
        global _clock
        _clock += 1
        self._asked_at = _clock
        kept = self._kept.setdefault(index, deque())
        size_bytes = _size_bytes(shape, strides, dtype)
        for _ in range(len(kept)):
            try:
                keeper = kept.popleft()  # no other thread sees it meanwhile
            except IndexError:
                break
            tensor, pointer, capacity = keeper
            if _torch.storage_use_count_at(pointer) == 1:
                if capacity >= size_bytes:
                    result = _over(tensor, shape, strides)
                    kept.append(keeper)
                    if self._settling:
                        self._settle()
                    return result
                self._forget(keeper)  # results grew: larger memory takes its place
                continue
            kept.append(keeper)
        idle = self._idle_elsewhere(size_bytes, dtype) if len(kept) < KEPT_PER_RESULT else None
        if idle is not None:
            result = _over(idle[0], shape, strides)
            self._keep(kept, idle)
            return result
        if (
            _torch.tensor_layout() is None
            or not self._may_keep(kept, size_bytes)
            and not (self._forget_busy() and self._may_keep(kept, size_bytes))
        ):
            return torch.empty_strided(shape, strides, dtype=dtype)
        # A flat tensor of our own holds the storage. The storage's Python object is never asked for: it would own the
        # storage as well, and who else holds that object could not be told.
        with torch.inference_mode(False):
            flat = torch.empty(size_bytes // dtype.itemsize, dtype=dtype)
        result = _over(flat, shape, strides)
        self._keep(kept, (flat, _torch.storage_address(flat), size_bytes))  # now that its memory has a second owner
        return result

    def _settle(self) -> None:
        """Counts results that found their memory; where all of some calls have, what others keep idle goes. The first
        step of a training loop has made gradients, and its entry never runs again."""
        self._settling -= 1
        if self._settling:
            return
        sizes = {(capacity, flat.dtype) for kept in self._kept.values() for flat, _, capacity in tuple(kept)}
        with _lock:
            places = [place for size in sizes for place in _places.get(size, ())]
        for owner, kept in places:
            other = _owners.get(owner)
            if other is None or other is self or other._asked_at > self._made_at:
                continue
            for _ in range(len(kept)):
                try:
                    keeper = kept.popleft()  # no other thread sees it meanwhile
                except IndexError:
                    break
                if _torch.storage_use_count_at(keeper[1]) == 1:
                    self._forget(keeper)
                else:
                    kept.append(keeper)

    def _keep(self, kept: deque, keeper: tuple[torch.Tensor, int, int]) -> None:
        kept.append(keeper)
        self._made_at, self._settling = self._asked_at, SETTLED_CALLS * len(self._kept)
        _owners[id(self)] = self
        with _lock:
            places = _places.setdefault((keeper[2], keeper[0].dtype), deque())
            if not any(each is kept for _, each in places):
                places.append((id(self), kept))

    def _idle_elsewhere(self, size_bytes: int, dtype: torch.dtype) -> tuple[torch.Tensor, int, int] | None:
        """Memory of exactly that size which another entry keeps and nobody uses; it is kept there no longer."""
        with _lock:
            places = _places.get((size_bytes, dtype), ())
            others = [kept for owner, kept in places if owner != id(self)][:_LOOKED_AT]
        for kept in others:
            for _ in range(len(kept)):
                try:
                    keeper = kept.popleft()  # no other thread sees it meanwhile
                except IndexError:
                    break
                if (keeper[2], keeper[0].dtype) == (size_bytes, dtype) and _torch.storage_use_count_at(keeper[1]) == 1:
                    return keeper
                kept.append(keeper)
        return None

    @staticmethod
    def _may_keep(kept: deque, size_bytes: int) -> bool:
        """Whether another result's memory is kept, which counts it."""
        global _kept_bytes
        with _lock:
            if len(kept) >= KEPT_PER_RESULT or _kept_bytes + size_bytes > KEPT_LIMIT_BYTES:
                return False
            _kept_bytes += size_bytes
        return True

    @staticmethod
    def _forget(keeper: tuple[torch.Tensor, int, int]) -> None:
        global _kept_bytes
        with _lock:
            _kept_bytes -= keeper[2]

    def _forget_busy(self) -> bool:
        """Forget memory that results of other entries live in, so that the limit leaves room; whether there was any.

        Some will never come back: an optimizer's state, which its first step makes. Not tried again right after a try
        in vain.
        """
        global _pause
        with _lock:
            if _pause:
                _pause -= 1
                return False
            others = [kept for places in _places.values() for owner, kept in places if owner != id(self)]
        found = False
        for kept in others:
            for _ in range(len(kept)):
                try:
                    keeper = kept.popleft()
                except IndexError:
                    break
                if _torch.storage_use_count_at(keeper[1]) > 1:
                    self._forget(keeper)
                    found = True
                else:
                    kept.append(keeper)
        if others and not found:
            _pause = PAUSE
        return found

    def release(self) -> None:
        """Forget every kept storage; tensors that the program holds keep theirs."""
        global _kept_bytes
        with _lock:
            _kept_bytes -= sum(capacity for kept in self._kept.values() for _, _, capacity in kept)
            for alike in list(_places):
                places = deque(each for each in _places[alike] if each[0] != id(self))
                if places:
                    _places[alike] = places
                else:
                    del _places[alike]
            self._kept = {}

    def __del__(self) -> None:
        try:
            self.release()
        except Exception:  # the interpreter is shutting down
            pass


def _size_bytes(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> int:
    if 0 in shape:
        return 0
    return (sum((size - 1) * step for size, step in zip(shape, strides)) + 1) * dtype.itemsize


def new_workspace(size_bytes: int, device: str = "cpu") -> torch.Tensor:
    """Memory for a workspace, `SLACK_BYTES` larger than planned."""
    with torch.inference_mode(False):
        return torch.empty(size_bytes + SLACK_BYTES if size_bytes else 0, dtype=torch.uint8, device=device)


def planned(
    memory: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple,
    strides: tuple,
    offset_bytes: int,
    start: int = 0,
    end: int | None = None,
) -> torch.Tensor:
    """A strided view of planned memory, with no tie to autograd. Raises RuntimeError where it reaches out of bytes
    `start` to `end` (None: of all of `memory`): `set_` would move the memory to a larger place."""
    size_bytes = _size_bytes(shape, strides, dtype)
    if not size_bytes:
        offset_bytes = start  # a piece of nothing lies nowhere
    if offset_bytes < start or offset_bytes + size_bytes > (memory.nbytes if end is None else end):
        raise RuntimeError(
            f"a view of {size_bytes} bytes at {offset_bytes} reaches out of its memory, {start} to {end}"
        )
    empty = torch.empty(0, dtype=dtype, device=memory.device)
    return empty.set_(memory.untyped_storage(), offset_bytes // dtype.itemsize, shape, strides)


class Lease:
    """What one running call of an entry writes to: workspace, pointer table and sizes, and views of planned memory.

    `pointers[k]` is the address of `NativeCode.buffer_order[k]`; places in the workspace are filled once. `address` and
    `sizes_address` are the tables' own addresses. `weights` (and their pointers) are those of `generation`, and so are
    `written`, weights that the program writes and that keep a version. `home` is where a lease on a GPU goes back to
    (see `arenas.py`). `arena`: memory for buffers whose size depends on the call's
    sizes, which were `key` when pointers into it and the views `sized` were made.
    """

    __slots__ = (
        "pointers",
        "address",
        "sizes",
        "sizes_address",
        "workspace",
        "views",
        "weights",
        "written",
        "generation",
        "home",
        "arena",
        "key",
        "sized",
        "seen",
        "_tables",
    )

    def __init__(self, slots: int, sizes: int, workspace: torch.Tensor) -> None:
        pointers = (ctypes.c_int64 * max(slots, 1))()
        size_table = (ctypes.c_int64 * max(sizes, 1))()
        self._tables = (pointers, size_table)
        self.pointers = memoryview(pointers).cast("B").cast("q")
        self.address = ctypes.addressof(pointers)
        self.sizes = memoryview(size_table).cast("B").cast("q")
        self.sizes_address = ctypes.addressof(size_table)
        self.workspace = workspace
        self.views: list[torch.Tensor] = []
        self.weights: tuple[torch.Tensor, ...] = ()
        self.written: list[torch.Tensor] = []
        self.generation: object = None
        self.home: Any = None
        self.arena: torch.Tensor | None = None
        self.key: tuple[int, ...] | None = None
        self.sized: tuple[torch.Tensor, ...] = ()
        #: The sizes with which calls of ATen were seen to leave planned memory where it is.
        self.seen: tuple[int, ...] | None = None


def arena(lease: Lease, size_bytes: int) -> int:
    """The address of the lease's arena, which is made anew where it is smaller than `size_bytes`."""
    memory = lease.arena
    if memory is None or memory.numel() < size_bytes:
        lease.arena, lease.sized = None, ()  # the old memory first: it may be part of the new
        memory = lease.arena = new_workspace(size_bytes + size_bytes // 4, str(lease.workspace.device))
    return memory.data_ptr()


class LeasePool:
    """Idle leases of one entry. `pop` one (IndexError: none is idle, `make` one), `give` it back when the call is over.

    Safe to use from many threads at once; a lease given back beyond `IDLE_LEASES` lets go of the one idle for longest.
    `forget` lets go of all idle ones, and takes no lock.
    """

    def __init__(self, make: Callable[[], Lease]) -> None:
        self.make = make
        self._idle: deque[Lease] = deque(maxlen=IDLE_LEASES)
        self.pop = self._idle.pop
        self.give = self._idle.append
        self.release = self.forget = self._idle.clear
