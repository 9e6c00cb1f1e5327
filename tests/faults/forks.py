"""Forks: while other threads compile, after compiles, by `multiprocessing` and by data loaders."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable

import torch

from tests.faults.cases import case
from tests.faults.support import check, check_clean, compiled, make, wait_for


def _in_child(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class _Compiling:
    """Threads that compile one function after the other."""

    def __init__(self, threads: int, stored: bool = False) -> None:
        self.stopped, self.count, self.stored = False, 0, stored
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def _run(self, first: int) -> None:
        number = first * 1000
        try:
            while not self.stopped:
                check(compiled(make(number), self.stored), make(number))
                number += 1
                self.count += 1
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> _Compiling:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.stopped = True
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


@case(seconds=150, quick=True, times=3)
def while_another_thread_compiles(seed: int) -> None:
    """Eight children, forked at any moment of a compile, call what is compiled and compile what is not."""
    shared = compiled(make(0))
    warm = seed % 2 == 0
    if warm:
        check(shared, make(0))
    children = []
    with _Compiling(1, stored=seed % 3 == 1) as others:
        for number in range(8):
            time.sleep(0.07)

            def run(number: int = number) -> None:
                check(shared, make(0))
                check(compiled(make(100 + number)), make(100 + number))
                check(shared, make(0), torch.randn(4))
                check_clean()

            children.append(_in_child(run))
    statuses = [wait_for(child, 60) for child in children]
    assert statuses == [0] * 8, statuses
    assert others.count
    check_clean()


@case(seconds=150, times=2)
def from_several_threads(seed: int) -> None:
    """Threads that fork while others compile."""
    failed: list[int] = []

    def forks() -> None:
        for number in range(4):
            time.sleep(0.1)
            status = wait_for(_in_child(lambda: check(compiled(make(number)), make(number))), 60)
            if status:
                failed.append(status)

    with _Compiling(2):
        threads = [threading.Thread(target=forks) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed, failed
    check_clean()


@case(seconds=90)
def by_a_thread_that_others_wait_for(seed: int) -> None:
    """A handler forks in the middle of a compile; so does a thread that holds a lock which the program takes."""
    import signal

    children: list[int] = []

    def handler(number: int, frame: object) -> None:
        children.append(_in_child(lambda: check(compiled(make(3)), make(3))))

    signal.signal(signal.SIGALRM, handler)
    for number in range(6):
        signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.01 * number)
        check(compiled(make(number)), make(number))
        while len(children) <= number:
            time.sleep(0.01)
    assert [wait_for(child, 40) for child in children] == [0] * 6
    lock = threading.Lock()

    def locked(x: torch.Tensor, notes: list) -> torch.Tensor:
        with lock:
            notes.append(1)
            return x * 2

    with lock:
        thread = threading.Thread(target=lambda: check(compiled(locked), lambda x, notes: (notes.append(1), x * 2)[1]))
        thread.start()
        time.sleep(0.5)
        child = _in_child(lambda: check(compiled(make(5)), make(5)))
    thread.join()
    assert wait_for(child, 40) == 0


def _work(number: int) -> bool:
    check(compiled(make(number), stored=True), make(number))
    return True


_shared = compiled(make(11), stored=True)


def _call_shared(number: int) -> float:
    return float(_shared(torch.full((2, 2), float(number)), []).sum())


@case(seconds=180)
def pools_of_processes(seed: int) -> None:
    """`multiprocessing` by each way to start processes; workers compile, and call what was compiled before."""
    check(_shared, make(11))
    for method in ("fork", "forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            assert all(pool.map(_work, range(4)))
            found = pool.map(_call_shared, range(4))
        torch.testing.assert_close(found, [float(make(11)(torch.full((2, 2), float(n)), []).sum()) for n in range(4)])


class _Rows(torch.utils.data.Dataset):
    """Rows that a compiled function makes."""

    def __init__(self) -> None:
        self.made = compiled(make(4))

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.made(torch.full((3, 3), float(index)), [])


@case(seconds=120)
def workers_of_data_loaders(seed: int) -> None:
    """Workers compile and call, while the main process trains a compiled model."""
    rows = _Rows()
    for warm in (False, True):
        if warm:
            rows[0]
        loader = torch.utils.data.DataLoader(rows, batch_size=4, num_workers=2)
        model = torch.nn.Linear(3, 2)
        made = compiled(model)
        for turn, batch in enumerate(loader):
            expected = torch.stack([make(4)(torch.full((3, 3), float(4 * turn + row)), []) for row in range(4)])
            torch.testing.assert_close(batch, expected, rtol=1e-4, atol=1e-5)
            made(batch).sum().backward()
        assert turn == 3
    check_clean()


@case(seconds=90)
def large_kernels_in_children(seed: int) -> None:
    """Kernels with several threads, in a child whose parent ran such kernels. Where eager's own hang, it is skipped."""
    from tests.faults.cases import Skipped

    def function(x: torch.Tensor, notes: list) -> torch.Tensor:
        return (x.sin() * 2 + x.cos()).relu()

    x = torch.randn(1024, 1024)
    function(x, [])
    try:
        wait_for(_in_child(lambda: function(x, []).sum().item()), 15)
    except AssertionError:
        raise Skipped("eager's own kernels hang in a child here") from None
    made = compiled(function)
    check(made, function, x)
    assert wait_for(_in_child(lambda: check(made, function, x)), 30) == 0
