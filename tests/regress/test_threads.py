"""The smallest program for each fault that threads brought to light."""

from __future__ import annotations

from collections import deque

import torch

from lampwork.runtime.launch.memory import ResultMemory


def test_memory_kept_for_a_result_is_given_to_one_thread_only():
    """Once it could be taken by a second thread between being put by and being handed out to the first."""
    memory = ResultMemory()
    taken = []

    class SeenByOthers(deque):
        def append(self, keeper):
            super().append(keeper)
            if not taken:  # another thread runs now, and wants memory of the same kind
                taken.append(None)
                taken.append(memory.empty(0, (4,), (1,), torch.float32))

    memory._kept[0] = SeenByOthers()
    first = memory.empty(0, (4,), (1,), torch.float32)
    assert taken[1].data_ptr() != first.data_ptr()
