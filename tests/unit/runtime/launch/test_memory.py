"""Memory of large results is used again: by the entry that made it, and by others whose results are alike."""

from __future__ import annotations

import gc

import pytest
import torch

from lampwork import _torch
from lampwork.runtime.launch import memory
from lampwork.runtime.launch.memory import ResultMemory

SHAPE = (1 << 10, 1 << 9)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """What other tests' entries keep is not lent here, and what they have let go of is not counted any more."""
    gc.collect()
    monkeypatch.setattr(memory, "_places", {})


def make(of: ResultMemory, dtype: torch.dtype = torch.float32, index: int = 0) -> torch.Tensor:
    return of.empty(index, SHAPE, (SHAPE[1], 1), dtype)


def test_idle_memory_of_another_entry_is_taken():
    first, second = ResultMemory(), ResultMemory()
    before = memory.kept_bytes()
    result = make(first)
    place = result.data_ptr()
    other = make(second)
    assert other.data_ptr() != place  # in use
    del result
    assert make(second, torch.int32, index=1).data_ptr() != place  # of another type
    third = make(second)
    assert third.data_ptr() == place
    assert make(first).data_ptr() not in (place, other.data_ptr())  # it is the second's now
    first.release()
    second.release()
    assert memory.kept_bytes() == before


def test_two_generations_of_gradients_do_for_all_entries():
    """As a training loop makes them: the first step in an entry of its own, each later one while the last's are held."""
    first, later = ResultMemory(), ResultMemory()
    gradients = [make(first, index=index) for index in range(4)]
    places = {each.data_ptr() for each in gradients}
    for _ in range(4):
        gradients = [make(later, index=index) for index in range(4)]
        places |= {each.data_ptr() for each in gradients}
    assert len(places) == 8
    first.release()
    later.release()


def test_a_larger_result_has_larger_memory():
    """What is kept is counted as large as it is, and what a result was made in earlier is not grown."""
    entry = ResultMemory()
    before = memory.kept_bytes()
    for rows in (64, 128, 96, 32, 256):
        result = entry.empty(0, (rows, 512), (512, 1), torch.float32)
        assert _torch.storage_bytes(result) >= result.nbytes
        del result
    assert memory.kept_bytes() - before == 256 * 512 * 4
    entry.release()
    assert memory.kept_bytes() == before


def test_an_arena_grows_and_stays():
    lease = memory.Lease(0, 0, memory.new_workspace(0))
    places = []
    for size_bytes in (100, 60, 1 << 16, 100, 1 << 18):
        places.append(memory.arena(lease, size_bytes))
        assert lease.arena is not None and lease.arena.numel() >= size_bytes
        assert lease.arena.data_ptr() == places[-1]
    assert places[0] == places[1] and places[2] == places[3]


def test_entries_that_are_gone_lend_nothing():
    first = ResultMemory()
    result = make(first)
    del first
    gc.collect()
    second = ResultMemory()
    result.fill_(1)
    make(second).fill_(2)
    assert result.unique().item() == 1
    second.release()
    assert all(places for places in memory._places.values())


def test_what_stays_in_use_makes_room(monkeypatch):
    """An optimizer's state, made by the first step, is not counted for ever."""
    size_bytes = SHAPE[0] * SHAPE[1] * 4
    monkeypatch.setattr(memory, "KEPT_LIMIT_BYTES", memory.kept_bytes() + 2 * size_bytes)
    monkeypatch.setattr(memory, "_pause", 0)
    first, later = ResultMemory(), ResultMemory()
    state = [make(first, index=index) for index in range(2)]
    places = [make(later).data_ptr() for _ in range(3)]
    assert len(set(places)) == 1 and places[0] not in [each.data_ptr() for each in state]
    assert memory.kept_bytes() <= memory.KEPT_LIMIT_BYTES
    first.release()
    later.release()


def test_what_an_entry_keeps_that_runs_no_more_goes():
    first, later = ResultMemory(), ResultMemory()
    before = memory.kept_bytes()
    held = [make(first, index=index) for index in range(4)]
    gradients = [make(later, index=index) for index in range(4)]
    size = gradients[0].nbytes
    del held[1:]  # one of them is in use for good
    for _ in range(4):
        gradients = [make(later, index=index) for index in range(4)]
    assert memory.kept_bytes() - before == 9 * size  # two generations of gradients, and that one
    first.release()
    later.release()


def test_entries_that_take_turns_keep_what_they_have():
    first, second = ResultMemory(), ResultMemory()
    held = [make(first), make(second)]
    places = {each.data_ptr() for each in held}
    del held
    for _ in range(6):
        assert {make(first).data_ptr(), make(second).data_ptr()} <= places
    first.release()
    second.release()


def test_looking_at_a_storage_adds_no_owner():
    tensor = torch.empty(SHAPE)
    address = _torch.storage_address(tensor)
    assert _torch.storage_bytes(tensor) == tensor.nbytes
    assert _torch.storage_key(tensor) == address and _torch.storage_use_count_at(address) == 1
    assert _torch.storage_bytes(tensor[2:]) == tensor.untyped_storage().nbytes()
    assert tensor.untyped_storage()._cdata == address
