"""Compiled functions in what spawned processes are given: by what they wrap, with their settings."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

import lampwork
from lampwork.runtime.auto.function import AutoFunction
from lampwork.runtime.wrappers import compiled_of


def double(x):
    return x * 2


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by

    def method(self, x):
        return x * self.by + 1


@lampwork.compile(dynamic=True)
def decorated(x):
    return x - 1


def numbers(batch):
    return torch.stack(batch) * 3


def again(value):
    return pickle.loads(ForkingPickler.dumps(value))


@pytest.mark.parametrize(
    "function", [double, Scale(3), Scale(3).method, torch.relu], ids=["function", "object", "method", "native"]
)
def test_by_what_it_wraps(function):
    compiled = lampwork.compile(function, fullgraph=True, options={"recompile_limit": 3})
    x = torch.linspace(-1, 1, 5)
    expected = compiled(x)
    loaded = again(compiled)
    assert torch.equal(loaded(x), expected) and lampwork.stats(loaded)["calls"] == 1
    assert compiled_of(loaded).settings == compiled_of(compiled).settings
    assert again({"held": [compiled]})["held"][0](x) is not None


def test_by_name_where_the_module_has_it():
    assert pickle.loads(pickle.dumps(decorated)) is decorated and again(decorated) is decorated


def test_options_stay():
    loaded = again(lampwork.compile(double, mode="auto", backend="eager"))
    assert type(compiled_of(loaded)) is AutoFunction and torch.equal(loaded(torch.ones(2)), torch.full((2,), 2.0))


def test_what_is_compiled_of_it_stays_behind():
    assert torch.equal(
        copy.deepcopy(compiled_of(lampwork.compile(double))).call((torch.ones(2),), {}), torch.full((2,), 2.0)
    )
    with pytest.raises(Exception, match="pickle"):
        again(lampwork.compile(lambda x: x))


def test_other_functions_are_written_as_ever():
    assert again(double) is double
    with pytest.raises((pickle.PicklingError, AttributeError)):
        again(lambda x: x)


def test_a_spawned_process_calls_it():
    pool = multiprocessing.get_context("spawn").Pool(1)
    with pool:
        compiled = lampwork.compile(double)
        found = pool.map(compiled, [torch.ones(2), torch.zeros(2)])
        module = pool.apply(lampwork.compile(torch.nn.ReLU()), (torch.tensor([-1.0, 1.0]),))
    assert torch.equal(found[0], torch.full((2,), 2.0)) and torch.equal(module, torch.tensor([0.0, 1.0]))


def test_a_worker_of_a_data_loader_calls_it():
    loader = torch.utils.data.DataLoader(
        [torch.ones(2)] * 4, batch_size=2, num_workers=1, multiprocessing_context="spawn",
        collate_fn=lampwork.compile(numbers),
    )  # fmt: skip
    assert all(torch.equal(batch, torch.full((2, 2), 3.0)) for batch in loader)
