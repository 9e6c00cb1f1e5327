"""Regression: a compiled method was a plain function, which copies of its object shared: they computed with the first
object's state."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

import lampwork


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, factor: int = 1) -> torch.Tensor:
        """Weighted."""
        return x * self.weight * factor


class Plain:
    def __init__(self) -> None:
        self.scale = torch.ones(1)
        self.run: Any = lampwork.compile(self.go)

    def go(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def test_copies_have_methods_of_their_own() -> None:
    model = Model()
    model.forward = lampwork.compile(model.forward)  # type: ignore[method-assign]
    average = copy.deepcopy(model)
    with torch.no_grad():
        average.weight.fill_(5)
    x = torch.ones(2)
    for _ in range(2):
        assert model(x).tolist() == [1.0, 1.0] and average(x, factor=2).tolist() == [10.0, 10.0]
    assert lampwork.stats(model.forward)["calls"] == 2
    again = copy.deepcopy(average)
    with torch.no_grad():
        again.weight.fill_(7)
    assert again(x).tolist() == [7.0, 7.0] and average(x).tolist() == [5.0, 5.0]


def test_copies_are_let_go() -> None:
    model = Model()
    model.forward = lampwork.compile(model.forward)  # type: ignore[method-assign]
    average = copy.deepcopy(model)
    again = copy.deepcopy(average)
    for each in (model, average, again):
        each(torch.ones(2))
    kept = weakref.ref(average)
    del average, each
    gc.collect()
    assert kept() is None


def test_objects_of_other_classes() -> None:
    first = Plain()
    second = copy.deepcopy(first)
    second.scale = torch.full((1,), 7.0)
    assert second.run(torch.ones(1)).item() == 7 and first.run(torch.ones(1)).item() == 1
    third = pickle.loads(pickle.dumps(second))
    third.scale = torch.full((1,), 9.0)
    assert third.run(torch.ones(1)).item() == 9


def test_spawned_processes_get_the_copys_own() -> None:
    """The pickler of `multiprocessing` writes the object that the method is bound to, not the first one."""
    first = Plain()
    second = copy.deepcopy(first)
    second.scale = torch.full((1,), 7.0)
    sent = ForkingPickler.loads(bytes(ForkingPickler.dumps(second.run)))
    assert sent(torch.ones(1)).item() == 7 and lampwork.stats(sent)["calls"] == 1


def test_a_compiled_method_is_a_method() -> None:
    model = Model()
    compiled = lampwork.compile(model.forward)
    assert inspect.ismethod(compiled) and compiled.__self__ is model and compiled.__doc__ == "Weighted."
    assert inspect.signature(compiled) == inspect.signature(model.forward)
    assert lampwork.compile(compiled).__wrapped__ is Model.forward
    outer = lampwork.compile(lambda x: compiled(x) + 1)
    assert outer(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not lampwork.stats(outer)["breaks"]
