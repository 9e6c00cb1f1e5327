"""Integers and numbers that vary from call to call: a first entry for the call at hand, and one for all the others."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import lampwork
from lampwork.ir.number_operations import FUNCTIONS_OF_ONE
from tests.dynamic.support import check, compare, copies
from tests.python.warm import run_cold_and_warm

INTEGERS = (3, 5, 4, 7, 9, 6)
NUMBERS = (0.1, 0.2, 0.25, 0.3, 0.5, 0.7)
X = torch.randn(12, 10, generator=torch.Generator().manual_seed(1))
PLACES = torch.tensor([2, 0, 2])


def written(x, n):
    x = x * 2
    x[n] = 1.5
    x[:, -n] += 1
    x[n, 2] = x[2, n]
    return x


def taken(x, n):
    return x[n], x[-n], x[..., n], x[n, -n], x[None, :, n], x[n, 1:], x[n, None, ...], x[2:, n, None]


def beside_other_indices(x, n):
    return x[n, x[0] > 0], x[PLACES, n], x[n, PLACES], x[:, n][PLACES], x[n][n]


def scaled(x, n, alpha=0.25):
    return x + alpha * n, x * n, x / n, torch.add(x, x, alpha=n)


INDICES = {
    "an element": lambda x, n: x[n] * 2,
    "from the end": lambda x, n: x[:, -n] + 1,
    "in any place": taken,
    "beside tensors": beside_other_indices,
    "written": written,
    "a factor": scaled,
    "none of them": lambda x, n: (x[None] * n, x[()] + n, x[...] - n),
    "more dimensions": lambda x, n: x.new_zeros(x.shape + (n,)) + x[..., None],
    "expanded": lambda x, n: x.unsqueeze(-1).expand(x.shape + (n,)) * 2,
}

FUNCTIONS = {
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "leaky_relu of halves": lambda x, s: F.leaky_relu(x.bfloat16(), s),
    "leaky_relu in place": lambda x, s: F.leaky_relu_(x * 2, s),
    "addmm": lambda x, s: torch.addmm(x[:, :4], x, x[:10, :4], alpha=s, beta=1 - s),
    "addmm, one factor": lambda x, s: torch.addmm(x[0], x, x[:10], alpha=s),
    "addmv": lambda x, s: torch.addmv(x[:, 0], x, x[0], beta=s),
    "addr": lambda x, s: torch.addr(x, x[:, 0], x[0], alpha=s),
    "baddbmm": lambda x, s: torch.baddbmm(x[None, :, :4], x[None], x[None, :10, :4], alpha=s),
    "elu": lambda x, s: F.elu(x * 4, s),
    "elu of halves": lambda x, s: F.elu(x.bfloat16(), s),
    "elu in place": lambda x, s: F.elu_(x * 2, s),
    "celu": lambda x, s: F.celu(x * 4, s),
    "softplus": lambda x, s: F.softplus(x * 4, s),
    "softplus with a threshold": lambda x, s: F.softplus(x * 4, 1 / s, s),
    "softplus of halves": lambda x, s: F.softplus(x.bfloat16(), s),
}

COMPUTED = {
    "an index": lambda x, s: x[int(s * 10)] * 2,
    "a slice": lambda x, s: x[: int(s * len(x))].sum(0),
    "rounded": lambda x, s: x[round(s * 10) :] + 1,
    "a size": lambda x, s: x.new_zeros(math.floor(s * 20)) + 1,
    "a factor": lambda x, s: (x * math.ceil(s * 20), math.ceil(s * 20), -math.ceil(s * 20) // 2),
    "of an integer": lambda x, s: x[: math.ceil((int(s * 40) + 9) / 4)] * 2,
}


@pytest.mark.parametrize("name", INDICES)
def test_integers(name):
    check(INDICES[name], [(X, n) for n in INTEGERS], captures=2, dynamic=None)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers(name):
    check(FUNCTIONS[name], [(X, s) for s in NUMBERS], captures=2, dynamic=None)


@pytest.mark.parametrize("name", COMPUTED)
def test_integers_made_of_numbers(name):
    check(COMPUTED[name], [(X, s) for s in (0.2, 0.21, 0.25, 0.33, 0.5, 0.7)], captures=2, dynamic=None)


@pytest.mark.parametrize("program", [
    lambda x: x[: math.ceil(len(x) / 2)] * 2, lambda x: x[: int(len(x) * 0.75)].sum(),
    lambda x: (x[round(len(x) / 3) :], round(len(x) / 3)),
])  # fmt: skip
def test_integers_made_of_sizes(program):
    check(program, [(torch.arange(float(n)),) for n in (10, 12, 17, 33, 40, 21)], captures=2, dynamic=None)


def test_integers_made_of_numbers_that_have_none():
    """NaN and infinities are eager's errors; 0 and 1 have entries of their own."""

    def program(x, s):
        return x[int(s)] * 2

    compiled = lampwork.compile(program, options={"cache": False})
    for s in (2.5, 3.5, math.nan, 1e300, math.inf, 7.5, 99.0, 0.5, 1.5, -1.5):
        outcomes = []
        for run in (compiled, program):
            try:
                outcomes.append(run(X, s))
            except (ArithmeticError, ValueError, IndexError) as error:
                outcomes.append(f"{type(error)} {error}")
        compare(*outcomes)


