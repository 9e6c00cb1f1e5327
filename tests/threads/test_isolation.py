"""What one thread's compile must not do to the others: make them wait, or change what they all share."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

import lampwork
from lampwork import collector


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@pytest.fixture
def collector_as_it_was():
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.enable() if enabled else gc.disable()


def in_thread(function):
    """Runs it under no_grad: modes are each thread's own."""
    thread = threading.Thread(target=torch.no_grad()(function), daemon=True)
    thread.start()
    return thread


def test_the_collector_is_paused_and_its_switch_left_alone(collector_as_it_was):
    gc.set_threshold(700, 10, 10)
    with collector.paused():
        assert gc.isenabled() and gc.get_threshold()[0] == collector.NEVER
        with collector.paused():
            pass
        assert gc.get_threshold()[0] == collector.NEVER
    assert gc.get_threshold() == (700, 10, 10)


def test_who_turns_the_collector_off_meanwhile_finds_it_off(collector_as_it_was):
    with collector.paused():
        gc.disable()
    assert not gc.isenabled()


def test_who_sets_the_threshold_meanwhile_finds_it_set(collector_as_it_was):
    with collector.paused():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_the_last_thread_out_ends_the_pause(collector_as_it_was):
    gc.set_threshold(700, 10, 10)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with collector.paused():
            inside.set()
            leave.wait(10)

    with collector.paused():
        thread = in_thread(other)
        assert inside.wait(10)
    assert gc.get_threshold()[0] == collector.NEVER
    leave.set()
    thread.join(10)
    assert gc.get_threshold() == (700, 10, 10)


class SlowBackend:
    """Compiles at once, but waits for `go` where the first input has five rows."""

    def __init__(self):
        self.waiting, self.go = threading.Event(), threading.Event()

    def __call__(self, graph, inputs):
        if inputs[0].shape[0] == 5:
            self.waiting.set()
            assert self.go.wait(30)
        return graph


def test_a_served_call_does_not_wait_for_a_compile():
    backend = SlowBackend()
    compiled = lampwork.compile(lambda x: x + 1, backend=backend, dynamic=False)
    for rows in (2, 3):
        compiled(torch.zeros(rows))
    results = []
    compiling = in_thread(lambda: results.append(compiled(torch.zeros(5))))
    assert backend.waiting.wait(10)
    try:
        for rows in (2, 3, 2, 3):  # the first in the list, and one that is not
            calls = in_thread(lambda: results.append(compiled(torch.zeros(rows))))
            calls.join(10)
            assert not calls.is_alive(), f"a call with {rows} rows waits for the compile of another"
    finally:
        backend.go.set()
    compiling.join(10)
    assert sorted(len(result) for result in results) == [2, 2, 3, 3, 5]
    assert lampwork.stats(compiled)["entries"] == 3


def test_different_functions_compile_at_once():
    backends = [SlowBackend(), SlowBackend()]
    functions = [lampwork.compile(lambda x: x + 1, backend=backend) for backend in backends]
    threads = [in_thread(lambda each=each: each(torch.zeros(5))) for each in functions]
    both = all(backend.waiting.wait(10) for backend in backends)
    for backend in backends:
        backend.go.set()
    for thread in threads:
        thread.join(10)
    assert both


def test_a_shape_that_two_threads_bring_at_once_is_compiled_once():
    backend = SlowBackend()
    compiled = lampwork.compile(lambda x: x + 1, backend=backend)
    threads = [in_thread(lambda: compiled(torch.zeros(5))) for _ in range(4)]
    assert backend.waiting.wait(10)
    backend.go.set()
    for thread in threads:
        thread.join(10)
    found = lampwork.stats(compiled)
    assert (found["captures"], found["entries"], found["calls"]) == (1, 1, 4) and found["recompiles"] == ()


def test_compiling_leaves_the_grad_mode_of_other_threads_alone():
    backend = SlowBackend()
    compiled = lampwork.compile(lambda x: x + 1, backend=backend)

    def compile_without_grad():
        with torch.inference_mode():
            compiled(torch.zeros(5))

    with torch.enable_grad():
        thread = in_thread(compile_without_grad)
        assert backend.waiting.wait(10)
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert (torch.ones(2, requires_grad=True) * 2).requires_grad
        assert type(torch.ones(2)) is torch.Tensor and torch.ones(2).sum().item() == 2
        backend.go.set()
        thread.join(10)


def test_counters_lose_nothing():
    compiled = lampwork.compile(lambda x: x + 1 if x.sum() < 1 else x, options={"cache": False})
    compiled(torch.zeros(3))
    threads = [in_thread(lambda: [compiled(torch.zeros(3)) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.join(60)
    found = lampwork.stats(compiled)
    assert found["calls"] == 1601 and sum(record.count for record in found["breaks"]) == 1601


@pytest.fixture
def default_dtype_as_it_was():
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def test_what_another_thread_sets_meanwhile_stays_set(default_dtype_as_it_was):
    @lampwork.assume_constant
    def meanwhile():
        """Runs while the program is being captured."""
        in_thread(lambda: torch.set_default_dtype(torch.float64)).join(10)
        return 2

    lampwork.explain(lambda x: x * meanwhile(), torch.ones(3))
    assert torch.get_default_dtype() is torch.float64


def test_what_the_program_sets_itself_is_undone_until_it_runs(default_dtype_as_it_was):
    def program(x):
        torch.set_default_dtype(torch.float64)
        return x + torch.ones(3)

    lampwork.explain(program, torch.ones(3))
    assert torch.get_default_dtype() is torch.float32
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    assert compiled(torch.ones(3)).dtype is torch.float64 and torch.get_default_dtype() is torch.float64
