"""`F.max_pool2d` and `F.adaptive_max_pool2d` share one code object, as `Tensor.__rdiv__` and `Tensor.__rmod__` do: they
differ in their closures, which capture does not read where it knows such a function by itself. Functions of two modules may
have equal code, too, and read other globals. An entry that was made for one of them served calls of the other."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch.nn import functional as F

import lampwork
from lampwork.config import environment, use_cache_dir

PAIRS = [
    (F.max_pool2d, F.adaptive_max_pool2d, (torch.randn(1, 2, 8, 8), 2)),
    (F.adaptive_max_pool1d, F.max_pool1d, (torch.randn(1, 2, 8), 4)),
    (torch.Tensor.__rdiv__, torch.Tensor.__rmod__, (torch.tensor(-4.8), torch.tensor(-7.5))),
    (torch.Tensor.__rsub__, torch.Tensor.__rpow__, (torch.tensor(4.8), torch.tensor(7.5))),
]
IDS = [f"{first.__name__}-{second.__name__}{place}" for place, (first, second, _) in enumerate(PAIRS)]


@pytest.mark.parametrize(("first", "second", "args"), PAIRS, ids=IDS)
def test_as_arguments(first, second, args):
    compiled = lampwork.compile(lambda function, *args: function(*args), options={"cache": False})
    for function in (first, second, first):
        assert torch.equal(compiled(function, *args), function(*args))


@pytest.fixture
def cached(tmp_path):
    before = environment.cache
    object.__setattr__(environment, "cache", True)
    with use_cache_dir(str(tmp_path)):
        yield
    object.__setattr__(environment, "cache", before)


def program_of(function):
    def program(*args, function=function):
        return function(*args)

    return program


@pytest.mark.parametrize(("first", "second", "args"), PAIRS, ids=IDS)
def test_stored(first, second, args, cached):
    for function, hits in ((first, 0), (second, 0), (first, 1)):
        compiled = lampwork.compile(program_of(function))
        assert torch.equal(compiled(*args), function(*args))
        assert lampwork.stats(compiled)["cache_hits"] == hits


def scaled_by(factor):
    def scaled(x):
        return x * factor

    return scaled


twice, thrice = scaled_by(2.0), scaled_by(3.0)


def test_functions_of_the_program():
    compiled = lampwork.compile(lambda function, x: function(x))
    x = torch.randn(4)
    for function in (twice, thrice, scaled_by(5.0), scaled_by(7.0), twice):
        assert torch.equal(compiled(function, x), function(x))


TEXT = """
def scaled(x, by=1.0):
    return x * FACTOR * by
"""


def module_of(name, factor):
    module = types.ModuleType(name)
    module.FACTOR = factor
    exec(compile(TEXT, f"{name}.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def modules(monkeypatch):
    made = [module_of(f"equal_code_{number}", float(number)) for number in (2, 3)]
    for each in made:
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return made


def test_of_two_modules(modules):
    compiled = lampwork.compile(lambda function, x: function(x), options={"cache": False})
    for place in (0, 1, 0, 1):
        assert compiled(modules[place].scaled, torch.ones(2)).tolist() == [2.0 + place] * 2


def test_of_two_modules_stored(modules, cached):
    for place, hits in ((0, 0), (1, 0), (0, 1), (1, 1)):
        compiled = lampwork.compile(program_of(modules[place].scaled))
        assert compiled(torch.ones(2)).tolist() == [2.0 + place] * 2
        assert lampwork.stats(compiled)["cache_hits"] == hits


def test_of_no_module(modules):
    plain = modules[0].scaled
    shared = {"FACTOR": 5.0}
    others = [types.FunctionType(plain.__code__, globals_, "scaled", defaults) for globals_, defaults in (
        ({"FACTOR": 7.0}, (1.0,)), (shared, (1.0,)), (shared, (10.0,)), (plain.__globals__, (10.0,)))]  # fmt: skip
    compiled = lampwork.compile(lambda function, x: function(x), options={"cache": False})
    for function in (plain, *others, plain):
        assert torch.equal(compiled(function, torch.ones(2)), function(torch.ones(2)))


def test_two_that_share_globals_and_two_that_do_not(modules):
    code = modules[0].scaled.__code__
    shared, other = {"FACTOR": 5.0}, {"FACTOR": 7.0}

    def make(globals_):
        return types.FunctionType(code, globals_, "scaled", (1.0,))

    compiled = lampwork.compile(lambda first, second, x: first(x) + second(x), options={"cache": False})
    for first, second in ((shared, shared), (shared, other), (other, shared), (other, other)):
        functions = make(first), make(second)
        expected = sum(each(torch.ones(2)) for each in functions)
        assert torch.equal(compiled(*functions, torch.ones(2)), expected)
