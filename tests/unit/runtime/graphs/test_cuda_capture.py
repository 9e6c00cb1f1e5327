"""What a pool of captures is made of, without a device: when it is laid out as one block, and who keeps it."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import pytest
import torch

from lampwork import _torch
from lampwork.runtime.graphs.cuda_capture import ONE_BLOCK_BYTES, Pool


@pytest.fixture
def blocks(monkeypatch):
    """Sizes of the blocks that were asked for, with the pools they were to come from."""
    made, current = [], []

    @contextmanager
    def allocating_from(index, pool):
        current.append(pool)
        try:
            yield
        finally:
            current.pop()

    def empty(size_bytes, **options):
        made.append((size_bytes, current[-1]))
        if size_bytes > 1 << 40:
            raise torch.OutOfMemoryError

    handles = iter(range(100))
    monkeypatch.setattr(_torch, "allocating_from", allocating_from)
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "empty_cache", mock.Mock())
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(handles)))
    return made


def test_a_large_capture_makes_its_pool_one_block(blocks):
    pool = Pool()
    assert pool.begin(0, 3 * ONE_BLOCK_BYTES)
    assert not pool.begin(0, 2 * ONE_BLOCK_BYTES)  # fits
    assert not pool.begin(0, 5 * ONE_BLOCK_BYTES)  # much of what it needs is there
    assert pool.begin(0, 10 * ONE_BLOCK_BYTES)
    assert blocks == [(3 * ONE_BLOCK_BYTES, (0, 0)), (10 * ONE_BLOCK_BYTES, (0, 0))]


def test_small_captures_do_not(blocks):
    pool = Pool()
    assert not pool.begin(0, ONE_BLOCK_BYTES - 1) and not blocks
    assert pool.handle == (0, 0)


def test_a_pool_that_was_forgotten_begins_anew(blocks):
    pool = Pool()
    pool.begin(0, ONE_BLOCK_BYTES)
    pool.handle = None  # a capture failed
    assert pool.begin(0, ONE_BLOCK_BYTES)
    assert [handle for _, handle in blocks] == [(0, 0), (0, 1)]


def test_no_memory_for_one_block(blocks):
    """The capture may fit in pieces; torch has the pool's name by then."""
    assert Pool().begin(0, 2 << 40)


def test_allocators_without_pools(blocks, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert not Pool().begin(0, ONE_BLOCK_BYTES) and not blocks
