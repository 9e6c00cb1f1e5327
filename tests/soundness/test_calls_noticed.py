"""What is absent or in an order when a function is called: keywords, default values, imports, functions of the interpreter."""

from __future__ import annotations

import builtins
import concurrent.futures
import functools
import multiprocessing
import operator
import sys
import types

import pytest
import torch

import lampwork
from tests.soundness.noticing import follows, x4


def called(program, before, after):
    """As `follows`, with keywords that come in another order."""
    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(x4(), **before), program(x4(), **before))
    expected = program(x4(), **after)
    assert not torch.equal(expected, program(x4(), **before)), "the change does not show"
    assert torch.equal(compiled(x4(), **after), expected)


ORDERS = {
    "keys": lambda x, **options: x * (2 if list(options)[0] == "a" else 3),
    "values": lambda x, **options: x * next(iter(options.values())),
    "handed on": lambda x, **options: (lambda **inner: x * list(inner.values())[0])(**options),
    "beside a named one": lambda x, b, **options: x * b + list(options.values())[0],
}


class Ordered(torch.nn.Module):
    def forward(self, x, **options):
        return x * list(options.values())[0]


@pytest.mark.parametrize("name", ORDERS)
def test_order_of_keywords(name):
    called(ORDERS[name], {"a": 1, "b": 2, "c": 3}, {"c": 3, "b": 2, "a": 1})


def test_order_of_a_modules_keywords():
    called(Ordered(), {"a": 1, "b": 2}, {"b": 2, "a": 1})


def test_order_of_named_parameters_does_not_matter():
    compiled = lampwork.compile(lambda x, a, b, **options: x * a + b, options={"cache": False})
    assert torch.equal(compiled(x4(), a=1, b=2, c=3), compiled(x4(), c=3, b=2, a=1))
    assert lampwork.stats(compiled)["captures"] == 1


@pytest.mark.parametrize("name, value", [("__defaults__", (1,)), ("__kwdefaults__", {"by": 1})])
def test_default_values_are_added(name, value):
    def by_position(by):
        return 2

    def by_keyword(*, by):
        return 2

    inner = by_position if name == "__defaults__" else by_keyword

    def program(x):
        try:
            return x * inner()
        except TypeError:
            return x * 3

    follows(program, (x4(),), change=lambda: setattr(inner, name, value))


NAME = "lampwork_test_absent"


def _imports(x):
    try:
        import lampwork_test_absent  # noqa: F401

        return x * 2
    except ImportError:
        return x * 3


def _imports_from(x):
    try:
        from lampwork_test_absent import value

        return x * value
    except ImportError:
        return x * 3


@pytest.mark.parametrize("program", [_imports, _imports_from])
def test_a_module_becomes_importable(program, monkeypatch):
    module = types.ModuleType(NAME)
    module.value = 2
    follows(program, (x4(),), change=lambda: monkeypatch.setitem(sys.modules, NAME, module))


@pytest.mark.parametrize("program", [_imports, _imports_from])
def test_a_module_can_be_imported_no_longer(program, monkeypatch):
    module = types.ModuleType(NAME)
    module.value = 2
    monkeypatch.setitem(sys.modules, NAME, module)
    follows(program, (x4(),), change=lambda: monkeypatch.setitem(sys.modules, NAME, None))


def test_a_name_appears_in_a_module(monkeypatch):
    module = types.ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)
    follows(_imports_from, (x4(),), change=lambda: setattr(module, "value", 2))


def test_import_is_replaced(monkeypatch):
    module, plain = types.ModuleType(NAME), builtins.__import__
    monkeypatch.setitem(sys.modules, NAME, module)
    replaced = lambda name, *args, **options: _raise() if name == NAME else plain(name, *args, **options)
    follows(_imports, (x4(),), change=lambda: monkeypatch.setattr(builtins, "__import__", replaced))


def _raise():
    raise ImportError("not here")


def test_class_statements_are_replaced(monkeypatch):
    def program(x):
        class Made:
            number = 2

        return x * Made.number

    made = lambda *args, **options: type("Made", (), {"number": 5})
    follows(program, (x4(),), change=lambda: monkeypatch.setattr(builtins, "__build_class__", made))


def _added(x):
    x += 1
    return x


OPERATORS = {
    "__add__": lambda x: x + 1,
    "__radd__": lambda x: 1 + x,
    "__sub__": lambda x: x - 1,
    "__matmul__": lambda x: x @ x,
    "__neg__": lambda x: -x,
    "__eq__": lambda x: x == 2,
    "__lt__": lambda x: x < 2,
    "__getitem__": lambda x: x[1:],
    "__iter__": lambda x: sum(x),
    "__iadd__": lambda x: _added(x * 1),
    "T": lambda x: x.T,
}


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() - {"__getitem__"}))
def test_operators_of_tensors_are_replaced(name):
    _replace_operator(name)


def test_the_subscript_of_tensors_is_replaced():
    """In a process of its own: CPython never takes back the slot `sq_item` that a patch of `__getitem__` fills, and
    `torch.tensor([a, b])` of tensors raises from then on, as all that asks whether a tensor is a sequence."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        pool.submit(_replace_operator, "__getitem__").result()


def _replace_operator(name):
    other = {"T": property(lambda self: self + 7), "__iter__": lambda self: iter([self * 3])}.get(
        name, lambda self, *others: self * 3
    )
    own, kept = name in vars(torch.Tensor), getattr(torch.Tensor, name)
    try:
        follows(OPERATORS[name], (x4(),), change=lambda: setattr(torch.Tensor, name, other))
    finally:
        if own:
            setattr(torch.Tensor, name, kept)
        else:
            delattr(torch.Tensor, name)


def test_a_function_of_the_library_is_replaced(monkeypatch):
    program = lambda x: x * functools.reduce(operator.mul, [1, 2, 3])
    follows(
        program, (x4(),), change=lambda: monkeypatch.setattr(functools, "reduce", lambda function, values: 9)
    )  # fmt: skip
    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(x4()), x4() * 9)  # also one that is compiled later
