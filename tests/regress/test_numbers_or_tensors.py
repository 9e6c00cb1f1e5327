"""`max(1, count)` of a number and a tensor is the one or the other; tensors are made of lists with unknown numbers, or
with tensors."""

from __future__ import annotations

import pytest
import torch

import lampwork


def both(program, *shifts):
    """Runs the program on positive, mixed and negative numbers; what `lampwork.stats` says."""
    compiled = lampwork.compile(program, options={"cache": False})
    for shift in shifts or (5.0, 0.0, -5.0):
        torch.manual_seed(0)
        x = torch.randn(5) + shift
        expected, found = program(x.clone()), compiled(x.clone())
        assert type(found) is type(expected)
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, equal_nan=True)
    return lampwork.stats(compiled)


def whole(program):
    stats = both(program)
    assert stats["captures"] == 1 and not stats["breaks"] and not stats["fallbacks"]


def divided_in_place(x):
    y = x * 1
    y /= max(1, (y > 0).sum())
    return y


def counted_before_a_write(x):
    count = (x > 0).sum()
    bounded = max(1, count)
    count.add_(5)
    return x / bounded, bounded


def gradient(x):
    weight = torch.ones(5, requires_grad=True)
    ((weight * x).sum() / max(1, (x > 0).sum())).backward()
    return weight.grad


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x / max(1, (x > 0).sum()),
        lambda x: x / max((x > 0).sum(), 1),
        lambda x: max(1.0, (x > 0).float().sum()) * x,
        lambda x: x * min(2, (x > 0).sum()),
        lambda x: x.half() / max(1, (x > 0).sum()),
        lambda x: x / max(1.0, x.sum() * float("nan")),
        lambda x: x / max(x.sum() * float("nan"), 1.0),
        lambda x: max(1, (x > 0).sum()),
        divided_in_place,
        counted_before_a_write,
        gradient,
    ],
)
def test_the_larger_of_a_number_and_a_tensor(program):
    whole(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + 1 if max(1, (x > 0).sum()) > 1 else x,
        lambda x: x + 1 if isinstance(max(1, (x > 0).sum()), int) else x,
        lambda x: (x > 0).long() + max(1, x.sum()),  # of one type or another
        lambda x: x * max(0, (x.requires_grad_() * 2).sum()).detach() if x.sum() > 0 else x,
        lambda x: f"{max(1, (x > 0).sum())}",
    ],
)
def test_what_looks_at_it_breaks(program):
    assert both(program)["breaks"]


def discounted(x):
    total, found = 0, []
    for reward in x.tolist()[::-1]:
        total = reward + 0.9 * total
        found.insert(0, total)
    returns = torch.tensor(found)
    return (returns - returns.mean()) / (returns.std() + 1e-6)


@pytest.mark.parametrize(
    "program",
    [
        discounted,
        lambda x: torch.tensor([x.sum().item(), 1.0, 2]) * x[:3],
        lambda x: torch.tensor([[x.sum().item(), 1], [2, x.mean().item()]]),
        lambda x: torch.tensor([(x > 0).sum().item(), 1, True]),
        lambda x: torch.tensor([(x > 0).any().item(), True]),
        lambda x: torch.tensor([(x > 0).sum().item(), 1], dtype=torch.float64),
    ],
)
def test_a_tensor_of_numbers_out_of_tensors(program):
    whole(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.tensor([x.max(), x.min() + 1]) * 2,
        lambda x: torch.tensor([[x.max(), 1], (2.5, x.half().min())]),
        lambda x: torch.tensor([x.half().max(), x.argmax()]),
        lambda x: torch.tensor([x.half().max(), 1.5]),
        lambda x: torch.tensor([x.argmax().int(), True, 2**40]),
        lambda x: torch.tensor([x.max() > 1, (x > 0).all()]),
        lambda x: torch.as_tensor([x.argmax(), x.max().item()], dtype=torch.float64),
        lambda x: torch.as_tensor((x.max(), torch.tensor(3)), device=x.device),
        lambda x: torch.tensor([x.requires_grad_().max(), 2.0]).requires_grad,
    ],
)
def test_a_tensor_of_tensors_of_one_number(program):
    whole(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.tensor([x.max(), x]),
        lambda x: torch.tensor([x.max(), [1.0]]),
        lambda x: torch.tensor([x.max()], dtype=torch.int64),
        lambda x: torch.tensor([x[:1], x[1:2]]),
        lambda x: torch.tensor([x.max(), 1j]),
    ],
)
def test_a_tensor_of_what_has_no_one_number(program):
    x = torch.randn(5)
    compiled = lampwork.compile(program, options={"cache": False})
    try:
        expected = program(x)
    except Exception as error:
        with pytest.raises(type(error)) as found:
            compiled(x)
        assert str(found.value) == str(error)
    else:
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
    assert {each.id for each in lampwork.stats(compiled)["breaks"]} == {"data-dependent"}
