"""Threads: many functions, dropped while others run; errors in several at once; small stacks; the collector."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable

import torch

from tests.faults.cases import case
from tests.faults.support import check, check_clean, compiled, make


def _together(runs: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@case(seconds=180, times=2)
def many_functions_dropped(seed: int) -> None:
    """Twelve threads compile, call, share and drop functions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    shared = [compiled(make(number)) for number in range(6)]
    kept: list[weakref.ref] = []

    def run() -> None:
        for turn in range(6):
            number = random.randrange(6)
            check(shared[number], make(number), torch.randn(random.choice((2, 5)), 7))
            own = compiled(make(100 + turn))
            check(own, make(100 + turn))
            kept.append(weakref.ref(own.__lampwork__))
            del own
            if random.random() < 0.2:
                shared[number] = compiled(make(number))

    _together([run] * 12)
    sys.setswitchinterval(before)
    gc.collect()
    assert sum(each() is not None for each in kept) == 0
    check_clean()


@case(seconds=120, times=2)
def errors_in_all_of_them(seed: int) -> None:
    """Programs that raise, in several threads at once: each gets its own error."""

    class Mine(Exception):
        pass

    def raises(x: torch.Tensor, notes: list) -> torch.Tensor:
        notes.append(1)
        if x.shape[0] % 2:
            raise Mine(x.shape[0])
        return x.view(3, -1) + 1

    made = compiled(raises)

    def run() -> None:
        for _ in range(10):
            rows = random.randrange(1, 8)
            notes: list[int] = []
            try:
                made(torch.zeros(rows), notes)
            except Mine as error:
                assert error.args == (rows,) and rows % 2
            except RuntimeError as error:
                assert "shape" in str(error) and rows % 3, error
            else:
                assert rows == 6
            assert notes == [1]

    _together([run] * 6)
    check_clean()


@case(seconds=120)
def small_stacks(seed: int) -> None:
    """Threads with 256 KiB of stack compile; where eager raises RecursionError, so does the compiled function."""
    before = threading.stack_size(256 * 1024)
    _together([lambda: check(compiled(make(1)), make(1))])
    threading.stack_size(before)


@case(seconds=90, quick=True)
def deep_recursion(seed: int) -> None:
    """RecursionError comes where eager raises it, near the limit too, and the program may catch it."""

    def deep(x: torch.Tensor, notes: list, depth: int = 0) -> torch.Tensor:
        return deep(x + 1, notes, depth + 1)

    def limited(x: torch.Tensor, notes: list) -> torch.Tensor:
        def down(x: torch.Tensor, depth: int) -> torch.Tensor:
            return x if depth == 0 else down(x * 1.01, depth - 1)

        return down(x, 150)

    for _ in range(2):
        try:
            compiled(deep)(torch.ones(2), [])
        except RecursionError:
            pass
        else:
            raise AssertionError("no RecursionError")
    check(compiled(limited), limited)

    def below(depth: int) -> None:
        if depth:
            below(depth - 1)
        else:
            check(compiled(make(depth)), make(depth))

    limit = sys.getrecursionlimit()
    for left in (900, 500, 300, 200, 150, 100, 60, 40, 30, 20):
        try:
            below(limit - left)
        except RecursionError:
            pass
    check_clean()


@case(seconds=120)
def the_collector_runs_all_the_time(seed: int) -> None:
    """Collections at every allocation, with finalisers that use tensors and call compiled functions."""
    other = compiled(lambda x: x * 2)
    seen = []

    class Final:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            seen.append(other(torch.ones(2)).sum().item())

    stopped = threading.Event()

    def collects() -> None:
        while not stopped.is_set():
            Final()
            gc.collect()
            time.sleep(0.001)

    thread = threading.Thread(target=collects)
    thread.start()
    gc.set_threshold(50, 2, 2)
    try:
        for number in range(4):
            for _ in range(3):
                Final()
            check(compiled(make(number)), make(number))
    finally:
        gc.set_threshold(700, 10, 10)
        stopped.set()
        thread.join()
    assert seen and set(seen) == {4.0}
    check_clean()
