"""When cuBLAS's workspaces are taken from ATen's map: never while somebody else can be using one."""

from __future__ import annotations

import concurrent.futures
import gc
import queue
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager
from unittest import mock

import pytest
import torch

from lampwork import _torch, collector
from lampwork.runtime.launch import cublas_workspaces


class Graph:
    """Stands in for torch's class, which a PyTorch without CUDA cannot make an instance of."""


class Derived(Graph):
    pass


@pytest.fixture
def cleared(unfrozen, monkeypatch):
    """How often the map was cleared. Other threads of the test's process are no business of it."""
    calls = []
    frames = cublas_workspaces.sys._current_frames
    others = set(frames()) - {threading.get_ident()}  # `threading` does not know all of them
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(_torch, "clear_library_workspaces", lambda: calls.append(1))
    monkeypatch.setattr(cublas_workspaces, "own_graphs", weakref.WeakSet())
    monkeypatch.setattr(
        cublas_workspaces.sys, "_current_frames", lambda: {k: v for k, v in frames().items() if k not in others}
    )
    return calls


@contextmanager
def beside(work, *args):
    """While a thread is in `work`, which ends when the event it gets is set."""
    event, started = threading.Event(), threading.Event()

    def run():
        started.set()
        work(event, *args)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    threading.Event().wait(0.1)  # so that it is there
    try:
        yield
    finally:
        event.set()
        thread.join()


def test_alone(cleared):
    assert cublas_workspaces.clear_unused(0) and cleared


def test_threads_that_wait(cleared):
    with beside(lambda event: event.wait()), concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        entries = queue.Queue()
        with beside(lambda event: entries.get()):
            found = cublas_workspaces.clear_unused(0)
            entries.put(None)
    assert found and cleared


def test_a_thread_that_computes(cleared):
    with beside(lambda event: [sum(range(1000)) for _ in iter(event.is_set, True)]):
        assert not cublas_workspaces.clear_unused(0) and not cleared
    assert cublas_workspaces.clear_unused(0)


def test_a_thread_that_goes_on_while_graphs_are_looked_for(cleared):
    with mock.patch.object(cublas_workspaces, "other_threads_wait", side_effect=[True, False]):
        assert not cublas_workspaces.clear_unused(0) and not cleared


def test_a_thread_that_went_on_is_waited_for(cleared, monkeypatch):
    """It may be about to launch what writes to a workspace: nothing is allocated before it has."""
    answers, naps = iter([True, True, False, False, True]), []
    monkeypatch.setattr(cublas_workspaces, "other_threads_wait", lambda: next(answers))
    monkeypatch.setattr(cublas_workspaces.time, "sleep", naps.append)
    assert cublas_workspaces.clear_unused(0) and len(naps) == 2


def test_graphs_of_others(cleared):
    kept = Graph()
    assert not cublas_workspaces.clear_unused(0) and not cleared
    cublas_workspaces.own_graphs.add(kept)
    assert cublas_workspaces.clear_unused(0)
    derived = Derived()
    assert not cublas_workspaces.clear_unused(0)
    del derived
    assert cublas_workspaces.clear_unused(0)


def test_graphs_that_the_collector_does_not_see(cleared):
    kept = Graph()
    gc.freeze()
    try:
        assert not cublas_workspaces.clear_unused(0) and not cleared
    finally:
        gc.unfreeze()
    del kept
    assert cublas_workspaces.clear_unused(0)


def test_objects_that_were_frozen_before_there_were_graphs(cleared, monkeypatch):
    """By an interpreter, or by a server that forks its workers; a graph that is frozen later counts."""
    gc.freeze()
    try:
        monkeypatch.setattr(collector, "_frozen_without_graphs", collector._frozen_now())
        assert cublas_workspaces.clear_unused(0) and len(cleared) == 1
        kept = Graph()
        assert not cublas_workspaces.clear_unused(0)  # which the collector shows
        gc.freeze()
        assert not cublas_workspaces.clear_unused(0)  # which it does not
        del kept
    finally:
        gc.unfreeze()
    assert len(cleared) == 1


def test_objects_that_were_frozen_when_cuda_had_started(cleared, monkeypatch):
    gc.freeze()
    try:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(collector, "_frozen_without_graphs", collector._frozen_now())
        assert not cublas_workspaces.clear_unused(0) and not cleared
    finally:
        gc.unfreeze()


def test_importing_the_package_notes_what_is_frozen():
    program = """
import gc
gc.freeze()
import lampwork
from lampwork import collector
assert not collector.may_hide_graphs()
gc.freeze()
assert collector.may_hide_graphs()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_memory_on_another_device(cleared, monkeypatch):
    """Its thread of the autograd engine may run what has no Python to be seen."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: 512)
    assert not cublas_workspaces.clear_unused(0) and not cleared


def test_an_engines_thread(cleared, monkeypatch):
    code = cublas_workspaces._engine()
    waiting = mock.Mock(f_code=code)
    monkeypatch.setattr(cublas_workspaces.sys, "_current_frames", lambda: {-1: waiting})
    assert not cublas_workspaces.other_threads_wait()  # somebody else's pass
    monkeypatch.setattr(_torch, "is_in_backward", lambda: True)
    assert cublas_workspaces.other_threads_wait()  # ours
    monkeypatch.setattr(cublas_workspaces, "_stack", lambda frame: iter([mock.Mock(f_code=code)]))
    assert not cublas_workspaces.other_threads_wait()  # ours is in this thread, the other one somebody else's
