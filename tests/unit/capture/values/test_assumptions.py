"""Branches on tensor contents that raise on one side: the other side is assumed, checked at run time, before any write.

PYTEST_DONT_REWRITE: pytest's asserts have branches of their own.
"""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest
import torch

import lampwork
from lampwork.errors import GraphBreak, LampworkWarning

X = torch.tensor([1.0, 2.0, 3.0])
GOOD, BAD = torch.tensor([0, 2]), torch.tensor([1, 9])


def compiled(program, **options):
    lampwork.reset()
    return lampwork.compile(program, fullgraph=True, options={"cache": False, **options})


def raises_on_true(x, ids):
    if (ids > 2).any():
        raise ValueError(f"bad: {ids.tolist()}")
    return x[ids] * 2


def raises_on_false(x, ids):
    if not (ids < 3).all():
        raise ValueError(f"bad: {ids.tolist()}")
    return x[ids] * 2


def asserts(x, ids):
    assert (ids < 3).all(), f"bad: {ids.tolist()}"
    return x[ids] * 2


def counts(x, ids):
    if (ids > 2).sum():  # an integer, not a bool
        raise ValueError(f"bad: {ids.tolist()}")
    return x[ids] * 2


def uses_check(x, ids):
    torch._check_tensor_all(ids < 3, lambda: f"bad: {ids.tolist()}")
    return x[ids] * 2


def uses_check_with(x, ids):
    torch._check_tensor_all_with(ValueError, ids < 3, lambda: f"bad: {ids.tolist()}")
    torch._check(len(ids) == 2, lambda: "two of them")
    return x[ids] * 2


def asserts_a_number(x, ids):
    assert ids.max().item() < 3, f"bad: {ids.tolist()}"
    return x[ids] * 2


def asserts_a_range(x, ids):
    assert 0 <= int(ids.max()) < len(x)
    return x[ids] * 2


def asserts_two_numbers(x, ids):
    if not ids.sum().item() >= ids.max().item():
        raise ValueError("large")
    assert ids.max().item() < 3
    return x[ids] * 2


def inverse(x, ids):
    size = (9.0 - ids.max()).reciprocal().item()
    if math.isinf(size):
        raise FloatingPointError(size)
    return x[ids]


@pytest.mark.parametrize(
    "program",
    [
        raises_on_true, raises_on_false, asserts, counts, uses_check, uses_check_with, asserts_a_number,
        asserts_a_range, asserts_two_numbers, inverse,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_one_graph_and_the_programs_own_error(program):
    function = compiled(program)
    assert torch.equal(function(X, GOOD), program(X, GOOD))
    with pytest.raises(Exception) as expected:
        program(X, BAD)
    with pytest.raises(Exception) as found:
        function(X, BAD)
    assert (type(found.value), found.value.args) == (type(expected.value), expected.value.args)
    assert torch.equal(function(X, GOOD), program(X, GOOD))
    stats = lampwork.stats(function)
    assert stats["captures"] == 1 and not stats["fallbacks"]


def test_the_first_call_may_be_the_one_that_fails():
    function = compiled(raises_on_true)
    with pytest.raises(ValueError, match="bad: "):
        function(X, BAD)
    assert torch.equal(function(X, GOOD), X[GOOD] * 2)
    assert lampwork.stats(function)["captures"] == 1


def test_nothing_is_written_when_the_check_fails():
    def program(x, ids, out, log):
        log.append(1)
        if (ids > 2).any():
            raise ValueError
        out += x[ids]
        log.append(2)
        return out * 2

    function = compiled(program)
    out, log = torch.zeros(2), []
    function(X, GOOD, out, log)
    assert out.tolist() == [1.0, 3.0] and log == [1, 2]
    with pytest.raises(ValueError):
        function(X, BAD, out, log)
    assert out.tolist() == [1.0, 3.0] and log == [1, 2, 1]


def test_a_check_that_is_caught_takes_the_other_side():
    def program(x, ids):
        try:
            if (ids > 2).any():
                raise ValueError
            return x[ids]
        except ValueError:
            return x.sum()

    function = compiled(program)
    assert torch.equal(function(X, GOOD), X[GOOD])
    with pytest.warns(LampworkWarning, match="test_assumptions.py"):
        assert torch.equal(function(X, BAD), X.sum())
    (fallback,) = lampwork.stats(function)["fallbacks"]
    assert fallback.id == "assumption-failed"


def test_inputs_stay_as_they_were_where_a_check_after_a_write_fails():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.register_buffer("calls", torch.zeros(1))
            self.caught = 0

        def forward(self, x, ids):
            self.calls += 1
            x = self.norm(x)
            try:
                if (ids > 2).any():
                    raise ValueError("bad")
            except ValueError:
                self.caught += 1
                if self.caught > 1:
                    raise
            return x.mul_(2)

    mine, other = Counts(), Counts()
    function = compiled(other)
    for ids in (GOOD, BAD, GOOD, BAD, BAD):
        outcomes = []
        for module, call in ((mine, mine), (other, function)):
            with contextlib.suppress(LampworkWarning):
                try:
                    outcomes.append(call(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), ids).detach())
                except ValueError as error:
                    outcomes.append(str(error))
        assert str(outcomes[0]) == str(outcomes[1]) and mine.caught == other.caught
        for one, same in zip(mine.state_dict().values(), other.state_dict().values()):
            torch.testing.assert_close(one, same)
    assert lampwork.stats(function)["calls"] == 5 and not lampwork.stats(function)["breaks"]


def test_both_sides_that_go_on_and_both_that_raise_break():
    def both_go_on(x, ids):
        return x * 2 if (ids > 2).any() else x

    def loops(x, ids):
        if (ids > 2).any():
            for each in ids:
                x = x + each
            raise ValueError
        return x

    for program in (both_go_on, loops):
        with pytest.raises(GraphBreak, match="data-dependent"):
            compiled(program)(X, GOOD)


def test_distributions_check_their_parameters():
    def program(x):
        return torch.distributions.Normal(x, x).log_prob(x + 1)

    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(True)  # importing torch._dynamo switches it off
    try:
        function = compiled(program)
        assert torch.allclose(function(X), program(X))
        with warnings.catch_warnings(), pytest.raises(ValueError, match="to satisfy the constraint"):
            function(-X)
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)


