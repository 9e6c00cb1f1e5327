"""What a host function allocates as it goes: at its peak, so that a graph's pool can be one block of that size."""

from __future__ import annotations

#: torch's allocator has memory of its own for what is no larger, 2 MiB at a time.
SMALL_BYTES = 1 << 20
#: Its blocks are multiples of this.
_ROUNDED_BYTES = 512


class Blocks:
    """Large blocks that are alive, in the order in which the host function is written."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._alive = self._results = 0
        #: Most bytes at once: without the memory of results that the host function makes, and with it.
        self.peak, self.peak_with_results = 0, 0

    def take(self, name: str, size_bytes: int, is_result: bool = False) -> None:
        size = -(-size_bytes // _ROUNDED_BYTES) * _ROUNDED_BYTES if size_bytes > SMALL_BYTES else 0
        if is_result:
            self._results += size
        else:
            self._alive += size
            self._sizes[name] = size
        self.peak = max(self.peak, self._alive)
        self.peak_with_results = max(self.peak_with_results, self._alive + self._results)

    def give_back(self, name: str) -> None:
        self._alive -= self._sizes.pop(name, 0)
