"""Numbers taken out of tensors: what is computed of them, in the graph or behind it, is what Python computes."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork


def x6():
    return torch.arange(6.0).reshape(2, 3)


def _arithmetic(x):
    a = x.long().sum().item()
    return a**40, a * 10**30, (a + 2**70) // 3, a / 7, float(a), a % 4 == 1, -a, a - 2.5, type(a / 7)


def _extremes(x):
    a, b = x[0, 0].item(), x[1, 1].item()
    return max(a, b), min(a, b, 3.0), max([a, b]), abs(a - b), round(b), round(a / 3.0, 1), sum([a, b])


def _types(x):
    i, u = x.to(torch.int32).sum().item(), x.to(torch.uint8).max().item()
    h, b = x.half().mean().item(), (x > 2).sum().item()
    return i, u, h, b, i + b, u * h, type(i), type(h), bool(x.any()), int(x.mean())


def _in_place(x):
    s = x.sum().item()
    y = x.clone()
    y *= s
    y += s
    y.mul_(s).add_(s)
    y /= s
    total = 0
    total += s
    return y, total * 2


def _clamped(x):
    m, k = x.mean().item(), x.long().sum().item()
    return x.clamp(max=m), torch.clamp(x, 1.0, m), x.clamp(min=m), x.long().clamp(max=k), x.clamp_min(m), x.clamp(0, k)


def _filled(x):
    m = x.mean().item()
    made = torch.full((2,), m), torch.full_like(x, m), torch.tensor(m), torch.tensor(x.argmax().item())
    chosen = torch.where(x > 2, x, m), torch.where(x > 2, m, x), x.masked_fill(x > 2, m), x.clone().fill_(m)
    return made, chosen, torch.tensor(m, dtype=torch.float64), torch.full((1,), bool(x.any()))


def _halves(x):
    m = x.mean().item()
    return x.half() * m, m / (x.bfloat16() + 1), x.bfloat16() - m, x.half() + m


def _functions(x):
    m = x.mean().item()
    return math.sqrt(m), math.exp(m) * x, math.log(m), math.floor(m), math.ceil(m), math.isnan(m), math.sqrt(m) * x


def _not_finite(x):
    y = x / 0
    return y.mean().item(), f"{y.sum().item():.1f}", math.isnan(y.sum().item()), y.max().item() > 1


def _written_later(x):
    before = x[0, 1].item()
    x.zero_()
    return before, x[0, 1].item(), before + x.sum().item(), str(before)


@pytest.mark.parametrize(
    "program",
    [_arithmetic, _extremes, _types, _in_place, _clamped, _filled, _halves, _functions, _not_finite, _written_later],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_program(program, dynamic):
    fast = lampwork.compile(program, options={"cache": False}, dynamic=dynamic)
    for scale in (1, 3):
        mine, other = x6() * scale, x6() * scale
        assert repr(fast(mine)) == repr(program(other)) and repr(mine) == repr(other)
    stats = lampwork.stats(fast)
    assert not stats["breaks"] and not stats["fallbacks"] and stats["captures"] == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: 1.0 / x.sum().item(),
        lambda x: math.sqrt(x.sum().item() - 1),
        lambda x: int(x.sum().item() / x.sum().item()),
        lambda x: 7 % int(x.sum()),
    ],
)
def test_what_fails_fails_as_in_eager(program):
    fast = lampwork.compile(program, options={"cache": False})
    for make in (lambda: x6() + 1, lambda: x6() * 0, x6):
        try:
            expected = repr(program(make()))
        except (ArithmeticError, ValueError) as error:
            with pytest.raises(type(error)) as found:
                fast(make())
            assert str(found.value) == str(error)
        else:
            assert repr(fast(make())) == expected


def test_a_failure_that_is_caught_comes_before_anything_is_written():
    def program(x, log):
        log.append("begun")
        try:
            log.append(1.0 / x.sum().item())
        except ZeroDivisionError:
            log.append("zero")
        return x + 1

    fast = lampwork.compile(program, options={"cache": False})
    for value in (1.0, 0.0, 2.0):
        log: list = []
        fast(torch.full((2,), value), log)
        assert log == ["begun", "zero" if not value else 1.0 / (2 * value)]


def test_numbers_do_not_carry_gradients():
    def program(x, w):
        bound = w.norm().item()
        ((x @ w).clamp(max=bound).sum() * bound).backward()
        return w.grad

    grads = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        grads.append(function(x6(), torch.ones(3, 2, requires_grad=True)))
    assert torch.allclose(*grads)