def test_a_message_made_of_contents_costs_nothing():
    def program(x, ids):
        found = ids.sum()
        torch._check_tensor_all(found < 9, lambda: "")
        message = f"found {found} of {len(x)}, {ids!r:>8}"
        if found > 5:
            raise ValueError(message)
        return x * 2

    function = compiled(program)
    assert torch.equal(function(X, GOOD), X * 2)
    with pytest.raises(ValueError) as expected:
        program(X, torch.tensor([3, 4]))
    with pytest.raises(ValueError) as found:
        function(X, torch.tensor([3, 4]))
    assert found.value.args == expected.value.args


@pytest.mark.parametrize(
    "program",
    [
        lambda x: f"{x.sum()}",
        lambda x: f"{x}" + "!",
        lambda x: "now: " + repr(x) + f"{x.sum():.2f}{x!r}",
        lambda x: "{0} {1:.1f} {0}".format(x, x.sum()),
        lambda x: "%s and %5.1f" % (x, x.sum()),
        lambda x: str([x, {"a": (x.sum().item(),)}]),
        lambda x: ", ".join([str(each.item()) for each in x]),
        lambda x: ValueError(f"{x}").args,
    ],
)
def test_text_of_contents_is_made_behind_the_graph(program):
    function = compiled(program)
    for each in (X, X * 2):
        assert function(each) == program(each)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: len(f"{x}"),
        lambda x: f"{x}" == "tensor(3.)",
        lambda x: {f"{x}": 1},
        lambda x: x.sum() + 1 if f"{x}" else x.sum(),
        lambda x: [letter for letter in f"{x}"],
        lambda x: int(f"{x.sum():.0f}"),
        lambda x: str(x).upper(),
        lambda x: repr(x) in ("", "tensor"),
        lambda x: "{:>{}}".format(x.sum(), x.dim()),
        lambda x: "%d" % x.sum(),
        lambda x: "a".startswith(str([x])),
        lambda x: f"{x}"[3:5],
    ],
)
def test_text_of_contents_that_is_looked_at_breaks(program):
    """Once a compiled function returned the text of its stand-in for the tensor."""
    with pytest.raises(GraphBreak):
        compiled(program)(X)
    lampwork.reset()
    function = lampwork.compile(program, options={"cache": False})
    assert function(X) == program(X) and function(X) == program(X)


def clamps(x):
    h = x * 2
    if not torch.isfinite(h).all():
        h = torch.nan_to_num(h, 5.0, 7.0, 7.0)
    return h + 1


def skips(x):
    loss = x.sum()
    if torch.isnan(loss) or torch.isinf(loss):
        return None
    return x - loss


def either(x):
    if torch.logical_or(torch.isnan(x).any(), x.isinf().any()):
        return x.nan_to_num()
    return x * 3


def not_itself(x):
    loss = x.mean()
    if not loss == loss:
        return x * 0
    return x + loss


@pytest.mark.parametrize("program", [clamps, skips, either, not_itself], ids=lambda f: f.__name__)
def test_numbers_are_assumed_to_be_finite(program):
    """What a program does about numbers that are not is done by eager."""
    function = compiled(program)
    for value, times in ((1.0, 2), (float("nan"), 2), (3.0, 2)):
        argument = torch.tensor([1.0, value, 3.0])
        for _ in range(times):
            found, expected = function(argument), program(argument)
            assert (found is None) is (expected is None)
            if expected is not None:
                torch.testing.assert_close(found, expected, equal_nan=True)
    stats = lampwork.stats(function)
    assert stats["captures"] == 1
    (fallback,) = stats["fallbacks"]
    assert fallback.id == "assumption-failed" and fallback.count == 2


def test_other_tests_are_not_assumed():
    def compared(x):
        return x * 2 if (x == x.flip(0)).all() else x

    def large(x):
        return x * 2 if (x.abs() != 3.0).all() else x

    for program in (compared, large):
        with pytest.raises(GraphBreak, match="data-dependent"):
            compiled(program)(X)


def test_a_float_out_of_a_tensor_is_compared_with_an_integer():
    def program(x):
        total = x.sum().item()
        torch._check(total < 100)
        torch._check_value(total > -1, lambda: f"negative: {total}")
        return x * total

    function = compiled(program)
    for x in (torch.ones(3), torch.full((3,), 0.5)):
        torch.testing.assert_close(function(x), program(x))
    with pytest.raises(ValueError, match="negative: -3.0"):
        function(-torch.ones(3))
    assert lampwork.stats(function)["captures"] == 1
