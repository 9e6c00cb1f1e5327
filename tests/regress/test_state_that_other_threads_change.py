"""What the program reads changes each time it is captured, as another thread writes it: no failure of the compiler."""

from __future__ import annotations

import threading
import time

import torch

import lampwork


class Shared:
    text = ""
    number = 0


def test_a_text_that_never_stays():
    shared = Shared()
    started, stop = threading.Event(), threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            shared.text = f"{number:08}"
            started.set()

    def program(x):
        return x * 2 if shared.text.endswith("z") else x + 1

    reasons: set[str] = set()
    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert started.wait(60)
        last = time.monotonic() + 60
        while not reasons and time.monotonic() < last:  # on a busy machine the thread may stand still for a compile
            run = lampwork.compile(program, options={"cache": False})
            for _ in range(4):
                assert run(torch.ones(2)).tolist() == [2, 2]
            reasons = {each.diagnostic.id for each in lampwork.stats(run)["fallbacks"]}
    finally:
        stop.set()
        thread.join(60)
    assert reasons == {"unstable-state"}


def test_numbers_that_vary_with_all_sizes_dynamic():
    """Three entries, as without `dynamic=True`: it was one for each value."""
    shared = Shared()

    def program(x):
        shared.number += 1
        return x * 2

    run = lampwork.compile(program, dynamic=True, options={"cache": False})
    for number in range(12):
        assert run(torch.ones(3)).tolist() == [2, 2, 2]
        assert shared.number == number + 1
    assert lampwork.stats(run)["captures"] <= 3
