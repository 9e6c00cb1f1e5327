"""Regression: exceptions of a capture that ended early led to frames that led back to them, and so kept what the program
was called with alive until garbage was collected: weak references to it outlived the call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import lampwork


class Thing:
    pass


known: weakref.WeakValueDictionary[str, Thing] = weakref.WeakValueDictionary()


def breaks_inside_a_call(x: torch.Tensor, thing: Thing) -> Any:
    known["thing"] = thing
    return x * 2


def raises(x: torch.Tensor, thing: Thing) -> Any:
    raise ValueError(type(thing).__name__)


def operator_raises(x: torch.Tensor, thing: Thing) -> Any:
    return x.reshape(7, 7)


def hook_is_refused(x: torch.Tensor, thing: Thing) -> Any:
    (x * 2).register_hook(lambda gradient: gradient)


def catches(x: torch.Tensor, thing: Thing) -> Any:
    try:
        raise KeyError(thing)
    except KeyError as error:
        return x + len(error.args)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("function", [breaks_inside_a_call, raises, operator_raises, hook_is_refused, catches])
@pytest.mark.parametrize("dynamic", [None, True])
def test_nothing_outlives_the_call(function: Callable, dynamic: bool | None) -> None:
    compiled = lampwork.compile(function, dynamic=dynamic)
    for size in (4, 9, 4):
        thing, x = Thing(), torch.randn(size)
        kept = weakref.ref(thing), weakref.ref(x)
        try:
            compiled(x, thing)
        except (ValueError, RuntimeError):
            pass
        del thing, x
        assert [each() for each in kept] == [None, None]
