"""A number that varies was written to tensors of half precision where eager says that the type does not hold it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

fill = 1.0

NUMBERS = (1.0, 2.0, -1e9, 3.0, float("inf"), -float("inf"), 65504.0, 65520.0, -70000.0, 0.5)


def masked(x):
    return x.masked_fill(x > 0.5, fill) * 2


def masked_in_place(x):
    return x.clone().masked_fill_(x > 0.5, fill)


def filled(x):
    return x.clone().fill_(fill) + x


def padded(x):
    return F.pad(x, (1, 1), value=fill)


def at_least(x):
    return x.clamp(min=fill)


def at_most(x):
    return x.clone().clamp_(-1.0, fill)


def result(program, x):
    try:
        return program(x)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("program", [masked, masked_in_place, filled, padded, at_least, at_most])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_as_eager(program, dtype, monkeypatch):
    compiled = lampwork.compile(program, options={"cache": False, "recompile_limit": 32})
    refused = 0
    for number in NUMBERS:
        monkeypatch.setitem(globals(), "fill", number)
        x = torch.rand(6).to(dtype)
        found, expected = result(compiled, x), result(program, x)
        if isinstance(expected, str):
            assert found == expected
            refused += 1
        else:
            torch.testing.assert_close(found, expected)
    assert refused == (3 if dtype is torch.float16 else 0)
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("dtype, number", [(torch.uint8, 300), (torch.int8, -129), (torch.int32, 2**31)])
@pytest.mark.parametrize(
    "program", [lambda x, n: x.clamp(min=n), lambda x, n: x.clone().fill_(n), lambda x, n: torch.full_like(x, n)]
)
def test_whole_numbers(program, dtype, number):
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.tensor([3, 4], dtype=dtype)
    for n in (1, 2, number, 3):
        found, expected = result(lambda x: compiled(x, n), x), result(lambda x: program(x, n), x)
        assert found == expected if isinstance(expected, str) else torch.equal(found, expected)


def test_floats_are_not_added_to_integers():
    compiled = lampwork.compile(lambda x, n: x.add_(n), options={"cache": False})
    x = torch.tensor([3, 4])
    for n in (1.0, 2.0, 3.5):
        with pytest.raises(RuntimeError, match="can't be cast"):
            compiled(x, n)
    assert x.tolist() == [3, 4]


def written(x, n):
    x[0] = n
    return x


def written_where(x, n):
    x[x > 0] = n
    return x


OF_ARGUMENTS = {
    "written": written,
    "written where": written_where,
    "chosen": lambda x, n: torch.where(x > 0, x, n),
    "a tensor": lambda x, n: torch.tensor(n, dtype=x.dtype) + x,
    "a list": lambda x, n: torch.tensor([n, 1], dtype=x.dtype),
    "of its type": lambda x, n: x.new_tensor(n) + x,
    "as a tensor": lambda x, n: torch.as_tensor(n, dtype=x.dtype),
    "a scalar": lambda x, n: torch.scalar_tensor(n, dtype=x.dtype),
    "full": lambda x, n: torch.full_like(x, n),
    "at least": lambda x, n: x.clamp(min=n),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float16, torch.bool], ids=str)
@pytest.mark.parametrize("name", OF_ARGUMENTS)
def test_whole_numbers_that_vary(name, dtype):
    """`torch.tensor(2**40, dtype=torch.int8)` was a zero, and of float16 a zero, too."""
    program = OF_ARGUMENTS[name]
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    x = torch.tensor([1, 0, 2]).to(dtype)
    for number in (3, 300, -1, -300, 2**31, 2**40, 70_000, 5):
        found = []
        for function in (program, compiled):
            try:
                found.append(function(x.clone(), number))
            except RuntimeError as error:
                assert "overflow" in str(error)
                found.append(None)
        ours, theirs = found
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype


CONVERTED = {
    "full_like": torch.full_like, "fill": torch.fill, "masked_fill": lambda x, n: x.masked_fill(x == x, n),
    "clamp": lambda x, n: x.clamp(max=n), "threshold": lambda x, n: torch.threshold(x, 0, n), "add": lambda x, n: x + n,
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype), "fill_": lambda x, n: x.fill_(n),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERTED)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 3])
def test_numbers_given_to_the_call(name, dtype, size):
    """Eager refuses some for the type alone: tensors without elements refuse them, too."""
    program = CONVERTED[name]
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for number in (-2.0, 2, 1e300, 300, float("nan"), float("inf"), 0.5):
        outcomes = []
        for function in (program, compiled):
            try:
                outcomes.append(function(torch.arange(size).to(dtype), number))
            except RuntimeError as error:
                outcomes.append(type(error))
        if outcomes[0] is RuntimeError or outcomes[1] is RuntimeError:
            assert outcomes[1] is outcomes[0], number
        elif dtype.is_floating_point:
            torch.testing.assert_close(outcomes[1], outcomes[0], equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("program", [lambda x, n: x**n, torch.pow, lambda x, n: x.clone().pow_(n)])
def test_exponents_that_vary(program, dtype):
    """Of `x ** n`, too, which is recorded as a power of two tensors."""
    compiled = lampwork.compile(lambda x, n: program(x, n), dynamic=True, options={"cache": False})
    x = torch.tensor([0.5, 0.75, 1.0], dtype=dtype)
    for number in (2.0, -1e30, 1e30, 1e39, float("inf"), 3.0):
        found = []
        for function in (program, compiled):
            try:
                found.append(function(x, number))
            except RuntimeError as error:
                assert "overflow" in str(error)
                found.append(None)
        ours, theirs = found[1], found[0]
        assert (ours is None) == (theirs is None), number
        if theirs is not None:
            torch.testing.assert_close(ours, theirs)


aten = torch.ops.aten
TAKEN = {
    "weight": lambda x, n: x.lerp(x, n), "weight in place": lambda x, n: x.clone().lerp_(x, n),
    "product": lambda x, n: x.addcmul(x, x, value=n), "quotient": lambda x, n: x.clone().addcdiv_(x, x, value=n),
    "factor": lambda x, n: x.add(x, alpha=n), "factor of a number": lambda x, n: x.add(1, alpha=n),
    "from": lambda x, n: x.sub(x, alpha=n), "product of matrices": lambda x, n: torch.addmm(x, x, x, beta=n),
    "filled": lambda x, n: x.clone().index_fill_(0, torch.tensor([0]), n),
    "derivative": lambda x, n: aten.hardshrink_backward(x, x, n), "slope": lambda x, n: F.leaky_relu(x, n),
    "scale": lambda x, n: aten.elu_backward(x, n, 1, 1, False, x), "steepness": lambda x, n: F.softplus(x, n),
    "power of a whole number": lambda x, n: x.to(torch.int32) ** n, "threshold": lambda x, n: F.threshold(x, n, 0),
    "width": lambda x, n: aten.softshrink(x, n), "left over": lambda x, n: x.remainder(n),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", TAKEN)
def test_every_operator_that_takes_numbers(name, dtype, dynamic):
    """Which numbers an operator takes says its kernel."""
    program = TAKEN[name]
    for numbers in ((2.0, 70000.0, 1.5, -1e39, 3.4e38, 1e300, float("inf"), 0.5), (2, 300, 70_000, -(2**40), 2**62, 3)):
        compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False, "recompile_limit": 16})
        for number in numbers:
            found = []
            for function in (program, compiled):
                try:
                    found.append(function(torch.ones(2, 2, dtype=dtype), number))
                except (RuntimeError, NotImplementedError) as error:
                    found.append(type(error))
            if isinstance(found[0], type) or isinstance(found[1], type):
                assert found[0] is found[1], number
            else:
                torch.testing.assert_close(found[1], found[0], equal_nan=True)
