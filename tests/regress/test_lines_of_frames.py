"""Frames that programs hold, or find as their callers, stood on the line of a break, or were those of the machine."""

from __future__ import annotations

import inspect
import sys
import time
import traceback

import pytest
import torch

import lampwork


def callers():
    return [(each.filename, each.function, each.lineno) for each in inspect.stack()[1:3]][:1]


def stacked():
    return [(each.filename, each.name, each.lineno) for each in traceback.extract_stack()][-2:-1]


def fails(x):
    time.sleep(0)
    raise ValueError(x)


def held(x):
    frame = sys._getframe()
    first = frame.f_lineno
    time.sleep(0)
    return x + 1, first, frame.f_lineno


def held_by_inspect(x):
    frame = inspect.currentframe()
    y = x + 1
    time.sleep(0)

    return y, frame.f_lineno


def called(x):
    first = callers()
    time.sleep(0)
    second = callers()
    return x + 1, first, second, stacked()


def traced(x):
    try:
        fails(x)
    except ValueError as error:
        places = error.__traceback__
        lines = places.tb_lineno, places.tb_next.tb_lineno
        return x + 1, lines, places.tb_frame.f_lineno


def through_another(x):
    y = x * 2
    return y, *held(x), called(x)[1:]


@pytest.mark.parametrize("program", [held, held_by_inspect, called, traced, through_another])
def test_lines_of_frames(program):
    compiled, x = lampwork.compile(program, options={"cache": False}), torch.ones(3)

    def answer(function):
        return [each.tolist() if isinstance(each, torch.Tensor) else each for each in function(x)]

    expected = answer(program)
    for _ in range(3):
        assert answer(compiled) == expected
