"""Signals at random moments of capture, compile and run."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress

import torch

from tests.faults.cases import case
from tests.faults.support import check, check_clean, compiled, make, moments


class Late(Exception):
    """What a handler raises."""


@case(seconds=120, quick=True, times=3)
def handlers_use_tensors(seed: int) -> None:
    """A handler takes gradients and calls a compiled function; what it does is in no graph."""
    other, weight, seen = compiled(lambda x: x * 2 + 1), torch.ones(3, requires_grad=True), []

    def handler(number: int, frame: object) -> None:
        y = torch.arange(3.0) * 2
        weight.grad = None
        (weight * y).sum().backward()
        assert torch.equal(weight.grad, y)
        assert torch.equal(other(y), y * 2 + 1)
        seen.append(y.sum().item())

    signal.signal(signal.SIGALRM, handler)
    for number, moment in enumerate(moments(25, 0.15)):
        function = make(number)
        made = compiled(function)
        signal.setitimer(signal.ITIMER_REAL, moment)
        check(made, function)
        signal.setitimer(signal.ITIMER_REAL, 0)
        check(made, function)
    assert signal.getsignal(signal.SIGALRM) is handler
    assert seen
    check_clean()


@case(seconds=120, quick=True, times=3)
def handlers_raise(seed: int) -> None:
    """What a handler raises reaches the caller, whether the program catches errors or the compiler does."""

    def handler(number: int, frame: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, handler)
    late = 0
    for number, moment in enumerate(moments(40, 0.15)):
        function = make(number)
        made, notes, came = compiled(function), [], False
        try:
            signal.setitimer(signal.ITIMER_REAL, moment)
            made(torch.randn(3, 3), notes)
        except Late:
            came = True
        finally:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                came = True
        late += came
        assert notes in ([], [number]) and (came or notes), notes
        check(made, function)
    assert late > 5, late
    check_clean()


def _interrupt_after(seconds: float) -> threading.Thread:
    def interrupt() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)

    return threading.Thread(target=interrupt)


def _ended(thread: threading.Thread) -> None:
    """Waits for a thread whose start was interrupted, perhaps."""
    while thread.ident is None or thread.is_alive():
        time.sleep(0.001)


@case(seconds=180, times=3)
def interrupts(seed: int) -> None:
    """Ctrl-C reaches the caller, and the next call is right."""
    interrupted = 0
    for number, moment in enumerate(moments(40, 0.2)):
        function = make(number)
        made, notes = compiled(function, stored=number % 2 == 0), []
        x, thread = torch.randn(3, 3), _interrupt_after(moment)
        try:
            thread.start()
            made(x, notes)
            while thread.is_alive():
                time.sleep(0.001)
            time.sleep(0.01)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            raise AssertionError("an interrupt was lost")
        _ended(thread)
        assert notes in ([], [number]), notes
        check(made, function)
    assert interrupted == 40
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    check_clean()


@case(seconds=120, times=2)
def interrupts_while_it_runs(seed: int) -> None:
    """Ctrl-C in calls that are compiled already."""
    function = make(1)
    made = compiled(function)
    x = torch.randn(64, 64, requires_grad=True)
    check(made, function, x)
    for moment in moments(60, 0.05):
        thread = _interrupt_after(moment)
        try:
            thread.start()
            while True:
                made(x, []).sum().backward()
        except KeyboardInterrupt:
            pass
        _ended(thread)
        check(made, function, x)
    check_clean()


@case(seconds=120)
def a_second_interrupt_is_not_kept_waiting(seed: int) -> None:
    """A compile that takes long is ended by Ctrl-C, pressed again if the first does not end it at once."""

    def long(x: torch.Tensor) -> torch.Tensor:
        for turn in range(2500):
            x = x * 1.001 + turn
        return x

    made = compiled(long)
    compiled(make(0))(torch.randn(3, 3), [])

    ended = threading.Event()

    def interrupt() -> None:
        time.sleep(0.3)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            if ended.wait(0.2):
                return

    thread = threading.Thread(target=interrupt)
    start = time.monotonic()
    try:
        thread.start()
        made(torch.ones(2))
    except KeyboardInterrupt:
        ended.set()
    else:
        raise AssertionError("an interrupt was lost")
    assert time.monotonic() - start < 10
    with suppress(KeyboardInterrupt):  # the second is on its way where the first took as long as it waits
        thread.join()
    thread.join()
    check_clean()


@case(seconds=120, times=2)
def a_storm_of_signals(seed: int) -> None:
    """A signal every millisecond, of two kinds, while functions are compiled and called."""
    counts = {signal.SIGUSR1: 0, signal.SIGUSR2: 0}

    def handler(number: int, frame: object) -> None:
        counts[number] += 1
        assert float(torch.ones(2).sum()) == 2

    for number in counts:
        signal.signal(number, handler)
    stopped = threading.Event()

    def storm() -> None:
        while not stopped.wait(0.001):
            os.kill(os.getpid(), random.choice(list(counts)))

    thread = threading.Thread(target=storm)
    thread.start()
    for number in range(25):
        made = compiled(make(number), stored=number % 2 == 0)
        for _ in range(20):
            check(made, make(number))
    stopped.set()
    thread.join()
    assert min(counts.values()) > 10, counts
    check_clean()


@case(seconds=60)
def handlers_keep_their_flags(seed: int) -> None:
    """`siginterrupt(n, False)` outlives a compile, and a handler that the program replaces meanwhile stays."""
    from lampwork.signals import _restarts

    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    signal.siginterrupt(signal.SIGUSR1, False)
    assert _restarts(signal.SIGUSR1)
    check(compiled(make(1)), make(1))
    assert _restarts(signal.SIGUSR1)
    seen = []

    def second(number: int, frame: object) -> None:
        seen.append(number)

    def first(number: int, frame: object) -> None:
        signal.signal(signal.SIGALRM, second)

    signal.signal(signal.SIGALRM, first)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    check(compiled(make(2)), make(2))
    until = time.monotonic() + 10
    while not seen and time.monotonic() < until:
        check(compiled(make(3)), make(3))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGALRM) is second and seen
