"""The operator check itself: a compiler that is wrong in any visible way is caught."""

from __future__ import annotations

import types

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.ops.check import aliasing, check_sample

ADD = next(op for op in op_db if op.name == "add")


def stand_in(transform, **stats):
    """A compiler whose compiled function is `transform(function)`."""
    found = {"fallbacks": [], "breaks": [], "extern_calls": {}, **stats}
    return types.SimpleNamespace(
        compile=lambda function, options=None: transform(function), reset=lambda: None, stats=lambda compiled: found
    )


def x():
    return torch.linspace(-1, 1, 12).reshape(3, 4)


HONEST = {
    "pointwise": (lambda a: a * 2, (x(),)),
    "view": (lambda a: a.t(), (x(),)),
    "itself": (lambda a: a, (x(),)),
    "mutation": (lambda a: a.add_(1), (x(),)),
    "random": (lambda a: torch.rand_like(a), (x(),)),
    "two outputs of one storage": (lambda a: (lambda b: (b, b[0]))(a + 1), (x(),)),
}


@pytest.mark.parametrize("name", HONEST)
def test_eager_itself_passes(name):
    function, args = HONEST[name]
    assert check_sample(ADD, function, args, {}, stand_in(lambda f: f)).kind == "native"


def test_counts_decide_how_it_ran():
    ran = lambda **stats: check_sample(ADD, torch.neg, (x(),), {}, stand_in(lambda f: f, **stats)).kind
    assert ran(extern_calls={"aten.neg.default": 1}) == "aten"
    assert ran(fallbacks=["why"]) == "fallback"
    assert ran(breaks=["why"]) == "fallback"


def refuse(function):
    def compiled(*args):
        raise TypeError("no")

    return compiled


WRONG = {
    "value": (lambda a: a * 2, lambda f: lambda a: f(a) + 1e-2),
    "one value": (lambda a: a * 2, lambda f: lambda a: f(a).index_fill_(1, torch.tensor([2]), 9.0)),
    "dtype": (lambda a: a * 2, lambda f: lambda a: f(a).double()),
    "shape": (lambda a: a * 2, lambda f: lambda a: f(a)[None]),
    "strides": (lambda a: a * 2, lambda f: lambda a: f(a).t().contiguous().t()),
    "structure": (lambda a: (a * 2,), lambda f: lambda a: list(f(a))),
    "copy instead of view": (lambda a: a.t(), lambda f: lambda a: torch.empty_strided((4, 3), (1, 4)).copy_(f(a))),
    "view instead of copy": (lambda a: a.clone(), lambda f: lambda a: a.view(a.shape)),
    "equal instead of identical": (lambda a: a, lambda f: lambda a: a.view(a.shape)),
    "argument not mutated": (lambda a: a.add_(1), lambda f: lambda a: f(a.clone())),
    "no exception": (lambda a: a.reshape(5), lambda f: lambda a: a),
    "exception of another type": (lambda a: a.reshape(5), refuse),
    "exception": (lambda a: a * 2, refuse),
    "random draw left out": (lambda a: torch.dropout(a, 0.0, True), lambda f: lambda a: a * 1),
    "other random draw": (lambda a: torch.rand_like(a), lambda f: lambda a: torch.rand_like(a) + 0 * torch.rand(1)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_compilers_are_caught(name):
    function, transform = WRONG[name]
    outcome = check_sample(ADD, function, (x(),), {}, stand_in(transform))
    assert outcome.kind == "failed" and outcome.detail


def test_an_exception_that_eager_raises_too_is_no_failure():
    assert check_sample(ADD, lambda a: a.reshape(5), (x(),), {}, stand_in(lambda f: f)).kind == "raises"


def test_aliasing_among_arguments_is_kept_in_copies():
    base = x()
    found = []
    compiler = stand_in(lambda f: lambda a, b: found.append(aliasing((b,), (a,))) or f(a, b))
    assert check_sample(ADD, torch.add, (base, base[1]), {}, compiler).kind == "native"
    assert found == [[("views argument 0 at 4",)]]