def test_integers_made_of_numbers_in_another_process(tmp_path):
    cold, warm = run_cold_and_warm(tmp_path, STORED_INTEGER)
    assert cold[:-1] == warm[:-1] and cold[-1] == "2 0" and warm[-1] == "0 1"


STORED_INTEGER = """
import torch
import lampwork

@lampwork.compile
def program(x, s):
    return x[: int(s * len(x))] + 1

for s in (0.5, 0.25, 0.75):
    print(program(torch.ones(12), s).tolist())
stats = lampwork.stats(program)
print(stats["captures"], stats["cache_hits"])
"""


DROPOUTS = {
    "dropout": lambda x, p: F.dropout(x * 2, p),
    "of halves": lambda x, p: (F.dropout(x.bfloat16(), p), F.dropout(x.double(), p)),
    "in another order": lambda x, p: F.dropout(x.t(), p),
    "in place": lambda x, p: F.dropout((x * 2)[:, ::2], p, inplace=True),
    "not in training": lambda x, p: F.dropout(x, p, training=False) + 1,
    "computed": lambda x, p: F.dropout(x, 1 - p * 0.5),
    "of nothing": lambda x, p: F.dropout(x[:0], p),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_draws_what_eager_draws(name):
    program = DROPOUTS[name]
    compiled = lampwork.compile(program, options={"cache": False})
    for p in NUMBERS:
        outcomes = []
        for run in (compiled, program):
            torch.manual_seed(3)
            x = X.clone().requires_grad_()
            found = run(x, p)
            whole = sum(each.double().sum() for each in (found if type(found) is tuple else (found,)))
            outcomes.append([found, torch.autograd.grad(whole, x), torch.rand(2)])
        compare(*outcomes)
    assert lampwork.stats(compiled)["captures"] <= 2 and not lampwork.stats(compiled)["fallbacks"]


def test_dropout_of_all_of_nothing_and_of_what_is_no_probability():
    """Each of 0 and 1 has an entry of its own; what is out of range is eager's error."""

    def program(x, p):
        return torch.dropout(x, p, True)

    compiled = lampwork.compile(program, options={"cache": False})
    for p in (0.5, 0.25, 0.0, 1.0, 0.75, 0.0):
        torch.manual_seed(3)
        expected = program(X, p)
        torch.manual_seed(3)
        compare(compiled(X, p), expected)
    assert lampwork.stats(compiled)["captures"] <= 4
    for p in (-0.5, 1.5, math.nan):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            compiled(X, p)


def test_dropout_of_sizes_that_vary():
    compiled = lampwork.compile(DROPOUTS["in another order"], options={"cache": False})
    for p, size in zip(NUMBERS, INTEGERS):
        x = torch.randn(size, size + 2)
        torch.manual_seed(3)
        expected = DROPOUTS["in another order"](x, p)
        torch.manual_seed(3)
        compare(compiled(x, p), expected)
    assert lampwork.stats(compiled)["captures"] <= 2


def test_dropout_in_another_process(tmp_path):
    cold, warm = run_cold_and_warm(tmp_path, STORED)
    assert cold[:-1] == warm[:-1] and cold[-1] == "2 0" and warm[-1] == "0 1"  # the entry for all of them


STORED = """
import torch
import lampwork
from torch.nn import functional as F

@lampwork.compile
def program(x, p):
    return F.dropout(x, p)

for p in (0.5, 0.25, 0.125):
    torch.manual_seed(1)
    print(program(torch.ones(6), p).tolist())
stats = lampwork.stats(program)
print(stats["captures"], stats["cache_hits"])
"""


@pytest.mark.parametrize("program", [INDICES["an element"], INDICES["from the end"], written,
                                     FUNCTIONS["leaky_relu"], FUNCTIONS["addmm"], FUNCTIONS["elu"],
                                     FUNCTIONS["softplus with a threshold"]])  # fmt: skip
def test_gradients(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for value in INTEGERS if program not in FUNCTIONS.values() else NUMBERS:
        found, expected = ([x, *torch.autograd.grad(run(x, value).square().sum(), x)] for run in (compiled, program)
                           for x in [X.clone().requires_grad_()])  # fmt: skip
        compare(found, expected, rtol=1e-5, atol=1e-6)
    assert lampwork.stats(compiled)["captures"] <= 2 and not lampwork.stats(compiled)["fallbacks"]


def test_places_that_are_not_there():
    """Eager's error, for an entry that was made for other integers, too."""
    for program in (lambda x, n: x[n] * 2, lambda x, n: x[:, -n], lambda x, n: x[n, n, n], written):
        compiled = lampwork.compile(program, options={"cache": False})
        for n in (3, 5, 4, 40, 6):
            outcomes = []
            for run in (compiled, program):
                try:
                    outcomes.append(run(copies(X), n))
                except IndexError as error:
                    outcomes.append(str(error))
            assert type(outcomes[0]) is type(outcomes[1])
            compare(*outcomes)


def test_factors_with_which_kernels_read_nothing():
    """A factor of zero hides NaN and infinities; so does each entry for it."""

    def program(x, s):
        return torch.addmm(x, x, x, beta=s), torch.addmm(x, x, x, alpha=s)

    x = torch.tensor([[1.0, math.inf], [math.nan, 2.0]])
    check(program, [(x, s) for s in (0.5, 0.25, 0.0, 2.0, -0.0)], captures=4, dynamic=None)


@pytest.mark.parametrize("program", [
    lambda x, places: x.new_zeros(int(places.max()) + 1) + 1,
    lambda x, places: torch.zeros(int(places.max()) * 2 + 3, 4).index_fill(0, places, 1.0),
    lambda x, places: F.pad(x, (0, int(places[0]) + int(places[1]))),
    lambda x, places: x[: int(places.max()) + 1].sum(0),
])  # fmt: skip
def test_sizes_computed_of_integers_out_of_tensors(program):
    calls = [(X, torch.tensor([n, n // 2, 1])) for n in INTEGERS]
    stats = check(program, calls, captures=2, dynamic=None)
    assert not stats["breaks"]
    check(program, [*calls[:2], (X, torch.tensor([1, 0, 0]))], captures=2, dynamic=None)


@pytest.mark.parametrize("function", sorted(FUNCTIONS_OF_ONE, key=str))
def test_functions_of_numbers_out_of_tensors(function):
    """They are computed when the graph has run."""
    more = 1.0 if function is math.acosh else 0.0
    calls = [(torch.tensor(each + more, dtype=torch.float64),) for each in (0.5, 0.25)]
    assert not check(lambda x: function((x * 1.25).item()), calls, dynamic=None)["breaks"]


def test_a_sum_that_is_no_size():
    """One of its parts is negative: the call does what eager does, be the sum a size or not."""

    def program(x, places):
        return x.new_zeros(int(places.max()) + 1)

    compiled = lampwork.compile(program, options={"cache": False})
    for largest in (3, -1, 4):
        places = torch.tensor([largest])
        compare(compiled(X, places), program(X, places))
    with pytest.raises(RuntimeError, match="negative dimension"):
        compiled(X, torch.tensor([-4]))
