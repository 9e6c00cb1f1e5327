"""A program that sets environment variables broke the graph."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch

import lampwork

NAME = "LAMPWORK_TEST_OF_VARIABLES"


def _of_c(name=NAME):
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(name.encode())


def set_and_left(x, value):
    os.environ[NAME] = value
    return x + len(os.environ[NAME])


def set_for_a_while(x, value):
    before = os.environ.get(NAME)
    os.environ[NAME] = value
    try:
        return x * len(os.environ[NAME]), before
    finally:
        os.environ.pop(NAME, None)


def in_order(x, value):
    os.environ[NAME] = "first"
    del os.environ[NAME]
    os.environ[NAME] = value
    os.environ.setdefault(NAME, "other")
    return x


def fails(x, value):
    os.environ[NAME] = value
    raise KeyError(value)


@pytest.mark.parametrize("program", [set_and_left, set_for_a_while, in_order, fails])
def test_as_eager(program, monkeypatch):
    compiled = lampwork.compile(program, fullgraph=program is not fails, options={"cache": False})
    for before, value in (("a", "1"), (None, "22"), ("a", "1"), (None, "333"), ("b", "1")):
        seen = []
        for function in (program, compiled):
            os.environ.pop(NAME, None)
            if before is not None:
                os.environ[NAME] = before
            try:
                result = str(function(torch.ones(2), value))
            except KeyError as error:
                result = repr(error)
            seen.append((result, os.environ.get(NAME), _of_c()))
        os.environ.pop(NAME, None)
        assert seen[0] == seen[1]
    assert _of_c() is None


def refused(x, value):
    try:
        os.environ["A=B"] = value
    except (ValueError, OSError) as error:
        return type(error).__name__
    return x


def test_what_the_system_refuses():
    compiled = lampwork.compile(refused, options={"cache": False})
    for _ in range(2):
        assert str(compiled(torch.ones(2), "1")) == str(refused(torch.ones(2), "1"))
    assert "A=B" not in os.environ
