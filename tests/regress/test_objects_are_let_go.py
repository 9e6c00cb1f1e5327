"""A compiled function kept alive what it had read in closures and globals: a model or an optimizer that the program let go
of, with all of its memory, until the function was called again or was gone itself."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch

import lampwork


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
        self.last, self.calls = torch.nn.Linear(8, 2), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.last(torch.relu(self.norm(self.first(x))))


net: Net | None = None
#: The compiled functions stay.
kept: list[Callable] = []
X = torch.ones(4, 8)


def compiled(function: Callable) -> Callable:
    kept.append(lampwork.compile(function))
    return kept[-1]


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    torch.optim.AdamW(Net().parameters())  # the first one imports modules whose errors keep it
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    kept.clear()


def in_a_closure(calls: int) -> list[weakref.ref]:
    model = Net()
    function = compiled(lambda x: model(x))
    for _ in range(calls):
        function(X)
    found = [weakref.ref(model), weakref.ref(model.first.weight)]
    model = None  # type: ignore[assignment]
    return found


def in_inference(calls: int) -> list[weakref.ref]:
    model = Net().eval()
    function = compiled(lambda x: model(x))
    with torch.no_grad():
        for _ in range(calls):
            function(X)
    found = [weakref.ref(model), weakref.ref(model.first.weight)]
    model = None  # type: ignore[assignment]
    return found


def in_a_global(calls: int) -> list[weakref.ref]:
    global net
    net = Net()
    function = compiled(lambda x: net(x))  # type: ignore[misc]
    for _ in range(calls):
        function(X)
    found = [weakref.ref(net), weakref.ref(net.first.weight)]
    net = None
    return found


def trained(calls: int) -> list[weakref.ref]:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    function = compiled(step)
    for _ in range(calls):
        function(X)
    found = [weakref.ref(each) for each in (model, optimizer, model.first.weight)]
    found.append(weakref.ref(optimizer.state[model.first.weight]["exp_avg"]))
    model = optimizer = None  # type: ignore[assignment]
    return found


def replaced(calls: int) -> list[weakref.ref]:
    model = Net()
    function = compiled(lambda x: model(x))
    for _ in range(calls):
        function(X)
    found = [weakref.ref(model.last)]
    model.last = torch.nn.Linear(8, 2)
    return found


@pytest.mark.parametrize("program", [in_a_closure, in_inference, in_a_global, trained, replaced])
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_the_function_keeps_none_of_it(program: Callable, calls: int) -> None:
    assert [each() for each in program(calls)] == [None] * len(program(calls))


def test_calls_go_on_after_the_end_of_a_model() -> None:
    model = Net().eval()
    function = compiled(lambda x: model(x))
    for _ in range(5):
        model = Net().eval()
        for _ in range(3):
            torch.testing.assert_close(function(X), model(X))
    assert lampwork.stats(function)["captures"] <= 2


def test_another_object_at_the_same_address() -> None:
    """What is guarded by its identity: the memory of the first pattern is that of the second."""
    model = Net().eval()
    pattern = re.compile("a+x")

    def function(x: torch.Tensor) -> torch.Tensor:
        return model(x) if pattern.match("aax") else x * 3

    made = compiled(function)
    for _ in range(3):
        torch.testing.assert_close(made(X), model(X))
    for _ in range(20):  # more often than states are forgotten
        address, pattern = id(pattern), None  # type: ignore[assignment]
        re.purge()
        others = []
        while not others or (id(others[-1]) != address and len(others) < 500):
            others.append(re.compile(f"b+{len(others)}"))
            re.purge()
        pattern = others[-1]
        torch.testing.assert_close(made(X), X * 3)
        pattern = re.compile("a+x")
        torch.testing.assert_close(made(X), model(X))
