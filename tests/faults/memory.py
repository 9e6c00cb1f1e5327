"""Exhausted memory: limits of the address space, allocations that fail, and what eager raises then."""

from __future__ import annotations

import gc
import random
import resource
import subprocess
import sys

import torch

from tests.faults.cases import case
from tests.faults.support import check, check_clean, compiled, counted_warnings


def _used_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _error_of(function, *args) -> type[BaseException]:
    try:
        function(*args)
    except BaseException as error:
        return type(error)
    raise AssertionError("nothing was raised")


@case(seconds=60)
def more_than_there_is(seed: int) -> None:
    """The program asks for a petabyte: it gets eager's error each time, and what it did before is done."""

    def asks(x: torch.Tensor, notes: list) -> torch.Tensor:
        notes.append(1)
        return torch.empty(1 << 47).fill_(1) * x[0]

    def grows(x: torch.Tensor, notes: list) -> torch.Tensor:
        notes.append(1)
        return x[0] * torch.ones(1 << 24, 1) * torch.ones(1 << 24)

    for function in (asks, grows):
        expected = _error_of(function, torch.ones(3), [])
        made = compiled(function)
        for _ in range(3):
            notes: list[int] = []
            found = _error_of(made, torch.ones(3), notes)
            assert found is expected, (found, expected)
            assert notes == [1], notes
    check_clean()


@case(seconds=60, quick=True)
def caught_by_the_program(seed: int) -> None:
    """A program that retries with less, as libraries do that look for a batch size."""

    def retries(x: torch.Tensor, notes: list) -> torch.Tensor:
        size = 1 << 48
        while True:
            try:
                return torch.ones(size) * x[0]
            except (RuntimeError, MemoryError):
                notes.append(size)
                size >>= 36

    with counted_warnings():
        made = compiled(retries)
        for _ in range(3):
            check(made, retries, torch.ones(2))


def _limited(function, margin_bytes: int):
    """What `function()` returns or raises with so much more memory than this process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_used_bytes() + margin_bytes, before[1]))
    try:
        return function()
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        text = str(error)
        del error
        gc.collect()
        return text or "MemoryError"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@case(seconds=150, times=2)
def little_is_left_to_run(seed: int) -> None:
    """Calls of compiled functions with little memory left: right, or eager's error, and right again with more."""

    def function(x: torch.Tensor, notes: list) -> torch.Tensor:
        y = (x @ x).relu() + x.sin()
        notes.append(1)
        return torch.cat((y, y * 2)).sum(0) + y.cumsum(0)

    x = torch.randn(700, 700)
    made = compiled(function)
    check(made, function, x)
    for _ in range(40):
        margin = int(random.random() ** 2 * (1 << 25))
        with counted_warnings():
            _limited(lambda: made(x, []), margin)
    check(made, function, x)
    check_clean()


_COMPILES = """
import resource, sys, warnings
import torch
from tests.faults.memory import _used_bytes
from tests.faults.support import check, compiled, make
compiled(make(0))(torch.ones(2, 2), [])
resource.setrlimit(resource.RLIMIT_AS, (_used_bytes() + int(sys.argv[1]), -1))
function = make(5)
x = torch.ones(3, 4)
try:
    function(x, [])
except BaseException:
    sys.exit(3)
try:
    compiled(make(1 + int(sys.argv[1]) % 2))(x, [])
    made = compiled(function)
    made(x, [])
    made(x, [])
except MemoryError:
    pass
"""


@case(seconds=280)
def little_is_left_to_compile(seed: int) -> None:
    """Compiles with little memory left end with a result or MemoryError; nothing ends the process."""
    for margin in (0, 1 << 16, 1 << 18, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24):
        done = subprocess.run([sys.executable, "-c", _COMPILES, str(margin)], capture_output=True, text=True)
        assert done.returncode in (0, 3), (margin, done.returncode, done.stderr[-1500:])
