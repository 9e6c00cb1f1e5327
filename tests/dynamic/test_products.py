"""Products of three dimensions and more on sizes that vary, with the framework's own way and with ours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.capture.record import products
from tests.dynamic.support import check

SIZES = [(4, 6), (5, 9), (17, 6), (3, 33)]


@pytest.fixture(params=["the framework's", "ours"], autouse=True)
def way(request, monkeypatch):
    """Both where the framework's takes symbols, else the one that is taken."""
    if request.param == "ours":
        monkeypatch.setattr(products, "TAKES_SYMBOLS", False)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda n, m: (n, m, 8), lambda n, m: (8, 6)),
        (lambda n, m: (n, m, 8), lambda n, m: (8,)),
        (lambda n, m: (n, m, 8), lambda n, m: (n, 8, m)),
        (lambda n, m: (n, m, 8), lambda n, m: (1, 8, 6)),
        (lambda n, m: (n, 2, m, 8), lambda n, m: (n, 2, 8, m)),
        (lambda n, m: (n, 2, m, 8), lambda n, m: (2, 8, m)),
        (lambda n, m: (m, 8), lambda n, m: (n, 8, m)),
        (lambda n, m: (8,), lambda n, m: (n, 8, m)),
        (lambda n, m: (2, 3, m), lambda n, m: (n, 1, m, 4)),
    ],
)
@pytest.mark.parametrize(
    "how", [torch.matmul, lambda x, y: x @ y, lambda x, y: x.matmul(y)], ids=["function", "@", "method"]
)
def test_one_compile_serves_all_sizes(how, left, right):
    def program(x, y):
        return how(x.relu(), y), how(x, y + 1) * 2

    check(program, [(torch.randn(left(n, m)), torch.randn(right(n, m))) for n, m in SIZES])


def test_linear_with_and_without_bias():
    def program(x, weight, bias):
        return F.linear(x, weight), F.linear(x, weight, bias), F.linear(input=x, weight=weight)

    weight, bias = torch.randn(6, 8), torch.randn(6)
    check(program, [(torch.randn(n, m, 8), weight, bias) for n, m in SIZES])
    vectors = [(torch.randn(n, m, 8), torch.randn(8)) for n, m in SIZES]
    check(F.linear, vectors, captures=len(SIZES))


def test_sizes_zero_and_one():
    def program(x, y):
        return x @ y

    sizes = [(4, 6), (0, 6), (4, 0), (1, 1), (1, 0)]
    check(program, [(torch.randn(n, m, 8), torch.randn(n, 8, m)) for n, m in sizes], captures=5)
    check(program, [(torch.randn(4, m, n), torch.randn(n, 3)) for n, m in sizes], captures=5)


def test_gradients():
    def program(x, weight):
        return (x @ weight).sum() + F.linear(x, weight.t()).square().sum()

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for n, m in SIZES:
        x, weight = torch.randn(n, m, 8, requires_grad=True), torch.randn(8, 6, requires_grad=True)
        actual = torch.autograd.grad(compiled(x, weight), (x, weight))
        torch.testing.assert_close(actual, torch.autograd.grad(program(x, weight), (x, weight)), rtol=1e-4, atol=1e-4)
    assert lampwork.stats(compiled)["captures"] == 1


def test_operands_of_two_types_under_autocast():
    def program(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ y, F.linear(x, y.t())

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    with torch.no_grad():
        for n, m in SIZES:
            args = torch.randn(n, m, 8), torch.randn(8, 6, dtype=torch.bfloat16)
            torch.testing.assert_close(compiled(*args), program(*args))
    assert lampwork.stats(compiled)["captures"] == 1


@pytest.mark.parametrize(
    ("left", "right"), [((4, 6, 8), (7, 3)), ((4, 6, 8), (5, 8, 3)), ((4, 6, 8), (7,)), ((), (4, 6, 8))]
)
def test_what_does_not_fit_is_refused_as_eager_refuses_it(left, right):
    x, y = torch.randn(left), torch.randn(right)
    with pytest.raises(RuntimeError) as expected:
        x @ y
    with pytest.raises(RuntimeError) as refused:
        lampwork.compile(lambda x, y: x @ y, dynamic=True, options={"cache": False})(x, y)
    assert str(refused.value) == str(expected.value)


def test_mixed_types_are_refused_as_eager_refuses_them():
    x, y = torch.randn(4, 6, 8), torch.randn(8, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError) as expected:
        x @ y
    with pytest.raises(RuntimeError) as refused:
        lampwork.compile(lambda x, y: x @ y, dynamic=True, options={"cache": False})(x, y)
    assert str(refused.value) == str(expected.value)
