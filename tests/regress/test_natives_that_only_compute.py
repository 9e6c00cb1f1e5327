"""Functions in C that only compute, or read a state of the process, were unknown and broke the graph."""

from __future__ import annotations

import cmath
import gc

import pytest
import torch

import lampwork


def complex_functions(x, n):
    return x * abs(cmath.exp(n / 10)), cmath.phase(complex(n, 1)), cmath.isfinite(1j)


def complex_errors(x, n):
    try:
        return cmath.log(n - n)
    except ValueError as error:
        return x, str(error)


def views_of_bytes(x, n):
    view = memoryview(bytes([n, 2, 3]))[1:]
    return x * len(view), bytes(view), len(bytearray(view)), list(view)


def view_of_what_is_written(x, n):
    data = bytearray([1, 2, 3])
    view = memoryview(data)
    data[0] = n
    return x, bytes(view)


@pytest.mark.parametrize("program", [complex_functions, complex_errors, views_of_bytes, view_of_what_is_written])
def test_as_eager(program):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for n in (1, 2, 3, 1):
        assert str(compiled(torch.ones(2), n)) == str(program(torch.ones(2), n))


def test_a_view_of_the_callers_memory():
    def program(x, view):
        return x, bytes(view)

    compiled = lampwork.compile(program, options={"cache": False})
    for data in (b"ab", b"cd", b"ab"):
        assert compiled(torch.ones(2), memoryview(data))[1] == data


def test_whether_garbage_is_collected():
    def program(x):
        return x + 1 if gc.isenabled() else x - 1

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    try:
        for enabled in (True, False, True, False):
            (gc.enable if enabled else gc.disable)()
            assert compiled(torch.zeros(1)).item() == (1 if enabled else -1)
    finally:
        gc.enable()
    assert lampwork.stats(compiled)["captures"] == 2
