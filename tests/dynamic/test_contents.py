"""Sizes that the contents of tensors decide: one program for whatever a mask picks, nothing and one element included."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import lampwork

WEIGHT = torch.linspace(-1, 1, 35).reshape(5, 7)


def _inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    one = torch.zeros(6, 5)
    one[2, 3] = one[4, 0] = 1.0
    return [torch.randn(6, 5), torch.zeros(6, 5), one, torch.randn(6, 5), torch.ones(6, 5)]


def _equal(expected: Any, found: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert type(expected) is type(found) and len(expected) == len(found)
        for pair in zip(expected, found):
            _equal(*pair)
    elif isinstance(expected, torch.Tensor):
        assert expected.shape == found.shape and expected.dtype == found.dtype
        if expected.numel():
            kept = [dim for dim, size in enumerate(expected.shape) if size > 1]
            assert [expected.stride(dim) for dim in kept] == [found.stride(dim) for dim in kept]
        torch.testing.assert_close(expected, found, equal_nan=True)
    else:
        assert type(expected) is type(found) and expected == found


def _check(program: Callable, fullgraph: bool = False) -> dict[str, Any]:
    compiled = lampwork.compile(program, fullgraph=fullgraph, options={"cache": False})
    with torch.no_grad():
        for x in _inputs():
            _equal(program(x.clone()), compiled(x.clone()))
    return lampwork.stats(compiled)


def _rows(x):
    return x[x[:, 0] > 0]


def _experts(x):
    total = torch.zeros(6, 7)
    for expert in range(3):
        rows = torch.nonzero(x[:, 0] > expert * 0.3).flatten()
        total.index_add_(0, rows, (x[rows] @ WEIGHT) * x[rows, 0, None])
    return total


def _written(x):
    rows = _rows(x)
    rows.mul_(2)
    rows[:, 0] = 1.0
    return rows


def _scattered(x):
    total = torch.zeros(6, 7)
    for expert in range(3):
        (rows,) = torch.where(x[:, 0] > expert * 0.3)
        total[rows] = x[rows] @ WEIGHT
    return total


def _one_hot_experts(x):
    weight, chosen = (x @ WEIGHT).softmax(-1).topk(2)
    mask = F.one_hot(chosen, 7).permute(2, 1, 0)
    total = torch.zeros_like(x)
    for expert in range(7):
        place, row = torch.where(mask[expert])
        total.index_add_(0, row, x[row] * expert * weight[row, place, None])
    return total


def _inverse(x):
    values, places, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
    return values[places], counts.float() / counts.sum()


WHOLE = {
    "mask": lambda x: x[x > 0] * 2 + 1,
    "masks of one condition": lambda x: x[x > 0] * x.exp()[x > 0],
    "masked_select": lambda x: (x.masked_select(x > 0), x.masked_select(x[0] > 0)),
    "places": lambda x: (x > 0).nonzero().float().mean(0),
    "where": lambda x: [each + 1 for each in torch.where(x > 0)],
    "rows": lambda x: (_rows(x) @ WEIGHT).relu().sum(0),
    "normalised": lambda x: F.layer_norm(_rows(x), (5,)),
    "softmax": lambda x: _rows(x).softmax(-1) @ torch.ones(5, 3),
    "statistics": lambda x: (x[x > 0].mean(), x[x > 0].std(), x[x > 0].sum()),
    "extremes": lambda x: (_rows(x).max(1).values, _rows(x).amax(-1), _rows(x).argmin(1)),
    "slices": lambda x: (_rows(x)[:2], x[x > 0][1:], x[x > 0][:-1], _rows(x)[-2:]),
    "sorted": lambda x: (x[x > 0].sort().values, x[x > 0].cumsum(0)),
    "joined": lambda x: (torch.cat([x[x > 0], torch.ones(3)]), torch.cat([_rows(x), x[x[:, 1] > 0]])),
    "stacked": lambda x: (torch.stack([x[x > 0], x[x > 0] * 2]), torch.stack([x[x > 0], x[x > 0] * 2], 1)),
    "made": lambda x: (
        torch.zeros(_rows(x).shape[0], 3) + 1,
        torch.arange(x[x > 0].numel()),
        torch.ones_like(_rows(x)),
    ),
    "share": lambda x: (x[x > 0].numel() / x.numel(), len(_rows(x)) * 0.5),
    "scattered": lambda x: _scattered(x),
    "numbers": lambda x: (x[x > 0].numel(), _rows(x).shape[0] * 2, _rows(x).size(0) == 1),
    "transposed": lambda x: _rows(x).t() * 2,
    "reshaped": lambda x: x[x > 0].reshape(-1, 1) + torch.arange(3.0),
    "expanded": lambda x: (_rows(x).expand(3, -1, -1), _rows(x).repeat(1, 2), _rows(x).unsqueeze(1) * x),
    "padded": lambda x: (F.pad(_rows(x), (1, 1)), _rows(x).flip(0), _rows(x).split(2, 1)),
    "unique": lambda x: (torch.unique(x), torch.unique_consecutive(x[0])),
    "unique rows": lambda x: torch.unique(x.round(), dim=0),
    "inverse": _inverse,
    "counted": lambda x: torch.bincount((x > 0).long().flatten(), minlength=5),
    "repeated": lambda x: torch.repeat_interleave(torch.arange(5.0), (x[0] > 0).long() + 1),
    "columns": lambda x: x[:, x[0] > 0] + 1,
    "experts": _experts,
    "experts by one-hot": _one_hot_experts,
    "written": _written,
    "index of places": lambda x: x.index_select(0, (x[:, 0] > 0).nonzero().squeeze(-1)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_serves_all_contents(name):
    stats = _check(WHOLE[name], fullgraph=True)
    assert stats["captures"] == 1 and not stats["fallbacks"]


def _branch(x):
    rows = (x[:, 0] > 0).nonzero()
    return x * 0 if rows.shape[0] == 0 else x[rows[:, 0]].sum(0)


def _loop(x):
    return sum((row * 2 for row in _rows(x)), torch.zeros(5))


def _text(x):
    count = (x > 0).nonzero().shape[0]
    return f"{count}", [0] * count, count / 2, float(count)


@pytest.mark.parametrize("program", [_branch, _loop, _text])
def test_what_looks_at_the_number_breaks(program):
    assert _check(program)["breaks"]


def test_an_assumption_that_fails_is_made_once():
    """`cdist` asks whether there is anything to compare."""

    def program(x):
        rows = _rows(x)
        return torch.cdist(rows, x), rows.sum()

    (failed,) = _check(program)["fallbacks"]
    assert failed.id == "assumption-failed" and failed.count == 1


def test_draws_are_taken_back():
    def program(x):
        drawn = torch.rand(3)
        return torch.cdist(_rows(x), x), drawn, torch.rand(2)

    compiled = lampwork.compile(program, options={"cache": False})
    for x in _inputs():
        torch.manual_seed(3)
        expected, state = program(x), torch.get_rng_state()
        torch.manual_seed(3)
        _equal(expected, compiled(x))
        assert torch.equal(state, torch.get_rng_state())
    stats = lampwork.stats(compiled)
    assert [each.id for each in stats["fallbacks"]] == ["assumption-failed"]


def test_a_failed_check_after_draws_leaves_generators_as_eager_does():
    def program(x):
        noise = torch.randn(6, 5)
        if not (x + noise < 100).all():
            raise ValueError("too large")
        return x + noise, torch.rand(1)

    compiled = lampwork.compile(program, options={"cache": False})
    torch.manual_seed(1)
    compiled(torch.ones(6, 5))
    for large in (False, True):
        states = []
        for function in (program, compiled):
            torch.manual_seed(2)
            with contextlib.suppress(ValueError):
                function(torch.full((6, 5), 1000.0 if large else 1.0))
            states.append(torch.get_rng_state())
        assert torch.equal(*states)
    assert not lampwork.stats(compiled)["breaks"]


def test_draws_and_writes_wait_for_what_is_assumed():
    def program(x):
        distance = torch.cdist(_rows(x), x)
        x.add_(1)
        return distance.sum(), torch.rand(3)

    compiled = lampwork.compile(program, options={"cache": False})
    for x in _inputs():
        torch.manual_seed(3)
        mine, other = x.clone(), x.clone()
        expected = program(mine)
        torch.manual_seed(3)
        _equal(expected, compiled(other))
        _equal(mine, other)


def test_a_check_comes_before_a_draw():
    def program(x):
        if not (x > 0).all():
            raise ValueError("not positive")
        return x + torch.randn(6, 5)

    compiled = lampwork.compile(program, options={"cache": False})
    compiled(torch.ones(6, 5))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="not positive"):
        compiled(torch.zeros(6, 5))
    assert torch.equal(state, torch.get_rng_state())


def test_with_sizes_of_the_call_that_vary():
    def program(x):
        return (x[x[:, 0] > 0] @ WEIGHT).relu() + x.shape[0]

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    torch.manual_seed(0)
    for rows in (5, 9, 2, 30):
        x = torch.randn(rows, 5)
        _equal(program(x), compiled(x))
    assert lampwork.stats(compiled)["captures"] <= 2


COUNTS = {
    "made": lambda n, x: (torch.zeros(n.item(), 3) + 1, torch.arange(int(n)) + n, torch.full((int(n),), 2.5)),
    "sliced": lambda n, x: (x[: int(n)] * 2, x[int(n) :].sum()),
    "split": lambda n, x: [part.sum(0) for part in x.split([n.item(), (6 - n).item()])],
    "narrowed": lambda n, x: x.narrow(0, 0, n.item()) + 1,
    "mask of lengths": lambda n, x: torch.arange(int(n.max()))[None, :] < n.reshape(-1, 1),
    "used twice": lambda n, x: (torch.ones(n.item()), x[: n.item()], n.item()),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_number_in_a_tensor_is_a_size(name):
    program = COUNTS[name]
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    x = torch.arange(24.0).reshape(6, 4)
    for count in (3, 0, 1, 4):
        _equal(program(torch.tensor(count), x), compiled(torch.tensor(count), x))
    stats = lampwork.stats(compiled)
    assert stats["captures"] == 1 and not stats["fallbacks"]


def test_a_negative_number_is_no_size():
    def program(n, x):
        return x[: n.item()], torch.rand(2)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.arange(24.0).reshape(6, 4)
    for count in (2, -2, -1, 3):
        torch.manual_seed(0)
        expected = program(torch.tensor(count), x)
        torch.manual_seed(0)
        _equal(expected, compiled(torch.tensor(count), x))
    made = lampwork.compile(lambda n: torch.zeros(n.item()), options={"cache": False})
    made(torch.tensor(2))
    with pytest.raises(RuntimeError, match="negative"):
        made(torch.tensor(-2))


class _Routed(torch.nn.Module):
    """Each expert gets the rows that are routed to it."""

    def __init__(self, expert_of: Callable) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(5))
        self.expert_of = expert_of

    def forward(self, x, route):
        return self.expert_of(self.experts, x, route)


def _by_places(experts, x, route):
    total = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        places = (route == number).nonzero().squeeze(-1)
        total.index_add_(0, places, expert(x[places]))
    return total


def _by_masks(experts, x, route):
    total = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        mask = route == number
        total[mask] = total[mask] + expert(x[mask])
    return total


def _by_conditions(experts, x, route):
    total = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        (places,) = torch.where(route == number)
        total[places] += expert(x[places])
    return total


def _by_counts(experts, x, route):
    order = route.argsort(stable=True)
    counts = torch.bincount(route, minlength=len(experts)).tolist()
    parts = [expert(part) for expert, part in zip(experts, x[order].split(counts))]
    return torch.empty_like(x).index_copy(0, order, torch.cat(parts))


def _where_any(experts, x, route):
    total = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        places = (route == number).nonzero().squeeze(-1)
        if places.numel() == 0:
            continue
        total.index_add_(0, places, expert(x[places]))
    return total


_ROUTES = [[0, 1, 2, 3, 4, 0, 1, 2, 3], [0] * 9, [4] * 9, [0, 1] * 4 + [2], [2] * 8 + [1], [3, 3, 1, 1, 1, 4, 4, 4, 4]]


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "captures, expert_of", [(1, _by_places), (1, _by_masks), (1, _by_conditions), (1, _by_counts), (13, _where_any)]
)
def test_experts(expert_of, captures, trained):
    """One program whatever the routes, experts without rows and with one among them."""
    mine, theirs = _Routed(expert_of), _Routed(expert_of)
    compiled = lampwork.compile(mine, options={"cache": False})
    for route in map(torch.tensor, _ROUTES):
        x = torch.linspace(-1, 1, 72).reshape(9, 8)
        with torch.set_grad_enabled(trained):
            found, expected = compiled(x, route), theirs(x, route)
            torch.testing.assert_close(found, expected)
            if trained:
                found.square().sum().backward()
                expected.square().sum().backward()
                for one, other in zip(mine.parameters(), theirs.parameters()):
                    assert (one.grad is None) == (other.grad is None)
                    if one.grad is not None:
                        torch.testing.assert_close(one.grad, other.grad)
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= captures and not stats["fallbacks"]
    assert captures > 1 or not stats["breaks"]


def test_more_classes_than_were_counted():
    """That `bincount` counts as many as its `minlength` says is assumed where the number matters, and checked."""

    def program(classes):
        return torch.bincount(classes, minlength=3).tolist()

    compiled = lampwork.compile(program, options={"cache": False})
    for classes in ([0, 1, 2, 2], [0, 0], [5, 1], [1, 2], [7]):
        assert compiled(torch.tensor(classes)) == program(torch.tensor(classes))


@pytest.mark.parametrize("name", ["experts", "mask", "rows"])
def test_gradients(name):
    """A weight in front of what a mask picks learns what it does in eager."""
    program = {
        "experts": lambda x, w: _experts(x * w),
        "mask": lambda x, w: (x * w)[x > 0].square(),
        "rows": lambda x, w: (x * w)[x[:, 0] > 0].relu().sum(0),
    }[name]
    compiled = lampwork.compile(program, options={"cache": False})
    for x in _inputs():
        mine, other = torch.linspace(-1, 2, 5, requires_grad=True), torch.linspace(-1, 2, 5, requires_grad=True)
        expected, found = program(x, mine), compiled(x, other)
        _equal(expected.detach(), found.detach())
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("picked", [0, 1, 2, 3])
def test_places_in_what_was_picked(picked):
    """A place in the result is split by the number of elements picked, of which it is known to be less."""
    program = lambda x, y: torch.take(x[x > 0] + x.view(1, 2, 1), y % 3)
    compiled = lampwork.compile(program, options={"cache": False})
    found = []
    for function in (program, compiled):
        leaf = torch.tensor([0.5 if picked & 1 else -0.5, 1.0 if picked & 2 else -1.0], requires_grad=True)
        try:
            result = function(leaf, torch.tensor([[1]]))
            result.sum().backward()
            found.append((result.tolist(), leaf.grad.tolist()))
        except IndexError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("wanted", [False, True], ids=["values", "gradients"])
def test_an_equality_tells_a_size_in_those_found_before(wanted):
    def program(x):
        first = torch.masked_select(x, x > 0)
        second = first[first > 0]
        second[:-1] = first[:-1]
        return second

    compiled = lampwork.compile(program, options={"cache": False})
    for row in ([-0.25, -0.5, -0.75, 0.25], [0.25, 1.0, 2.0, 3.0], [0.25, 1.0, -2.0, 3.0], [-1.0, 2.0, 3.0, -1.0]):
        found = []
        for function in (program, compiled):
            x = torch.tensor(row, requires_grad=wanted)
            result = function(x)
            if wanted:
                (result * torch.arange(1.0, 1 + result.numel())).sum().backward()
            found.append((result, x.grad))
        torch.testing.assert_close(found[1], found[0])
